/* acceptor.h - the acceptor of the open round: promises, votes, and their way to disk. */
#ifndef TW_SYNC_VOTE_ACCEPTOR_H
#define TW_SYNC_VOTE_ACCEPTOR_H

#include "sync/core/state/node.h"

void tw_acceptor_prepare(struct tw_node *node, uint16_t peer, const struct tw_msg_prepare *prepare);
void tw_acceptor_propose(struct tw_node *node, uint16_t peer, const struct tw_msg_propose *propose);
void tw_acceptor_stored(struct tw_node *node, uint64_t seq, bool ok);
/* Sends replies whose vote is on disk. True: *own is one to this node's own proposer; call again
 * after it. */
bool tw_acceptor_reply(struct tw_node *node, struct tw_msg_accept *own);
/* Promises the ballots whose turn it is. */
void tw_acceptor_promise(struct tw_node *node);
/* Accepts the offer once every result in it is here and verified. */
void tw_acceptor_consider(struct tw_node *node);

/* There is an offer that keeps others from proposing. */
bool tw_acceptor_has_offer(struct tw_node *node);
/* A new membership: nothing promised. Stored. */
void tw_acceptor_reset(struct tw_node *node);
/* The nonce that we join under is on disk; asks for it again when writing it failed. */
bool tw_acceptor_has_nonce(struct tw_node *node);
/* Makes the vote be about the open round; older rounds are decided and need no memory. */
void tw_acceptor_turn(struct tw_node *node);
/* Has the vote written down. Returns the number of the STORED that answers it. */
uint64_t tw_acceptor_store(struct tw_node *node);

#endif
