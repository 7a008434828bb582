/* pair_clock.h - topology pair: the run clock that each node keeps for itself. */
#ifndef TW_SYNC_PAIR_PAIR_CLOCK_H
#define TW_SYNC_PAIR_PAIR_CLOCK_H

#include "sync/core/state/node.h"

uint64_t tw_pair_clock(const struct tw_node *node);
/* The clock at present, between rounds: as far as our own tokens tell. */
uint64_t tw_pair_clock_now(const struct tw_node *node);
/* The clock after a round in which we trained on so many tokens. */
uint64_t tw_pair_clock_after(const struct tw_node *node, uint64_t tokens);
/* One clock is so far behind another that its anchors would only drag: less than half, beyond the
 * tokens of two periods of all nodes. */
bool tw_pair_is_far_behind(const struct tw_node *node, uint64_t clock, uint64_t other);
/* The peer whose state should replace ours, or NO_PEER. */
uint16_t tw_pair_find_ahead(struct tw_node *node);
/* We trained on so many tokens in a step that took so long; 0: duration not known. */
void tw_pair_stepped(struct tw_node *node, uint64_t took_us, uint64_t tokens);
/* How many times faster than our own tokens the run's clock advances at present, in 1024ths. */
uint64_t tw_pair_clock_factor(const struct tw_node *node);

#endif
