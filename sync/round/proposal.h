/* proposal.h - the record that a proposer proposes: results, contributors, next roster with part
 * weights; and the checks of a record on which all honest members agree. */
#ifndef TW_SYNC_ROUND_PROPOSAL_H
#define TW_SYNC_ROUND_PROPOSAL_H

#include "sync/core/state.h"

/* True if an honest proposer could have written the record for the open round. */
bool tw_record_is_sound(const struct tw_node *node, const struct tw_record *record);

/* Keeps at most TW_PARTS_MAX owners: those with the fastest uploads. */
void tw_part_weights_limit(struct tw_roster *next);

/* Writes the announced results into round.proposal, so that the caller can check them before
 * tw_proposal_write. */
void tw_proposal_draft(struct tw_node *node);
/* Writes round.proposal without the parts of round.left_out. */
void tw_proposal_write(struct tw_node *node);
/* Sets the weights that the members of `next` should have; `next` may be record->next. A member
 * gets a weight by upload if it delivered in time and the other members reach it. It gets 0 if this
 * node has proof against it. All honest members compute the same weights, apart from messages under
 * way and links that only some members see. With is_mesh, all members count as linked. */
void tw_proposal_fair(const struct tw_node *node, const struct tw_record *record, bool is_mesh,
                      struct tw_roster *next);

/* True if the roster has this node under this nonce. */
bool tw_proposal_has_member(const struct tw_roster *roster, const struct tw_member *member);

/* The base of a proposed record, as an acceptor judges it. */
enum tw_base {
    TW_BASE_RIGHT, /* this node's own state, or not told */
    TW_BASE_LATER, /* this node will hold the state after its next merges */
    TW_BASE_WRONG, /* another state, or one that this node does not hold */
};
enum tw_base tw_proposal_base(const struct tw_node *node, const struct tw_record *record,
                              uint64_t ballot);

#endif
