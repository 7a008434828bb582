/* vote.h - the vote on the open round: runs this node's lease, acceptor and proposer in turn. */
#ifndef TW_SYNC_VOTE_VOTE_H
#define TW_SYNC_VOTE_VOTE_H

#include "sync/core/state/node.h"

/* Sends this node's votes that are on disk. Returns true if its own vote completes a majority for
 * round.proposal. The caller must then commit the proposal and call again. */
bool tw_vote_reply(struct tw_node *node);
void tw_vote_advance(struct tw_node *node);

#endif
