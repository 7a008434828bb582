/* round.h - the open round: our contribution, the merge of the part we own, the results. */
#ifndef TW_SYNC_ROUND_ROUND_H
#define TW_SYNC_ROUND_ROUND_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Takes over the roster of the next round and opens it. */
void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster);
void tw_round_open(struct tw_node *node);
/* Notes that member `idx` sent a message about the open round. The round becomes active once enough
 * members did, but not before it is due. */
void tw_round_touch(struct tw_node *node, uint32_t idx);
void tw_round_contrib(struct tw_node *node, uint16_t peer, const struct tw_msg_contrib *contrib);
void tw_round_encoded(struct tw_node *node, const struct tw_event *event);
void tw_round_reduced(struct tw_node *node, const struct tw_event *event);
void tw_round_advance(struct tw_node *node);
/* `parts` is the set of parts for which the peer lacks signatures of contributors. If this node
 * owns one of them, sends the peer our result with all signatures, at most once per peer and round.
 */
void tw_round_show(struct tw_node *node, uint16_t peer, uint32_t parts);
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
