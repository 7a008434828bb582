/* account.h - this node's tokens and steps: those already listed in a record, and those yet to be
 * sent. A mark is the count up to which they are listed. */
#ifndef TW_SYNC_ROUND_ACCOUNT_H
#define TW_SYNC_ROUND_ACCOUNT_H

#include "sync/core/state/node.h"

/* Moves all marks to the present counts: the clock's and those of every fragment. */
void tw_account_settle(struct tw_node *node);
/* Counts all tokens so far as listed. */
void tw_account_settle_clock(struct tw_node *node);
/* Lets Delta of the fragment start now. */
void tw_account_settle_delta(struct tw_node *node, uint32_t fragment);
/* Adapts the marks to a new worker, which may be at an earlier step than the previous one. */
void tw_account_greet(struct tw_node *node);
/* Fills the row of our contribution with its counts, as of own_step and own_tokens. */
void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row);
/* Updates the marks when the open round is committed. Returns true if the record lists this node.
 */
bool tw_account_commit(struct tw_node *node, const struct tw_record *record);

/* Returns the most tokens that a row may count: 64 planned periods of all fragments. An honest node
 * that trained for longer without a round leaves the rest out. Without this bound, one false row
 * could end the run for all nodes. */
uint64_t tw_account_tokens_max(const struct tw_node *node);

/* True if an honest node could have these counts. No count may be above tw_account_tokens_max. With
 * our own trainers, the fragment's tokens must be its steps times step_tokens, and all tokens must
 * be whole steps, each up to that bound. All nodes of a run judge alike. */
bool tw_account_is_possible(const struct tw_node *node, const struct tw_contributor *row);

#endif
