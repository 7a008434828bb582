/* veto.h - results and proposals that this node refuses to vote for. */
#ifndef TW_SYNC_CHECK_VETO_H
#define TW_SYNC_CHECK_VETO_H

#include "sync/core/state/node.h"

/* Returns the set of parts of the open round's record that this node refuses. */
uint32_t tw_veto_find(struct tw_node *node, const struct tw_record *record);
/* Passes the proposer over: results of its proposal do not arrive here, or proofs are missing.
 * After RETRY_US, the next rank may propose. */
void tw_veto_pass(struct tw_node *node, uint64_t ballot);
/* Like tw_veto_pass, and notes that this node refuses the offer. */
void tw_veto_proposer(struct tw_node *node);
/* The offer is accepted after all: its proposer no longer counts as one that proposed nearly
 * nothing. */
void tw_veto_not(struct tw_node *node);
/* Refuses these parts of the offer: sends NACK to its proposer, and forgets the offer. */
void tw_veto_offer(struct tw_node *node, uint32_t parts);
/* A member refused these parts of our proposal. */
void tw_veto_refused(struct tw_node *node, uint32_t member, uint32_t parts);
/* Members refuse parts of our proposal, and too few votes are left for it. round.left_out then
 * contains the parts to leave out, so that these members vote for the next proposal. */
bool tw_veto_is_ballot_lost(struct tw_node *node);
/* The proposer of this rank is not waited for: this node refused its proposal. */
bool tw_veto_is_passed(struct tw_node *node, uint32_t rank);
#endif
