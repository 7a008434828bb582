/* proposer.h - the proposer of the open round, and the vote as a whole. */
#ifndef TW_SYNC_VOTE_PROPOSER_H
#define TW_SYNC_VOTE_PROPOSER_H

#include "sync/core/state.h"

/* Sends this node's votes that are on disk. Returns true if its own vote completes a majority for
 * round.proposal. The caller must then commit the proposal and call again. */
bool tw_vote_reply(struct tw_node *node);
void tw_vote_advance(struct tw_node *node);

enum tw_drop tw_proposer_promise(struct tw_node *node, uint16_t peer,
                                 const struct tw_msg_promise *promise);
/* Sets *is_chosen if a majority has voted twice for round.proposal. The caller must then commit it.
 */
enum tw_drop tw_proposer_accept(struct tw_node *node, uint16_t peer,
                                const struct tw_msg_accept *accept, bool *is_chosen);
enum tw_drop tw_proposer_nack(struct tw_node *node, uint16_t peer, const struct tw_msg_nack *nack);
/* Writes round.proposal, without the results that this node refuses. */
void tw_proposer_write(struct tw_node *node);

#endif
