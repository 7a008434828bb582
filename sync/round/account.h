/* account.h - the tokens and steps of this node: what is listed, and what is yet to be sent. */
#ifndef TW_SYNC_ROUND_ACCOUNT_H
#define TW_SYNC_ROUND_ACCOUNT_H

#include "sync/core/state/node.h"

/* Everything trained so far is accounted for: in the clock and in every fragment. */
void tw_account_settle(struct tw_node *node);
void tw_account_settle_clock(struct tw_node *node);
/* Delta of the fragment begins now. */
void tw_account_settle_delta(struct tw_node *node, uint32_t fragment);
/* A worker is up, perhaps at an earlier step than the one before it. */
void tw_account_greet(struct tw_node *node);
/* Counters of the row for our contribution taken at own_step and own_tokens; no other field. */
void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row);
/* The open round is committed. Returns whether it lists this node. */
bool tw_account_commit(struct tw_node *node, const struct tw_record *record);

#endif
