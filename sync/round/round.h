/* round.h - the open round: our contribution and its counts, the merge of the part we own. */
#ifndef TW_SYNC_ROUND_ROUND_H
#define TW_SYNC_ROUND_ROUND_H

#include "sync/core/interface.h"
#include "sync/core/state.h"

/* ---- tokens and steps of this node ----------------------------------------------------------- */

/* This node's tokens and steps: those already listed in a record, and those yet to be
 * sent. A mark is the count up to which they are listed. */

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

/* True if honest work of up to `nodes` nodes could have these counts. No count may be above
 * tw_account_tokens_max. With our own trainers, the fragment's tokens must be its steps times
 * step_tokens, and all tokens must be whole steps, each up to that bound. The steps of several
 * nodes are their mean, rounded up. All nodes of a run judge alike. */
bool tw_account_is_possible(const struct tw_node *node, const struct tw_contributor *row,
                            uint32_t nodes);
/* Returns the most nodes whose work one member may contribute in this run. */
uint32_t tw_account_nodes_max(const struct tw_node *node);

/* ---- the open round -------------------------------------------------------------------------- */

/* Takes over the roster of the next round and opens it. */
void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster);
void tw_round_open(struct tw_node *node);
/* Notes that member `idx` sent a message about the open round. The round becomes active once enough
 * members did, but not before it is due. */
void tw_round_touch(struct tw_node *node, uint32_t idx);
enum tw_drop tw_round_contrib(struct tw_node *node, uint16_t peer,
                              const struct tw_msg_contrib *contrib);
enum tw_drop tw_round_encoded(struct tw_node *node, const struct tw_event *event);
enum tw_drop tw_round_reduced(struct tw_node *node, const struct tw_event *event);
void tw_round_advance(struct tw_node *node);
/* True if our contribution is due. */
bool tw_round_is_due(struct tw_node *node);
/* Resets our entry of this round to one without a contribution. Returns its CONTRIB. */
struct tw_msg_contrib *tw_round_entry(struct tw_node *node);
/* `parts` is the set of parts for which the peer lacks signatures of contributors. If this node
 * owns one of them, sends the peer our result with all signatures, at most once per peer and round.
 */
enum tw_drop tw_round_show(struct tw_node *node, uint16_t peer, uint32_t parts);
/* Counts each live member that this record, about to be committed, does not list, as a late
 * arrival. */
void tw_round_note_missed(struct tw_node *node, const struct tw_record *record);

/* True if this round waits for the member's contribution once it is announced. A member that often
 * fails to deliver is waited for in few rounds. */
bool tw_round_awaits(const struct tw_node *node, uint32_t member);
/* True if the result announced for part k did not arrive within the usual time (pace.patience_us),
 * so that this node no longer waits for it. */
bool tw_round_is_late(struct tw_node *node, uint32_t k);
/* True if no result is announced for part k, and its owner is not stalled. */
bool tw_round_is_unannounced(const struct tw_node *node, uint32_t k);
/* Returns a round number: results of the open round are kept until that round is decided, for nodes
 * that missed them. */
uint64_t tw_round_keep(const struct tw_node *node);

#endif
