/* actions.c - what the current event asks of the shell, in order. */
#include "sync/node_internal.h"

void tw_act_wake(struct tw_node *node, uint64_t at_us) {
    if (at_us < node->deadline_us) node->deadline_us = at_us;
}

static struct queued_action *push(struct tw_node *node, enum tw_action_kind kind) {
    TW_ASSERT(node->queue_tail < TW_ACTIONS_MAX);
    struct queued_action *action = &node->queue[node->queue_tail++];
    action->kind = kind;
    return action;
}

struct tw_message *tw_act_message(struct tw_node *node, enum tw_message_kind kind) {
    if (node->messages_count == MESSAGES_PER_EVENT_MAX) {
        tw_act_wake(node, node->now_us + ASK_US);
        return NULL;
    }
    struct tw_message *message = &node->messages[node->messages_count++];
    message->kind = kind;
    return message;
}

void tw_act_send(struct tw_node *node, const struct tw_message *message, uint16_t peer) {
    if (message == NULL || peer == NO_PEER || !node->links[peer].is_up) return;
    struct queued_action *action = push(node, TW_ACT_SEND);
    action->peer = peer;
    action->slot = (uint16_t)(message - node->messages);
}

void tw_act_payload(struct tw_node *node, enum tw_action_kind kind, const struct payload *payload) {
    struct queued_action *action = push(node, kind);
    action->hash = payload->hash;
    action->bytes = payload->bytes;
    action->elements = payload->elements;
    action->content = payload->content;
    action->fragment = payload->fragment;
    action->begin = payload->begin;
    action->idx = 0;
}

void tw_act_chunk(struct tw_node *node, uint16_t peer, const struct payload *payload,
                  uint32_t idx) {
    struct queued_action *action = push(node, TW_ACT_SEND_CHUNK);
    action->peer = peer;
    action->hash = payload->hash;
    action->bytes = payload->bytes;
    action->elements = 0;
    action->content = TW_CONTENT_OPAQUE;
    action->fragment = 0;
    action->begin = 0;
    action->idx = idx;
}

void tw_act_close(struct tw_node *node, uint16_t peer, enum tw_status reason) {
    struct queued_action *action = push(node, TW_ACT_CLOSE);
    action->peer = peer;
    action->idx = (uint32_t)reason;
}

struct tw_action *tw_act_body(struct tw_node *node, enum tw_action_kind kind) {
    TW_ASSERT(node->bodies_count < BODIES_PER_EVENT_MAX);
    struct queued_action *action = push(node, kind);
    action->slot = (uint16_t)node->bodies_count;
    struct tw_action *body = &node->bodies[node->bodies_count++];
    *body = (struct tw_action){.kind = kind};
    return body;
}

void tw_act_report(struct tw_node *node, enum tw_report_kind kind, const struct tw_id *id) {
    if (node->bodies_count + BODIES_NOT_REPORTS >= BODIES_PER_EVENT_MAX)
        return; /* words only: rather lose them */
    struct tw_action *body = tw_act_body(node, TW_ACT_REPORT);
    body->u.report.kind = kind;
    body->u.report.reason = TW_OK;
    body->u.report.state = node->state;
    body->u.report.id = *id;
    body->u.report.record = NULL;
    body->u.report.round = 0;
    body->u.report.part = 0;
    body->u.report.times = 0;
}

void tw_act_misbehaved(struct tw_node *node, uint16_t peer, enum tw_status reason) {
    const uint32_t before = node->bodies_count;
    tw_act_report(node, TW_REPORT_MISBEHAVED, &node->links[peer].id);
    if (node->bodies_count > before) node->bodies[before].u.report.reason = reason;
    tw_act_close(node, peer, reason);
}

bool tw_node_next_action(struct tw_node *node, struct tw_action *action) {
    if (node->queue_head == node->queue_tail) return false;
    const struct queued_action *queued = &node->queue[node->queue_head++];
    switch (queued->kind) {
    case TW_ACT_SEND: action->u.message = &node->messages[queued->slot]; break;
    case TW_ACT_CLOSE: action->u.reason = (enum tw_status)queued->idx; break;
    case TW_ACT_SEND_CHUNK:
    case TW_ACT_EXPECT:
    case TW_ACT_VERIFY:
    case TW_ACT_DROP:
        action->u.payload.hash = queued->hash;
        action->u.payload.bytes = queued->bytes;
        action->u.payload.idx = queued->idx;
        action->u.payload.elements = queued->elements;
        action->u.payload.content = queued->content;
        action->u.payload.fragment = queued->fragment;
        action->u.payload.begin = queued->begin;
        break;
    case TW_ACT_ENCODE:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_STORE_VOTE:
    case TW_ACT_CLOCK:
    case TW_ACT_FINISH:
    case TW_ACT_REPORT: *action = node->bodies[queued->slot]; break;
    }
    action->kind = queued->kind;
    action->peer = queued->peer;
    return true;
}
