/* progress.h - questions about the position: rounds known, rounds due, the run clock. */
#ifndef TW_SYNC_CORE_PROGRESS_H
#define TW_SYNC_CORE_PROGRESS_H

#include "sync/core/state/node.h"

/* The fragment that a round merges. */
uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round);
/* The record of a committed round, or NULL when it is not in the log. */
const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round);
/* The oldest committed round that the fragment still has to apply, or UINT64_MAX. */
uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment);
/* The same, if all rounds below `round` were applied to it. */
uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round);
/* (phi, u) of the fragment are being changed by the worker. */
bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment);
/* Every fragment is held, and every committed round is applied. */
bool tw_progress_is_current(const struct tw_node *node);

/* The run clock: tokens trained by all nodes together. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node);
/* The run clock of the state that this node holds. */
uint64_t tw_progress_held_tokens(const struct tw_node *node);
/* The clock has reached the budget: each fragment gets one last round. */
bool tw_progress_is_final(const struct tw_node *node);
/* The part of the budget that nodes train together is over. */
bool tw_progress_is_apart(const struct tw_node *node);
/* Tokens by which a token of a listed contributor moves the clock. */
uint64_t tw_progress_share(const struct tw_node *node);

/* Inner steps from sending to applying, at least. By the clock the overlap is a time too: counted
 * in steps alone, it would be many rounds of a node whose steps are long. */
uint64_t tw_progress_overlap(const struct tw_node *node);

#endif
