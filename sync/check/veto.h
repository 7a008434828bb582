/* veto.h - results and proposals that this node refuses to vote for. */
#ifndef TW_SYNC_CHECK_VETO_H
#define TW_SYNC_CHECK_VETO_H

#include "sync/core/state.h"

/* True if no honest proposer would have written the record for this ballot, as far as this node can
 * tell. The node does not vote for such a record for a while. */
bool tw_proposal_is_rigged(struct tw_node *node, const struct tw_record *record, uint64_t ballot);
/* True if the record leaves out too many results that this node holds or may still get in time. */
bool tw_proposal_is_empty(struct tw_node *node, const struct tw_record *record, uint64_t ballot);
/* True if the record leaves out too many results that may still arrive in time, so it is judged
 * later. With NULL as the record: true if too few results are announced for any proposal. */
bool tw_proposal_is_early(struct tw_node *node, const struct tw_record *record);
/* True if part k of the record differs from the result that its owner announced to this node. */
bool tw_proposal_is_rigged_part(const struct tw_node *node, const struct tw_record *record,
                                uint32_t k);

/* Returns the set of parts of the open round's record that this node refuses. */
uint32_t tw_veto_find(struct tw_node *node, const struct tw_record *record);
/* Passes the proposer of this ballot over: after RETRY_US, this node no longer waits for it, and
 * the next rank may propose. Called if results of its proposal do not arrive, or proofs are
 * missing.
 */
void tw_veto_pass(struct tw_node *node, uint64_t ballot);
/* Like tw_veto_pass, for the proposer of the offer (the proposal that this node judges now). Also
 * notes whether the offer left out most of the round. */
void tw_veto_proposer(struct tw_node *node);
/* Called if the offer is accepted after all: its proposer no longer counts as one whose proposal
 * left out most of the round. */
void tw_veto_not(struct tw_node *node);
/* Refuses these parts of the offer: sends NACK to its proposer, and forgets the offer. */
void tw_veto_offer(struct tw_node *node, uint32_t parts);
/* Notes that a member refused these parts of our proposal. */
void tw_veto_refused(struct tw_node *node, uint32_t member, uint32_t parts);
/* True if members refuse parts of our proposal, and too few votes are left for it. The parts to
 * leave out are then in round.left_out, so that these members vote for the next proposal. */
bool tw_veto_is_ballot_lost(struct tw_node *node);
/* True if the proposer of this rank is passed over, and RETRY_US have elapsed since the round's
 * first refusal. */
bool tw_veto_is_passed(struct tw_node *node, uint32_t rank);

#endif
