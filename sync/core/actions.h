/* actions.h - the queue of the actions of the current event, in order. */
#ifndef TW_SYNC_CORE_ACTIONS_H
#define TW_SYNC_CORE_ACTIONS_H

#include "sync/core/state.h"

/* Returns a message to fill and then send. Returns NULL if the queue has no room for more messages:
 * the caller then sends it after a later event. */
struct tw_message *tw_act_message(struct tw_node *node, enum tw_message_kind kind);
/* Queues a message. Does nothing if `message` is NULL, `peer` is NO_PEER or the link is down. */
void tw_act_send(struct tw_node *node, const struct tw_message *message, uint16_t peer);
void tw_act_payload(struct tw_node *node, enum tw_action_kind kind, const struct payload *payload);
void tw_act_chunk(struct tw_node *node, uint16_t peer, const struct payload *payload, uint32_t idx);
void tw_act_close(struct tw_node *node, uint16_t peer, enum tw_status reason);
/* Queues an action that has a body, and returns the body for the caller to fill. */
struct tw_action *tw_act_body(struct tw_node *node, enum tw_action_kind kind);
/* Queues a report and returns it for the caller to fill. Returns NULL if the queue is nearly full,
 * because reports are dropped first. */
struct tw_report *tw_act_report(struct tw_node *node, enum tw_report_kind kind,
                                const struct tw_id *id);
/* Counts a reason for which something had no effect; TW_DROP_NONE counts nothing. */
void tw_act_drop(struct tw_node *node, enum tw_drop why);
/* Reports that a node broke the rules. */
void tw_act_accuse(struct tw_node *node, const struct tw_id *id, enum tw_status reason);
/* Reports the peer and closes its link. */
void tw_act_misbehaved(struct tw_node *node, uint16_t peer, enum tw_status reason);
/* Pops the oldest action. Returns false if there is none. */
bool tw_act_take(struct tw_node *node, struct tw_action *action);
/* Asks for a tick at `at_us`. */
void tw_act_wake(struct tw_node *node, uint64_t at_us);

#endif
