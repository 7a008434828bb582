/* account.h - this node's tokens and steps: those already listed in a record, and those yet to be
 * sent. A mark is the count up to which they are listed. */
#ifndef TW_SYNC_ROUND_ACCOUNT_H
#define TW_SYNC_ROUND_ACCOUNT_H

#include "sync/core/state/node.h"

/* Moves all marks to the present counts: the clock's and those of every fragment. */
void tw_account_settle(struct tw_node *node);
/* All tokens so far count as listed. */
void tw_account_settle_clock(struct tw_node *node);
/* Delta of the fragment starts now. */
void tw_account_settle_delta(struct tw_node *node, uint32_t fragment);
/* A worker is up, perhaps at an earlier step than the previous one. */
void tw_account_greet(struct tw_node *node);
/* Fills the counts of the row for our contribution, taken at own_step and own_tokens. */
void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row);
/* The open round is committed. True: the record lists this node. */
bool tw_account_commit(struct tw_node *node, const struct tw_record *record);

/* Most tokens that a row may count: 64 planned periods of all fragments. An honest node that
 * trained for longer without a round leaves the rest out. Without the bound one false row ends the
 * run for everybody. */
uint64_t tw_account_tokens_max(const struct tw_node *node);

/* An honest node could have counted so. No count is above tw_account_tokens_max. Where trainers are
 * our own, the tokens of the fragment are those of its steps, and all tokens are whole steps, each
 * up to that bound. All nodes of a run judge alike. */
bool tw_account_is_possible(const struct tw_node *node, const struct tw_contributor *row);

#endif
