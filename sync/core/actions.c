/* actions.c - the queue of the actions of the current event, in order. */
#include "sync/core/actions.h"

#include "base/assert.h"
#include "sync/core/state.h"

enum {
    BODIES_NOT_REPORTS = 12
}; /* entries of `bodies` that reports must leave free for other actions */

void tw_act_wake(struct tw_node *node, uint64_t at_us) {
    if (at_us < node->deadline_us) node->deadline_us = at_us;
}

void tw_act_drop(struct tw_node *node, enum tw_drop why) {
    TW_ASSERT(why < TW_DROPS_COUNT);
    if (why == TW_DROP_NONE) return;
    node->drops.counts[why]++;
    node->drops.newest = why;
}

static struct queued_action *push_action(struct tw_node *node, enum tw_action_kind kind) {
    TW_ASSERT(node->queue.tail < TW_ACTIONS_MAX);
    struct queued_action *action = &node->queue.actions[node->queue.tail++];
    action->kind = kind;
    return action;
}

struct tw_message *tw_act_message(struct tw_node *node, enum tw_message_kind kind) {
    if (node->queue.messages_count == MESSAGES_PER_EVENT_MAX) {
        tw_act_wake(node, node->now_us + ASK_US);
        tw_act_drop(node, TW_DROP_QUEUE_FULL);
        return NULL;
    }
    struct tw_message *message = &node->queue.messages[node->queue.messages_count++];
    message->kind = kind;
    return message;
}

void tw_act_send(struct tw_node *node, const struct tw_message *message, uint16_t peer) {
    if (message == NULL || peer == NO_PEER || !node->links[peer].is_up) return;
    const ptrdiff_t slot = message - node->queue.messages;
    TW_ASSERT(slot >= 0 && slot < (ptrdiff_t)node->queue.messages_count);
    struct queued_action *action = push_action(node, TW_ACT_SEND);
    action->peer = peer;
    action->slot = (uint16_t)slot;
}

void tw_act_payload(struct tw_node *node, enum tw_action_kind kind, const struct payload *payload) {
    struct queued_action *action = push_action(node, kind);
    TW_ASSERT(kind == TW_ACT_EXPECT || kind == TW_ACT_VERIFY || kind == TW_ACT_DROP);
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
    struct queued_action *action = push_action(node, TW_ACT_SEND_CHUNK);
    TW_ASSERT(peer < TW_PEERS_MAX);
    TW_ASSERT(payload->state == PAYLOAD_HELD);
    TW_ASSERT(idx < payload->chunks);
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
    struct queued_action *action = push_action(node, TW_ACT_CLOSE);
    TW_ASSERT(peer < TW_PEERS_MAX);
    action->peer = peer;
    action->idx = (uint32_t)reason;
}

struct tw_action *tw_act_body(struct tw_node *node, enum tw_action_kind kind) {
    TW_ASSERT(node->queue.bodies_count < BODIES_PER_EVENT_MAX);
    struct queued_action *action = push_action(node, kind);
    action->slot = (uint16_t)node->queue.bodies_count;
    struct tw_action *body = &node->queue.bodies[node->queue.bodies_count++];
    *body = (struct tw_action){.kind = kind};
    return body;
}

struct tw_report *tw_act_report(struct tw_node *node, enum tw_report_kind kind,
                                const struct tw_id *id) {
    TW_ASSERT(node->queue.bodies_count <= BODIES_PER_EVENT_MAX);
    if (node->queue.bodies_count + BODIES_NOT_REPORTS >= BODIES_PER_EVENT_MAX) {
        tw_act_drop(node, TW_DROP_REPORTS_FULL);
        return NULL;
    }
    struct tw_report *report = &tw_act_body(node, TW_ACT_REPORT)->u.report;
    report->kind = kind;
    report->reason = TW_OK;
    report->state = node->state;
    report->id = *id;
    report->record = NULL;
    report->round = 0;
    report->part = 0;
    report->times = 0;
    return report;
}

void tw_act_accuse(struct tw_node *node, const struct tw_id *id, enum tw_status reason) {
    struct tw_report *report = tw_act_report(node, TW_REPORT_MISBEHAVED, id);
    if (report != NULL) report->reason = reason;
}

void tw_act_misbehaved(struct tw_node *node, uint16_t peer, enum tw_status reason) {
    TW_ASSERT(node->links[peer].is_up);
    TW_ASSERT(reason != TW_OK);
    tw_act_accuse(node, &node->links[peer].id, reason);
    tw_act_close(node, peer, reason);
}

bool tw_act_take(struct tw_node *node, struct tw_action *action) {
    TW_ASSERT(node->queue.head <= node->queue.tail);
    if (node->queue.head == node->queue.tail) return false;
    const struct queued_action *queued = &node->queue.actions[node->queue.head++];
    switch (queued->kind) {
    case TW_ACT_SEND: action->u.message = &node->queue.messages[queued->slot]; break;
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
    case TW_ACT_REPORT:
    case TW_ACT_GATHER:
    case TW_ACT_JUDGE: *action = node->queue.bodies[queued->slot]; break;
    }
    action->kind = queued->kind;
    action->peer = queued->peer;
    return true;
}
