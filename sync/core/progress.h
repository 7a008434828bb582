/* progress.h - questions about the position: rounds known, rounds due, the run clock. */
#ifndef TW_SYNC_CORE_PROGRESS_H
#define TW_SYNC_CORE_PROGRESS_H

#include "proto/run/kept.h"
#include "sync/core/state/node.h"

/* Returns the fragment that a round merges. */
uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round);
/* Returns the record of a committed round, or NULL if it is not in the log. */
const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round);
/* Returns the oldest committed round that the fragment still has to apply, or UINT64_MAX. */
uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment);
/* Returns the first round of the fragment from `round` (at most ROUNDS_MAX) on, decided or not. */
uint64_t tw_progress_from(const struct tw_node *node, uint32_t fragment, uint64_t round);
/* Like tw_progress_due, as if all rounds below `round` were applied to the fragment. */
uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round);
/* Returns this node's tokens per second; 0 while it takes no steps, as in a pause. */
uint32_t tw_progress_speed(const struct tw_node *node);
/* True while the worker changes (phi, u) of the fragment. */
bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment);
/* True if every fragment is held and every committed round is applied. */
bool tw_progress_is_current(const struct tw_node *node);

/* Returns the run clock: tokens trained by all nodes together. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node);
/* Returns the run clock of the state that this node holds. */
uint64_t tw_progress_held_tokens(const struct tw_node *node);
/* True if the clock has reached the budget: each fragment gets one last round. */
bool tw_progress_is_final(const struct tw_node *node);
/* True if the clock has passed config.together_tokens: nothing is merged any more. */
bool tw_progress_is_apart(const struct tw_node *node);
/* Returns the tokens by which the run clock advances per token of a listed contributor: 1 while
 * nodes merge, config.alone_nodes once they train apart. */
uint64_t tw_progress_share(const struct tw_node *node);

/* Returns the least number of inner steps from sending to applying. With sync.pace = clock, this
 * number is capped by a time: on a slow node, the configured steps could last many rounds. */
uint64_t tw_progress_overlap(const struct tw_node *node);

/* Returns the payloads that this node keeps for others. */
struct tw_kept tw_progress_kept(const struct tw_node *node);

#endif
