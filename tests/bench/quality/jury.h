/* jury.h - the cores of honest members. They answer the questions of a round: which member
 * proposes, which parts exist, the content of an honest proposal, and whether they vote for another
 * member's proposal.
 *
 * They receive every contribution and every result, see all nodes, and get their workers' judgement
 * of results. The cores are real: ranks, parts, proposals, votes and strikes are not modelled. The
 * world sets the time. */
#ifndef TW_TESTS_QUALITY_JURY_H
#define TW_TESTS_QUALITY_JURY_H

#include "base/id.h"
#include "base/limits.h"
#include "proto/run/layout.h"
#include "sync/node.h"

struct jury;

/* Nodes [0, honest) have cores; the caller simulates [honest, nodes). Aborts if memory is short. */
struct jury *jury_new(uint32_t nodes, uint32_t honest, const struct tw_layout *layout);
void jury_free(struct jury *jury);

/* The open round. `members` is a bit set of nodes; `order` has the nodes by rank, one per member.
 */
struct jury_round {
    uint64_t members;
    uint32_t order[TW_MEMBERS_MAX];
    uint32_t parts, owners[TW_PARTS_MAX]; /* nodes */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
};
void jury_open(struct jury *jury, uint64_t now_us, struct jury_round *round);

/* All cores receive a node's contribution (jury_hear), or the announcement by a part's owner
 * (jury_told): a result of `bytes` bytes, the merge of the nodes in the bit set `from`. */
void jury_hear(struct jury *jury, uint32_t node, uint64_t tokens, uint64_t fragment_tokens,
               uint32_t fragment_steps);
void jury_told(struct jury *jury, uint32_t part, const struct tw_id *result, uint32_t bytes,
               uint64_t from);

/* Tells an honest node's core how its worker judges the result of a part. */
enum jury_finding { JURY_FAIR, JURY_OUTLIER, JURY_EXTREME, JURY_UNFIT };
void jury_find(struct jury *jury, uint32_t node, uint32_t part, const struct tw_id *result,
               uint32_t bytes, enum jury_finding finding);

/* jury_write makes the round record that an honest node's core would propose, without the parts in
 * `without`; a lying proposer then changes it. jury_set_part replaces the result of a part, or
 * makes the part absent if `bytes` is 0. */
void jury_write(struct jury *jury, uint32_t proposer, uint32_t without, struct tw_record *record);
void jury_set_part(const struct jury *jury, struct tw_record *record, uint32_t part,
                   const struct tw_id *result, uint32_t bytes, uint64_t from);

/* Returns the number of honest members that would vote for the record if that node proposed it.
 * Does not change the cores. */
uint32_t jury_votes(struct jury *jury, uint32_t proposer, const struct tw_record *record);
/* Decides the round. */
void jury_commit(struct jury *jury, const struct tw_record *record);
/* All honest members audit this part of the last round and find its result wrong. */
void jury_strike(struct jury *jury, uint32_t owner, uint32_t part);

/* Returns the node with that member index in the open round. */
uint32_t jury_node_of(const struct jury *jury, uint32_t member);
struct tw_id jury_id(uint32_t node);

#endif
