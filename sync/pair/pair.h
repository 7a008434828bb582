/* pair.h - topology pair: exchanges with one other node at a time. */
#ifndef TW_SYNC_PAIR_PAIR_H
#define TW_SYNC_PAIR_PAIR_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* ---- the run clock of a node ----------------------------------------------------------------- */

/* Returns the peer whose state should replace ours, or NO_PEER. */
uint16_t tw_pair_find_ahead(struct tw_node *node);
/* Counts a step in which this node trained `tokens`. It took `took_us`; 0: not known. */
void tw_pair_stepped(struct tw_node *node, uint64_t took_us, uint64_t tokens);
/* Returns the present speed of the run clock divided by this node's tokens per second, in 1024ths.
 */
uint64_t tw_pair_clock_factor(const struct tw_node *node);

/* ---- exchanges ------------------------------------------------------------------------------- */

enum tw_drop tw_pair_request(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_pair_request *request);
enum tw_drop tw_pair_accept(struct tw_node *node, uint16_t peer,
                            const struct tw_msg_pair_accept *accept);
enum tw_drop tw_pair_busy(struct tw_node *node, uint16_t peer, const struct tw_msg_pair_busy *busy);
enum tw_drop tw_pair_offer(struct tw_node *node, uint16_t peer,
                           const struct tw_msg_pair_offer *offer);
void tw_pair_peer_down(struct tw_node *node, const struct tw_id *id);
/* Forgets the exchange under way: the worker is gone, the lineage changed, or the node leaves. */
void tw_pair_abandon(struct tw_node *node);
enum tw_drop tw_pair_encoded(struct tw_node *node, const struct tw_event *event);
/* True if this APPLIED answers a step of the exchange. */
bool tw_pair_is_step(const struct tw_node *node, const struct tw_event *event);
/* Handles the end of the step. Returns true if the caller must commit *record, and then call
 * tw_pair_committed. */
bool tw_pair_applied(struct tw_node *node, const struct tw_event *event, struct tw_record *record);
/* Ends the exchange. `round` is the round just committed. */
void tw_pair_committed(struct tw_node *node, uint64_t round);
void tw_pair_advance(struct tw_node *node);

#endif
