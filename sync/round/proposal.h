/* proposal.h - the record that a proposer proposes: results, contributors, next roster. */
#ifndef TW_SYNC_ROUND_PROPOSAL_H
#define TW_SYNC_ROUND_PROPOSAL_H

#include "sync/core/state/node.h"

/* Writes the results that were announced into round.proposal, for a look at them before
 * tw_proposal_write. */
void tw_proposal_draft(struct tw_node *node);
/* Writes round.proposal without the parts of round.left_out. */
void tw_proposal_write(struct tw_node *node);
/* Weights that the members of `next`, which may be record->next, should have: by upload for members
 * that delivered in time, and 0 for those that this node proved false. All honest members compute
 * the same, except for messages under way. */
void tw_proposal_fair(const struct tw_node *node, const struct tw_record *record,
                      struct tw_roster *next);
/* Set of members that contributed to a result, as its owner announced. */
uint64_t tw_proposal_contributors(const struct tw_msg_result *result);

#endif
