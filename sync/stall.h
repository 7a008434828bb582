/* stall.h - who holds up rounds, and so is not waited for: a node's own findings, of a while. */
#ifndef TW_SYNC_STALL_H
#define TW_SYNC_STALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

struct tw_record;
struct tw_node;
struct tw_roster;

enum tw_stall_kind { TW_STALL_OWNER, TW_STALL_PROPOSER, TW_STALL_KINDS };

struct tw_stall {
    struct tw_id id;
    uint32_t count; /* lately; 0: a free row */
    uint64_t until_us;
};

void tw_stall_add(struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id);
/* It held up rounds, lately and more than once: nobody waits for it in that part, for so long. */
uint64_t tw_stall_left_us(const struct tw_node *node, enum tw_stall_kind kind,
                          const struct tw_id *id);
bool tw_stall_is(const struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id);
/* Notes the owners that held up the open round, which is about to be committed by this manifest. */
/* Takes the parts of owners that do, of so much weight at most. Returns of how much. */
uint64_t tw_stall_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most);

#endif
