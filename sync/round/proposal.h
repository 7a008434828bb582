/* proposal.h - the record that a proposer proposes: results, contributors, next roster. */
#ifndef TW_SYNC_ROUND_PROPOSAL_H
#define TW_SYNC_ROUND_PROPOSAL_H

#include "sync/core/state/node.h"

/* Writes the announced results into round.proposal, to be checked before tw_proposal_write. */
void tw_proposal_draft(struct tw_node *node);
/* Writes round.proposal without the parts of round.left_out. */
void tw_proposal_write(struct tw_node *node);
/* Sets the weights that the members of `next`, which may be record->next, should have. Members that
 * delivered in time and that the others reach get a weight by upload; those proven false here get
 * 0. All honest members compute the same, apart from messages under way, and where they see
 * different parts of the graph of links. is_mesh: as if all members were linked. */
void tw_proposal_fair(const struct tw_node *node, const struct tw_record *record, bool is_mesh,
                      struct tw_roster *next);
/* Set of members that contributed to a result, as its owner announced. */
uint64_t tw_proposal_contributors(const struct tw_msg_result *result);

#endif
