/* penalty.h - what this node holds against others. */
#ifndef TW_SYNC_TRUST_PENALTY_H
#define TW_SYNC_TRUST_PENALTY_H

#include "sync/core/state/node.h"

void tw_strike_add(struct tw_node *node, const struct tw_id *id, bool is_false, uint64_t round,
                   uint32_t part);
/* It owns nothing where others need not agree or there is proof (proposal.c), and is not waited for
 * as a proposer. */
bool tw_strike_is(const struct tw_node *node, const struct tw_id *id);
/* And that is proven: a merge that this node did again, or bytes that decode to nothing. */
bool tw_strike_is_false(const struct tw_node *node, const struct tw_id *id);
/* Takes the parts of owners that are struck, those struck most often first: of so much weight at
 * most. Returns of how much. */
uint64_t tw_strike_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most);

/* What became of the contribution of member `id` to the part that we own. */
void tw_unmerged_note(struct tw_node *node, const struct tw_id *id, bool is_merged);
/* In how many rounds in a row it was left out. */
uint32_t tw_unmerged_rounds(const struct tw_node *node, const struct tw_id *id);

void tw_stall_add(struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id);
/* It held up rounds, lately and more than once: nobody waits for it in that part, for so long. */
uint64_t tw_stall_left_us(const struct tw_node *node, enum tw_stall_kind kind,
                          const struct tw_id *id);
bool tw_stall_is(const struct tw_node *node, enum tw_stall_kind kind, const struct tw_id *id);
/* Takes the parts of owners that do, of so much weight at most. Returns of how much. */
uint64_t tw_stall_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most);

#endif
