/* round.h - the open round: our contribution, the merge of the part we own, the results. */
#ifndef TW_SYNC_ROUND_ROUND_H
#define TW_SYNC_ROUND_ROUND_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Takes over the roster of the next round and opens it. */
void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster);
void tw_round_open(struct tw_node *node);
/* Member `idx` sent a message about the open round: the round becomes active once enough members
 * did, but not before it is due. */
void tw_round_touch(struct tw_node *node, uint32_t idx);
void tw_round_contrib(struct tw_node *node, uint16_t peer, const struct tw_msg_contrib *contrib);
void tw_round_encoded(struct tw_node *node, const struct tw_event *event);
void tw_round_reduced(struct tw_node *node, const struct tw_event *event);
void tw_round_advance(struct tw_node *node);
/* The peer lacks signatures in our result of one of these parts. It gets all of them, once in a
 * round. */
void tw_round_show(struct tw_node *node, uint16_t peer, uint32_t parts);
/* Counts live members that this record, about to be committed, does not list as late arrivals. */
void tw_round_note_missed(struct tw_node *node, const struct tw_record *record);

/* This round waits for the member's contribution once it is announced. A member that often fails to
 * deliver is waited for in few rounds. */
bool tw_round_awaits(const struct tw_node *node, uint32_t member);
/* The result announced for part k did not arrive within the usual time (pace.patience_us), so this
 * node no longer waits for it. */
bool tw_round_is_late(struct tw_node *node, uint32_t k);
/* No result is announced for part k, but its owner is live and still has time. */
bool tw_round_is_unannounced(const struct tw_node *node, uint32_t k);
/* The round until whose decision results of the open round are kept, for nodes that missed them. */
uint64_t tw_round_keep(const struct tw_node *node);

#endif
