/* pair_clock.h - topology pair: the run clock that each node keeps for itself. */
#ifndef TW_SYNC_PAIR_PAIR_CLOCK_H
#define TW_SYNC_PAIR_PAIR_CLOCK_H

#include "sync/core/state/node.h"

uint64_t tw_pair_clock(const struct tw_node *node);
/* Returns the present clock, including the tokens since the last round. */
uint64_t tw_pair_clock_now(const struct tw_node *node);
/* Returns the clock after a round in which this node trained `tokens`. */
uint64_t tw_pair_clock_after(const struct tw_node *node, uint64_t tokens);
/* True if `clock` is less than half of `other`, and lags by more than the tokens of two periods of
 * all nodes. A merge with such an old anchor would only set the other node back. */
bool tw_pair_is_far_behind(const struct tw_node *node, uint64_t clock, uint64_t other);
/* Returns the peer whose state should replace ours, or NO_PEER. */
uint16_t tw_pair_find_ahead(struct tw_node *node);
/* Counts a step in which this node trained `tokens`. It took `took_us`; 0: not known. */
void tw_pair_stepped(struct tw_node *node, uint64_t took_us, uint64_t tokens);
/* Returns the present speed of the run clock divided by this node's tokens per second, in 1024ths.
 */
uint64_t tw_pair_clock_factor(const struct tw_node *node);

#endif
