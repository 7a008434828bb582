/* net.c - the simulated internet: connections, delay, bandwidth, loss as stalls, resets, blocks.
 *
 * Two nodes have at most one connection: control and bulk open and close together. Each direction
 * is a queue whose items arrive in order. A lost packet delays its item by retransmission timeouts.
 * A blocked direction holds all items until it opens. Items in flight are lost when an end goes
 * down. The close of a connection travels like any item, so one side may briefly keep a connection
 * that the other has closed. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "proto/control.h"
#include "sync/trace/trace.h"
#include "tests/sim/world.h"

enum {
    RTO_US = 300 * 1000,
    RTO_DOUBLINGS = 6,
    DIAL_MIN_US = 500 * 1000,
    DIAL_MAX_US = 20 * 1000 * 1000,
    FRAME_BYTES = 100, /* headers of frame, TLS and TCP */
};

static uint32_t link_idx(const struct tw_sim_world *world, const struct tw_sim_link *link) {
    return (uint32_t)(link - world->links);
}

static struct tw_sim_node *node_of(struct tw_sim_world *world, const struct tw_sim_link *link,
                                   uint32_t end) {
    return &world->nodes[link->nodes[end]];
}

static uint32_t end_of(const struct tw_sim_link *link, const struct tw_sim_node *node) {
    return link->nodes[0] == node->idx ? 0 : 1;
}

bool tw_sim_net_is_blocked(const struct tw_sim_world *world, const struct tw_sim_link *link,
                           uint32_t from) {
    if (link->blocks[from] > 0) return true;
    if (!world->is_split) return false;
    const uint8_t source = world->nodes[link->nodes[from]].side;
    const uint8_t sink = world->nodes[link->nodes[!from]].side;
    return world->is_split_one_way ? source < sink : source != sink;
}

/* ---- pipes ---------------------------------------------------------------------------------- */

static void arm_pipe(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t pipe_idx,
                     uint64_t at_us) {
    struct tw_sim_pipe *pipe = &link->pipes[pipe_idx];
    if (pipe->is_armed || pipe->head == NULL) return;
    pipe->is_armed = true;
    if (at_us < pipe->head->at_us) at_us = pipe->head->at_us;
    if (at_us < world->now_us) at_us = world->now_us;
    tw_sim_push(world, at_us, TW_SIM_TIMER_PIPE, link_idx(world, link), pipe_idx, link->life, NULL);
}

static void put_item(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t pipe_idx,
                     struct tw_sim_item item) {
    struct tw_sim_pipe *pipe = &link->pipes[pipe_idx];
    struct tw_sim_item *copy = malloc(sizeof *copy);
    TW_ASSERT(copy != NULL);
    *copy = item;
    copy->next = NULL;
    if (copy->at_us < pipe->last_us) copy->at_us = pipe->last_us;
    pipe->last_us = copy->at_us;
    if (pipe->head == NULL) {
        pipe->head = copy;
    } else {
        pipe->tail->next = copy;
    }
    pipe->tail = copy;
    arm_pipe(world, link, pipe_idx, 0);
}

static void free_item(struct tw_sim_item *item) {
    free(item->message);
    free(item);
}

static void clear_pipe(struct tw_sim_pipe *pipe) {
    while (pipe->head != NULL) {
        struct tw_sim_item *item = pipe->head;
        pipe->head = item->next;
        free_item(item);
    }
    *pipe = (struct tw_sim_pipe){0};
}

/* Returns the one-way delay, with jitter and retransmissions, in microseconds. */
static uint64_t travel_us(struct tw_sim_world *world, const struct tw_sim_link *link) {
    uint64_t us = (link->has_path ? 1 : 2) * link->latency_us +
                  tw_sim_exponential_us(&world->rng, (double)world->options.jitter_us);
    double loss = world->is_calm ? 0 : world->options.loss;
    if (world->now_us < world->loss_until_us) loss += 0.2;
    if (loss <= 0) return us;
    uint64_t rto_us = RTO_US;
    for (int i = 0; i < RTO_DOUBLINGS && tw_rng_unit(&world->rng) < loss; i++) {
        us += rto_us;
        rto_us *= 2;
    }
    return us;
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void dial_later(struct tw_sim_world *world, struct tw_sim_link *link) {
    if (link->is_dialling) return;
    link->is_dialling = true;
    const uint64_t pause_us =
        (uint64_t)((double)link->backoff_us * (0.7 + 0.6 * tw_rng_unit(&world->rng)));
    link->backoff_us *= 2;
    if (link->backoff_us > DIAL_MAX_US) link->backoff_us = DIAL_MAX_US;
    tw_sim_push(world, world->now_us + pause_us, TW_SIM_TIMER_DIAL, link_idx(world, link), 0, 0,
                NULL);
}

static bool is_connected(const struct tw_sim_end *end) {
    return end->is_pending || (end->is_up && !end->is_closing);
}

static bool is_hand(const struct tw_sim_world *world, const struct tw_sim_link *link) {
    return world->options.heads_count > 0 && link->nodes[1] >= world->options.heads_count;
}

/* Returns how many connections the node has or is making. */
static uint32_t connections_of(const struct tw_sim_world *world, const struct tw_sim_node *node) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->links_count; i++) {
        const struct tw_sim_link *link = &world->links[node->links[i]];
        count += is_connected(&link->ends[end_of(link, node)]);
    }
    return count;
}

/* A hand keeps a few links, and dials on where a head has no room. */
static void dial_on(struct tw_sim_world *world, struct tw_sim_node *hand) {
    if (!hand->is_running || connections_of(world, hand) >= world->options.hand_links) return;
    for (uint32_t i = 0; i < hand->links_count; i++) {
        struct tw_sim_link *link = &world->links[hand->links[i]];
        link->backoff_us = DIAL_MIN_US;
        dial_later(world, link);
    }
}

/* Frees the uplink time of `from` that was reserved for its queued and unsent chunks. */
static void refund_upload(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t from) {
    uint64_t us = 0;
    const struct tw_sim_item *item = link->pipes[2 * from + 1].head;
    for (; item != NULL; item = item->next) {
        if (item->sent_us < world->now_us) continue;
        const uint64_t left_us = item->sent_us - world->now_us;
        us += left_us < item->upload_us ? left_us : item->upload_us;
    }
    uint64_t *free_us = &node_of(world, link, from)->upload_free_us;
    *free_us = *free_us > world->now_us + us ? *free_us - us : world->now_us;
}

/* This end loses its connection. Items in flight to it are lost. */
static void close_end(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t end) {
    struct tw_sim_end *it = &link->ends[end];
    struct tw_sim_node *node = node_of(world, link, end);
    const bool was_up = it->is_up;
    const uint16_t peer = it->peer;
    *it = (struct tw_sim_end){0};
    refund_upload(world, link, 1 - end);
    for (uint32_t bulk = 0; bulk < 2; bulk++) {
        const bool was_armed = link->pipes[2 * (1 - end) + bulk].is_armed;
        clear_pipe(&link->pipes[2 * (1 - end) + bulk]);
        link->pipes[2 * (1 - end) + bulk].is_armed = was_armed;
    }
    if (was_up) {
        if (node->is_running) {
            const struct tw_event event = {.kind = TW_EV_PEER_DOWN, .peer = peer};
            tw_sim_deliver(world, node, &event);
        }
        node->link_of_peer[peer] = -1;
    }
    if (is_hand(world, link))
        dial_on(world, node_of(world, link, 1));
    else
        dial_later(world, link);
}

/* Sends the close of the connection to the other end. */
static void send_end(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t from) {
    const struct tw_sim_item item = {.kind = TW_SIM_ITEM_END,
                                     .at_us = world->now_us + travel_us(world, link)};
    put_item(world, link, 2 * from, item);
}

/* Returns whether a hand may dial the head: all links to other heads are kept free. */
static bool has_room(const struct tw_sim_world *world, const struct tw_sim_node *head) {
    const uint32_t heads = world->options.heads_count;
    uint32_t hands = 0;
    for (uint32_t i = 0; i < head->links_count; i++) {
        const struct tw_sim_link *link = &world->links[head->links[i]];
        hands += link->nodes[1] >= heads && is_connected(&link->ends[0]);
    }
    return hands + heads - 1 < TW_PEERS_MAX;
}

static void dial_link(struct tw_sim_world *world, struct tw_sim_link *link) {
    link->is_dialling = false;
    if (is_connected(&link->ends[0]) && is_connected(&link->ends[1])) return;
    if (is_hand(world, link) &&
        connections_of(world, node_of(world, link, 1)) >= world->options.hand_links)
        return;
    bool is_possible = !is_hand(world, link) || has_room(world, node_of(world, link, 0));
    for (uint32_t end = 0; end < 2; end++) {
        const struct tw_sim_node *node = node_of(world, link, end);
        if (!node->is_running || node->is_leaving || node->stalled_until_us > world->now_us) {
            is_possible = false;
        }
        if (tw_sim_net_is_blocked(world, link, end)) is_possible = false;
    }
    if (!is_possible || !tw_sim_paths_choose(world, link)) {
        dial_later(world, link);
        return;
    }
    /* A new connection replaces the old one at an end that still has it. */
    for (uint32_t end = 0; end < 2; end++) {
        if (link->ends[end].is_up) close_end(world, link, end);
    }
    for (uint32_t i = 0; i < 4; i++) clear_pipe(&link->pipes[i]);
    link->life++;
    uint64_t at_us = world->now_us + 3 * link->latency_us;
    const uint32_t dialler = (uint32_t)tw_rng_below(&world->rng, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t end = i == 0 ? 1 - dialler : dialler;
        link->ends[end] = (struct tw_sim_end){.is_pending = true};
        at_us += travel_us(world, link);
        tw_sim_push(world, at_us, TW_SIM_TIMER_LINKED, link_idx(world, link), end, link->life,
                    NULL);
    }
    for (uint32_t i = 0; i < 4; i++) link->pipes[i].last_us = at_us;
}

static void open_end(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t end) {
    struct tw_sim_node *node = node_of(world, link, end);
    struct tw_sim_end *it = &link->ends[end];
    if (!it->is_pending || !node->is_running || node->is_leaving) return;
    uint32_t free_count = 0;
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) free_count += node->link_of_peer[i] < 0;
    if (free_count == 0) return;
    uint64_t nth = tw_rng_below(&node->rng, free_count);
    uint16_t peer = 0;
    for (;; peer++) {
        if (node->link_of_peer[peer] >= 0) continue;
        if (nth-- == 0) break;
    }
    node->link_of_peer[peer] = (int32_t)link_idx(world, link);
    *it = (struct tw_sim_end){.is_up = true, .peer = peer};
    link->backoff_us = DIAL_MIN_US;
    const struct tw_sim_node *const other = node_of(world, link, !end);
    struct tw_event event = {
        .kind = TW_EV_PEER_UP, .peer = peer, .lacks_vote = !tw_sim_has_vote(world, other->idx)};
    event.u.id = other->id;
    event.is_relayed = !link->has_path;
    tw_sim_deliver(world, node, &event);
}

/* ---- sending -------------------------------------------------------------------------------- */

static uint32_t member_bytes(const struct tw_message *message) {
    switch (message->kind) {
#define X(name, value, member)                                                                     \
    case TW_MSG_##name: return (uint32_t)sizeof message->u.member;
        TW_MESSAGE_LIST(X)
#undef X
    }
    TW_NEVER("a message of no known kind");
}

/* Encodes and decodes the message as protobuf: both must succeed and change nothing. */
static void check_wire(struct tw_sim_world *world, struct tw_sim_node *node,
                       struct tw_message *message) {
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    size_t size = 0;
    struct tw_error err = {0};
    struct tw_message *decoded = world->scratch;
    if (tw_control_encode(message, body, sizeof body, &size, &err) != TW_OK ||
        tw_control_decode((uint16_t)message->kind, body, size, decoded, &err) != TW_OK) {
        tw_sim_fail(world, node, "wire", "%s cannot be encoded and decoded: %s",
                    tw_message_name(message->kind), err.message);
        return;
    }
    if (tw_trace_message(message) != tw_trace_message(decoded)) {
        tw_sim_fail(world, node, "wire", "%s is changed by encoding and decoding",
                    tw_message_name(message->kind));
    }
}

/* Returns the time at which `bytes` more have left this node's uplink. Control messages overtake
 * bulk. */
static uint64_t reserve_upload(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t bytes,
                               bool is_bulk) {
    const uint64_t us = (uint64_t)bytes * 1000000 / node->upload_bytes_per_s;
    if (!is_bulk) {
        if (node->upload_free_us > world->now_us) node->upload_free_us += us;
        return world->now_us + us;
    }
    if (node->upload_free_us < world->now_us) node->upload_free_us = world->now_us;
    node->upload_free_us += us;
    return node->upload_free_us;
}

/* Returns the link of a peer, or NULL. Sending to a peer without a link violates invariant 6. */
static struct tw_sim_link *live_link(struct tw_sim_world *world, struct tw_sim_node *node,
                                     uint16_t peer, const char *what) {
    if (peer >= TW_PEERS_MAX || node->link_of_peer[peer] < 0) {
        tw_sim_fail(world, node, "6", "%s to peer %u, which has no link", what, (unsigned)peer);
        return NULL;
    }
    struct tw_sim_link *link = &world->links[node->link_of_peer[peer]];
    return link->ends[end_of(link, node)].is_closing ? NULL : link;
}

static struct tw_message *copy_of(const struct tw_message *message) {
    const size_t bytes = offsetof(struct tw_message, u) + member_bytes(message);
    struct tw_message *copy = malloc(bytes);
    TW_ASSERT(copy != NULL);
    memcpy(copy, message, bytes);
    return copy;
}

static void note_cost(struct tw_sim_world *world, struct tw_sim_node *from, struct tw_sim_node *to,
                      const struct tw_message *message) {
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    struct tw_sim_costs *costs = &world->result->costs;
    size_t size = 0;
    if (tw_control_encode(message, body, sizeof body, &size, NULL) != TW_OK) return;
    costs->bytes[TW_SIM_MESSAGES + (uint32_t)message->kind] += TW_FRAME_HEADER_BYTES + size;
    from->sent_bytes += TW_FRAME_HEADER_BYTES + size;
    to->received_bytes += TW_FRAME_HEADER_BYTES + size;
    if (message->kind != TW_MSG_PROPOSE || message->u.propose.record.round <= costs->proposed_round)
        return;
    costs->proposed_round = message->u.propose.record.round;
    costs->proposed_us = world->now_us;
}

/* About the size on the wire. Fields of CONTRIB that are 0 are not sent. */
static uint32_t sent_bytes(const struct tw_message *message) {
    size_t bytes = member_bytes(message);
    if (message->kind == TW_MSG_CONTRIB && message->u.contrib.cursor == 0)
        bytes -= sizeof(message->u.contrib.cursor);
    if (message->kind == TW_MSG_CONTRIB && message->u.contrib.crew_count == 0)
        bytes -= 8 + sizeof(message->u.contrib.crew_root);
    if (message->kind == TW_MSG_CREW)
        bytes -= (TW_CREW_MAX - message->u.crew.rows_count) * sizeof(struct tw_crew_row);
    return FRAME_BYTES + (uint32_t)bytes / 4;
}

static void put_message(struct tw_sim_world *world, struct tw_sim_node *node,
                        struct tw_sim_link *link, struct tw_message *message) {
    if (world->options.is_wire_checked) check_wire(world, node, message);
    if (world->options.is_costed)
        note_cost(world, node, node_of(world, link, !end_of(link, node)), message);
    const uint64_t sent_us = reserve_upload(world, node, sent_bytes(message), false);
    const struct tw_sim_item item = {
        .kind = TW_SIM_ITEM_MESSAGE, .at_us = sent_us + travel_us(world, link), .message = message};
    put_item(world, link, 2 * end_of(link, node), item);
    world->result->messages++;
    node->sent_count++;
}

void tw_sim_net_message(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                        const struct tw_message *message) {
    struct tw_sim_link *link = live_link(world, node, peer, "message");
    if (link == NULL) return;
    if (message->kind == TW_MSG_CREW && tw_sim_is_false_head(world, node) && node->idx % 2 == 0)
        return;
    struct tw_message *copy = copy_of(message);
    tw_sim_lie_message(world, node, copy);
    if (tw_sim_treason_pass(world, node, link->nodes[!end_of(link, node)], copy))
        put_message(world, node, link, copy);
}

void tw_sim_net_say(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                    const struct tw_message *message) {
    struct tw_sim_link *link = live_link(world, node, peer, "message");
    if (link != NULL) put_message(world, node, link, copy_of(message));
}

uint16_t tw_sim_peer_of(const struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_id *id) {
    for (uint16_t peer = 0; peer < TW_PEERS_MAX; peer++) {
        if (node->link_of_peer[peer] < 0) continue;
        const struct tw_sim_link *link = &world->links[node->link_of_peer[peer]];
        const struct tw_sim_end *end = &link->ends[end_of(link, node)];
        if (tw_id_equal(&world->nodes[link->nodes[!end_of(link, node)]].id, id))
            return end->is_up && !end->is_closing ? peer : UINT16_MAX;
    }
    return UINT16_MAX;
}

void tw_sim_net_chunk(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer,
                      const struct tw_sim_payload *payload, uint32_t idx) {
    struct tw_sim_link *link = live_link(world, node, peer, "chunk");
    if (link == NULL) return;
    if (!link->has_path && link->relay == TW_SIM_NO_RELAY)
        return; /* the relay of the link has just gone */
    const uint32_t begin = idx * TW_CHUNK_BYTES_MAX, left = payload->bytes - begin;
    const uint32_t bytes = left < TW_CHUNK_BYTES_MAX ? left : TW_CHUNK_BYTES_MAX;
    const uint64_t before_us = node->upload_free_us;
    const uint64_t sent_us = reserve_upload(world, node, FRAME_BYTES + bytes, true);
    uint64_t passed_us = sent_us;
    if (!link->has_path) { /* the relay uploads a relayed message again */
        const uint64_t relay_us =
            reserve_upload(world, &world->nodes[link->relay], FRAME_BYTES + bytes, true);
        if (relay_us > passed_us) passed_us = relay_us;
    }
    const struct tw_sim_item item = {
        .kind = TW_SIM_ITEM_CHUNK,
        .at_us = passed_us + travel_us(world, link),
        .content = payload->content,
        .hash = payload->hash,
        .sent_us = sent_us,
        .upload_us = sent_us - (before_us > world->now_us ? before_us : world->now_us),
        .idx = idx};
    put_item(world, link, 2 * end_of(link, node) + 1, item);
    world->result->chunks++;
    tw_sim_trace(world, node, "sends chunk %u, %.1f s of upload ahead of it", idx,
                 (double)(sent_us - world->now_us) / 1e6);
}

void tw_sim_net_close(struct tw_sim_world *world, struct tw_sim_node *node, uint16_t peer) {
    struct tw_sim_link *link = live_link(world, node, peer, "close");
    if (link == NULL) return;
    const uint32_t end = end_of(link, node);
    link->ends[end].is_closing = true;
    send_end(world, link, end);
    tw_sim_push(world, world->now_us, TW_SIM_TIMER_UNLINKED, link_idx(world, link), end, link->life,
                NULL);
}

void tw_sim_net_reset(struct tw_sim_world *world, struct tw_sim_link *link) {
    for (uint32_t end = 0; end < 2; end++) {
        if (!link->ends[end].is_up) continue;
        tw_sim_push(world, world->now_us + travel_us(world, link), TW_SIM_TIMER_UNLINKED,
                    link_idx(world, link), end, link->life, NULL);
    }
}

void tw_sim_net_node_down(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told) {
    for (uint32_t i = 0; i < node->links_count; i++) {
        struct tw_sim_link *link = &world->links[node->links[i]];
        const uint32_t end = end_of(link, node);
        if (link->ends[end].is_up && is_told) send_end(world, link, end);
        close_end(world, link, end);
    }
    tw_sim_paths_relay_down(world, node->idx);
}

void tw_sim_net_node_up(struct tw_sim_world *world, struct tw_sim_node *node) {
    for (uint32_t i = 0; i < node->links_count; i++) {
        struct tw_sim_link *link = &world->links[node->links[i]];
        link->backoff_us = DIAL_MIN_US;
        dial_later(world, link);
    }
}

/* ---- time passes ---------------------------------------------------------------------------- */

static void deliver_item(struct tw_sim_world *world, struct tw_sim_link *link, uint32_t pipe_idx) {
    struct tw_sim_pipe *pipe = &link->pipes[pipe_idx];
    pipe->is_armed = false;
    if (pipe->head == NULL) return;
    const uint32_t from = pipe_idx / 2, to = 1 - from;
    if (tw_sim_net_is_blocked(world, link, from)) return; /* waits for tw_sim_net_healed */
    if (pipe->head->at_us > world->now_us) {
        arm_pipe(world, link, pipe_idx, 0);
        return;
    }
    struct tw_sim_node *node = node_of(world, link, to);
    struct tw_sim_item *item = pipe->head;
    pipe->head = item->next;
    arm_pipe(world, link, pipe_idx, world->now_us);
    struct tw_sim_end *end = &link->ends[to];
    if (!end->is_up) {
        /* A kernel answers an unknown connection with a reset; a dead machine does not. */
        if (node->is_running && link->ends[from].is_up && item->kind != TW_SIM_ITEM_END) {
            tw_sim_push(world, world->now_us + link->latency_us, TW_SIM_TIMER_UNLINKED,
                        link_idx(world, link), from, link->life, NULL);
        }
    } else if (item->kind == TW_SIM_ITEM_END) {
        close_end(world, link, to);
    } else if (item->kind == TW_SIM_ITEM_CHUNK) {
        if (!end->is_closing) tw_sim_pool_chunk(world, node, end->peer, item);
    } else if (!end->is_closing) {
        struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = end->peer};
        memcpy(world->scratch, item->message,
               offsetof(struct tw_message, u) + member_bytes(item->message));
        event.u.message = world->scratch;
        tw_sim_treason_hear(world, node, end->peer, world->scratch);
        tw_sim_deliver(world, node, &event);
    }
    free_item(item);
}

void tw_sim_net_healed(struct tw_sim_world *world) {
    for (uint32_t l = 0; l < world->links_count; l++) {
        struct tw_sim_link *link = &world->links[l];
        for (uint32_t i = 0; i < 4; i++) {
            if (tw_sim_net_is_blocked(world, link, i / 2)) continue;
            const uint64_t rto_us = tw_rng_below(&world->rng, 8 * RTO_US);
            arm_pipe(world, link, i, world->now_us + rto_us);
        }
    }
}

void tw_sim_net_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    struct tw_sim_link *link = &world->links[timer->a];
    if (timer->kind == TW_SIM_TIMER_DIAL) {
        dial_link(world, link);
    } else if (timer->life != link->life) {
        return;
    } else if (timer->kind == TW_SIM_TIMER_PIPE) {
        deliver_item(world, link, timer->b);
    } else if (timer->kind == TW_SIM_TIMER_LINKED) {
        open_end(world, link, timer->b);
    } else if (link->ends[timer->b].is_up) {
        close_end(world, link, timer->b);
    }
}

static void add_link(struct tw_sim_world *world, uint32_t low, uint32_t high) {
    struct tw_sim_node *a = &world->nodes[low], *b = &world->nodes[high];
    struct tw_sim_link *link = &world->links[world->links_count];
    TW_ASSERT(low < high);
    a->links[a->links_count++] = b->links[b->links_count++] = world->links_count++;
    link->nodes[0] = low;
    link->nodes[1] = high;
    link->backoff_us = DIAL_MIN_US;
    link->latency_us =
        (uint64_t)((double)world->options.latency_us * (0.3 + 1.4 * tw_rng_unit(&world->rng)));
}

/* Makes room for every link that each node may ever have. */
static void alloc_links(struct tw_sim_world *world, uint32_t heads) {
    const uint32_t n = world->nodes_count;
    world->links = calloc((size_t)heads * n, sizeof *world->links);
    TW_ASSERT(world->links != NULL);
    for (uint32_t i = 0; i < n; i++) {
        world->nodes[i].links = calloc(i < heads ? n : heads, sizeof *world->nodes[i].links);
        TW_ASSERT(world->nodes[i].links != NULL);
    }
}

void tw_sim_net_init(struct tw_sim_world *world) {
    const uint32_t n = world->nodes_count;
    const uint32_t heads = world->options.heads_count > 0 ? world->options.heads_count : n;
    TW_ASSERT(heads == n || (heads > 1 && heads < n && world->options.hand_links > 0));
    alloc_links(world, heads);
    world->scratch = calloc(1, sizeof *world->scratch);
    TW_ASSERT(world->scratch != NULL);
    for (uint32_t low = 0; low < heads; low++) {
        for (uint32_t high = low + 1; high < heads; high++) add_link(world, low, high);
    }
    for (uint32_t hand = heads; hand < n; hand++) {
        for (uint32_t head = 0; head < heads; head++) add_link(world, head, hand);
    }
    tw_sim_paths_init(world);
}

void tw_sim_net_deinit(struct tw_sim_world *world) {
    for (uint32_t i = 0; i < world->links_count; i++) {
        for (uint32_t p = 0; p < 4; p++) clear_pipe(&world->links[i].pipes[p]);
    }
    for (uint32_t i = 0; i < world->nodes_count; i++) free(world->nodes[i].links);
    free(world->links);
    free(world->scratch);
}
