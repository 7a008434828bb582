/* conduct.h - penalties against members and peers for misbehaviour that this node found. */
#ifndef TW_SYNC_CORE_CONDUCT_H
#define TW_SYNC_CORE_CONDUCT_H

#include "sync/core/state.h"

/* Strikes a node for its result of this part and round, and reports it. */
void tw_conduct_strike(struct tw_node *node, const struct tw_id *id, bool is_proven, uint64_t round,
                       uint32_t part);
/* Lifts the newest strike of a node if it is for this part and round, and unproven: an audit showed
 * that the result is the merge of its contributions. */
void tw_conduct_pardon(struct tw_node *node, const struct tw_id *id, uint64_t round, uint32_t part);
/* True if the node has a strike that is in force. It is given no part, within the bounds of
 * round/proposal.c, and is not waited for as a proposer. In pairs nothing is merged with it. */
bool tw_conduct_is_struck(const struct tw_node *node, const struct tw_id *id);
/* True if the node has a strike that is in force and was proven. */
bool tw_conduct_is_proven_false(const struct tw_node *node, const struct tw_id *id);
/* Takes parts away from struck owners, most strikes first, up to a total weight of `most`. Returns
 * the weight taken. */
uint64_t tw_conduct_drop_struck(const struct tw_node *node, struct tw_roster *next, uint64_t most);

/* Counts a stall of the node, which held up rounds as an owner or as a proposer (`kind`). The first
 * stall is neither punished nor reported. */
void tw_conduct_stall(struct tw_node *node, enum tw_penalty_kind kind, const struct tw_id *id);
/* Returns the remaining time in which the node is not waited for as owner or proposer. */
uint64_t tw_conduct_stall_left_us(const struct tw_node *node, enum tw_penalty_kind kind,
                                  const struct tw_id *id);
bool tw_conduct_is_stalled(const struct tw_node *node, enum tw_penalty_kind kind,
                           const struct tw_id *id);
/* Takes parts away from stalled owners, up to a total weight of `most`. Returns the weight taken.
 */
uint64_t tw_conduct_drop_stalled(const struct tw_node *node, struct tw_roster *next, uint64_t most);

/* Notes that the contribution of member `id` to our part was merged, or left out as too large. The
 * latter is reported the 1st, 2nd, 4th, 8th ... time in a row. */
void tw_conduct_note_merged(struct tw_node *node, const struct tw_id *id, bool is_merged);
/* Returns the number of rounds in a row in which the contribution of `id` was left out. */
uint32_t tw_conduct_unmerged_rounds(const struct tw_node *node, const struct tw_id *id);

/* Notes the size of a member's work in a merge made here, in tenths of the usual size if it was
 * large; else 0. Large work in half of the last merges is reported, once until it gets rarer; work
 * that alone made a merge large (`is_cause`) at once. No penalty: a machine far faster than the
 * others does the same honestly. */
void tw_conduct_note_size(struct tw_node *node, const struct tw_id *id, uint32_t tenths,
                          bool is_cause);
/* Returns how often the work of `id` was large; NULL if it was not merged here. */
const struct large_work *tw_conduct_large_work(const struct tw_node *node, const struct tw_id *id);
bool tw_conduct_is_often_large(const struct large_work *row);

/* Notes that member `id` does not train on the data that it says (TW_CORRUPT), or never says on
 * which (TW_LIMIT), and reports it. */
void tw_conduct_note_untrained(struct tw_node *node, const struct tw_id *id, enum tw_status reason);
bool tw_conduct_is_untrained(const struct tw_node *node, const struct tw_id *id);

/* Notes, in pairs, that this node takes over the state of node `id`, the donor. */
void tw_conduct_note_donor(struct tw_node *node, const struct tw_id *id);
/* True if this node took over the state of node `id` recently, so that it does not use that donor
 * again for a while. A donor with a true clock is needed only once. */
bool tw_conduct_is_resting(const struct tw_node *node, const struct tw_id *id);

/* Notes that node `id` made a false claim about its lineage, or that we followed its lineage and
 * received nothing. */
void tw_conduct_note_false_claim(struct tw_node *node, const struct tw_id *id);
/* True while claims of node `id` about its lineage are not checked. */
bool tw_conduct_is_disbelieved(const struct tw_node *node, const struct tw_id *id);

#endif
