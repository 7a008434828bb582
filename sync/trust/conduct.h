/* conduct.h - penalties of members and peers, as this node found them. */
#ifndef TW_SYNC_TRUST_CONDUCT_H
#define TW_SYNC_TRUST_CONDUCT_H

#include "sync/core/state/node.h"

/* Strikes a node for a result: part of the given round. Reported. */
void tw_conduct_strike(struct tw_node *node, const struct tw_id *id, bool is_proven, uint64_t round,
                       uint32_t part);
/* The node is given no part where others need not agree or there is proof (proposal.c), and nobody
 * waits for it as a proposer. In pairs nothing is merged with it. */
bool tw_conduct_is_struck(const struct tw_node *node, const struct tw_id *id);
/* The same, and the strike is proven. */
bool tw_conduct_is_proven_false(const struct tw_node *node, const struct tw_id *id);
/* Takes parts from struck owners of total weight `most` at most, those struck most often first.
 * Returns the weight taken. */
uint64_t tw_conduct_drop_struck(const struct tw_node *node, struct tw_roster *next, uint64_t most);

/* `kind`: one of the stalls. Reported, unless it is the first one. */
void tw_conduct_stall(struct tw_node *node, enum tw_penalty_kind kind, const struct tw_id *id);
/* Time for which nobody waits for this node as owner or proposer. */
uint64_t tw_conduct_stall_left_us(const struct tw_node *node, enum tw_penalty_kind kind,
                                  const struct tw_id *id);
bool tw_conduct_is_stalled(const struct tw_node *node, enum tw_penalty_kind kind,
                           const struct tw_id *id);
/* Takes parts from stalled owners of total weight `most` at most. Returns the weight taken. */
uint64_t tw_conduct_drop_stalled(const struct tw_node *node, struct tw_roster *next, uint64_t most);

/* The contribution of member `id` to our part was merged, or was too large for that. The latter is
 * reported the 1st, 2nd, 4th, 8th ... time in a row. */
void tw_conduct_note_merged(struct tw_node *node, const struct tw_id *id, bool is_merged);
/* Rounds in a row in which the contribution of `id` was left out. */
uint32_t tw_conduct_unmerged_rounds(const struct tw_node *node, const struct tw_id *id);

/* Pairs: the state of this donor is being taken over. */
void tw_conduct_note_donor(struct tw_node *node, const struct tw_id *id);
/* Its state was taken over a while ago. Had its clock been true, that would have been enough. */
bool tw_conduct_is_resting(const struct tw_node *node, const struct tw_id *id);

#endif
