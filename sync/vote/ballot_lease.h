/* ballot_lease.h - the ballot lease: for a time, an acceptor promises only one proposer's ballots.
 */
#ifndef TW_SYNC_VOTE_BALLOT_LEASE_H
#define TW_SYNC_VOTE_BALLOT_LEASE_H

#include "sync/core/state/node.h"

/* Notes that `member` sent PREPARE for a ballot above all that we have promised. */
void tw_lease_ask(struct tw_node *node, uint32_t member, uint64_t ballot);
/* Removes and returns the PREPARE to promise now. Returns false if there is none. */
bool tw_lease_next(struct tw_node *node, uint32_t *member, uint64_t *ballot);
/* Gives the lease to `member`, whose ballot was promised. */
void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot);
/* Notes that `member` proposed a sound record. */
void tw_lease_propose(struct tw_node *node, uint32_t member, uint64_t ballot);
/* True if the member is not waited for as a proposer, because it was proven false or has stalled.
 */
bool tw_lease_is_distrusted(const struct tw_node *node, uint32_t member);
/* True while a ballot of the member, which arrived at `since_us`, must wait so that others have
 * time for theirs. */
bool tw_lease_must_wait(struct tw_node *node, uint32_t member, uint64_t since_us);
/* True if `member` must wait, because another member holds the lease. */
bool tw_lease_is_others(struct tw_node *node, uint32_t member);
/* Called just before the open round is committed: gives a stall to each proposer that missed its
 * turn, or whose proposal left out most of the round. */
void tw_lease_note_turns(struct tw_node *node);
void tw_lease_advance(struct tw_node *node);

#endif
