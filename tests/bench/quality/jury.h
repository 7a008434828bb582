/* jury.h - the cores of honest members, asked what sync/ asks them: who closes a round and in which
 * parts, what an honest proposer proposes, and whether they vote for what another one does.
 *
 * They hear every contribution and every result, see all nodes, and are told what their workers
 * make of results. Nothing of a core is modelled here: ranks, parts, proposals, votes and strikes
 * are its own. Time is what the world says. */
#ifndef TW_TESTS_QUALITY_JURY_H
#define TW_TESTS_QUALITY_JURY_H

#include "base/id.h"
#include "base/limits.h"
#include "proto/run/layout.h"
#include "sync/node.h"

struct jury;

/* Nodes [0, honest) have cores, [honest, nodes) are spoken for. NULL: no memory. */
struct jury *jury_new(uint32_t nodes, uint32_t honest, const struct tw_layout *layout);
void jury_free(struct jury *jury);

/* The open round. members, of nodes: a set; order: nodes by rank, so many as there are members. */
struct jury_round {
    uint64_t members;
    uint32_t order[TW_MEMBERS_MAX];
    uint32_t parts, owners[TW_PARTS_MAX]; /* nodes */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
};
void jury_open(struct jury *jury, uint64_t now_us, struct jury_round *round);

/* All cores hear what a node contributes, and what the owner of a part says: `bytes` of that name,
 * the merge of `from`, a set of nodes. */
void jury_hear(struct jury *jury, uint32_t node, uint64_t tokens, uint64_t fragment_tokens,
               uint32_t fragment_steps);
void jury_told(struct jury *jury, uint32_t part, const struct tw_id *result, uint32_t bytes,
               uint64_t from);

/* What the worker of an honest node makes of a result of a part. */
enum jury_finding { JURY_FAIR, JURY_INSANE, JURY_WILD, JURY_UNFIT };
void jury_find(struct jury *jury, uint32_t node, uint32_t part, const struct tw_id *result,
               uint32_t bytes, enum jury_finding finding);

/* A manifest. jury_write: as the core of an honest node would, who leaves these parts out as well;
 * whoever lies changes it. jury_take_part: another result of a part, or 0 bytes for none. */
void jury_write(struct jury *jury, uint32_t proposer, uint32_t without, struct tw_record *record);
void jury_set_part(const struct jury *jury, struct tw_record *record, uint32_t part,
                   const struct tw_id *result, uint32_t bytes, uint64_t from);

/* How many honest members vote for it as the proposal of that node; nobody remembers it. */
uint32_t jury_votes(struct jury *jury, uint32_t proposer, const struct tw_record *record);
/* It is the decision. */
void jury_commit(struct jury *jury, const struct tw_record *record);
/* Everybody did this part of the last round again, and found something else. */
void jury_strike(struct jury *jury, uint32_t owner, uint32_t part);

/* Node i as a set of nodes has it, of a member index of the open round. */
uint32_t jury_node_of(const struct jury *jury, uint32_t member);
struct tw_id jury_id(uint32_t node);

#endif
