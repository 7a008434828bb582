/* vote.h - the vote on the open round: lease, acceptor and proposer of this node in turn. */
#ifndef TW_SYNC_VOTE_VOTE_H
#define TW_SYNC_VOTE_VOTE_H

#include "sync/core/state/node.h"

/* Sends this node's votes that are on disk. True: with its own vote a majority has decided on
 * round.proposal. The caller must commit the proposal and call again. */
bool tw_vote_reply(struct tw_node *node);
void tw_vote_advance(struct tw_node *node);

#endif
