/* acceptor.h - the acceptor of the open round: the ballot lease, promises, votes, and their way to
 * disk. */
#ifndef TW_SYNC_VOTE_ACCEPTOR_H
#define TW_SYNC_VOTE_ACCEPTOR_H

#include "sync/core/state.h"

/* ---- the ballot lease ------------------------------------------------------------------------ */

/* Gives the lease to `member`, whose ballot was promised. */
void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot);
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

/* ---- the acceptor ---------------------------------------------------------------------------- */

enum tw_drop tw_acceptor_prepare(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_prepare *prepare);
enum tw_drop tw_acceptor_propose(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_propose *propose);
enum tw_drop tw_acceptor_lock(struct tw_node *node, uint16_t peer, const struct tw_msg_lock *lock);
void tw_acceptor_stored(struct tw_node *node, uint64_t seq, bool ok);
/* Sends this node's votes that are on disk. Returns true if *own is a vote for this node's own
 * proposer; call again after handling it. */
bool tw_acceptor_reply(struct tw_node *node, struct tw_msg_accept *own);
/* Writes and signs this node's promise for the ballot. */
void tw_acceptor_write_promise(const struct tw_node *node, uint64_t ballot,
                               struct tw_msg_promise *promise);
/* Promises the ballots that the lease allows now. */
void tw_acceptor_promise(struct tw_node *node);
/* Accepts the offer once this node holds every result in it, verified. */
void tw_acceptor_consider(struct tw_node *node);

/* True if there is an offer that this node waits for before it proposes itself. */
bool tw_acceptor_has_offer(struct tw_node *node);
/* Starts a new membership with an empty vote, and stores it. */
void tw_acceptor_reset(struct tw_node *node);
/* True if the nonce of the membership is on disk. Stores it again if the write failed. */
bool tw_acceptor_has_nonce(struct tw_node *node);
/* Once this node has merged its part, stores that it signs a result in the open round. After a
 * restart it then signs no second one. */
void tw_acceptor_keep_result(struct tw_node *node);
/* Resets the vote for the open round. Older rounds are decided and no longer need their votes. */
void tw_acceptor_turn(struct tw_node *node);
/* Stores the vote. Returns the number with which STORED will answer. */
uint64_t tw_acceptor_store(struct tw_node *node);

#endif
