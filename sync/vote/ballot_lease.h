/* ballot_lease.h - the ballot lease: for a time, an acceptor promises only one proposer's ballots.
 */
#ifndef TW_SYNC_VOTE_BALLOT_LEASE_H
#define TW_SYNC_VOTE_BALLOT_LEASE_H

#include "sync/core/state/node.h"

/* `member` sent PREPARE for a ballot above all that we have promised. */
void tw_lease_ask(struct tw_node *node, uint32_t member, uint64_t ballot);
/* Takes out the PREPARE to promise now. False: there is none. */
bool tw_lease_next(struct tw_node *node, uint32_t *member, uint64_t *ballot);
/* The ballot was promised: `member` holds the lease. */
void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot);
/* `member` proposed a sound record. */
void tw_lease_propose(struct tw_node *node, uint32_t member, uint64_t ballot);
/* The member is not waited for as a proposer: it was proven false, or it stalled. */
bool tw_lease_is_distrusted(const struct tw_node *node, uint32_t member);
/* A ballot of the member arrived at `since_us`, and others have not had time for theirs. */
bool tw_lease_must_wait(struct tw_node *node, uint32_t member, uint64_t since_us);
/* Another member than `member` holds the lease. */
bool tw_lease_is_others(struct tw_node *node, uint32_t member);
/* The open round is about to be committed: gives a stall to each proposer that missed its turn, or
 * whose proposal left out most of the round. */
void tw_lease_note_turns(struct tw_node *node);
void tw_lease_advance(struct tw_node *node);

#endif
