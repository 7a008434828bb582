/* Tests of daemon/net/relay.c and dialer.c: two nodes that cannot dial each other, and a relay. */
#include "base/rate.h"
#include "daemon/net/transport_impl.h"
#include "proto/control.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static struct world_node *a, *b, *hub, *spare; /* a has a lower id than b; neither listens */
static uint8_t payload[TW_CHUNK_BYTES_MAX];

static void dial_only(struct tw_transport_config *config) {
    config->listen_count = 0;
}

/* Accepts every RELAY_CALL. */
static void answer(struct world_node *node, uint16_t peer, bool is_bulk,
                   const struct tw_frame *frame) {
    static struct tw_message message;
    struct tw_error err;
    if (is_bulk || frame->kind != TW_MSG_RELAY_CALL) return;
    assert_int_equal(tw_control_decode(frame->kind, frame->body, frame->body_bytes, &message, &err),
                     TW_OK);
    (void)tw_transport_answer(node->transport, peer, &message.u.relay_call.from,
                              message.u.relay_call.token, &err);
}

static void link_to(struct world_node *from, const struct world_node *to) {
    world_dial(from, to);
    WAIT_WHILE(&world, world_peer_of(from, to) < 0 || world_peer_of(to, from) < 0);
    WAIT_WHILE(&world, !world_has_bulk(from) || !world_has_bulk(to));
}

static void start(void) {
    a = world_start(&world, 0, dial_only);
    b = world_start(&world, 1, dial_only);
    hub = world_start(&world, 2, NULL);
    spare = world_start(&world, 3, NULL);
    a->on_frame = b->on_frame = answer;
    tw_transport_set_relay(hub->transport, true, 0);
    tw_transport_set_relay(spare->transport, true, 0);
    link_to(a, hub);
    link_to(b, hub);
}

static void call(struct world_node *from, struct world_node *relay, struct world_node *to) {
    struct tw_error err;
    const enum tw_status status =
        tw_transport_call(from->transport, world_linked(from, relay), &to->identity.id, &err);
    if (status != TW_OK) fail_msg("%s", err.message);
}

static bool has_path(struct world_node *from, struct world_node *to, bool is_relayed) {
    struct tw_peer_net net;
    const int peer = world_peer_of(from, to);
    return peer >= 0 && tw_transport_peer(from->transport, (uint16_t)peer, &net) && net.has_bulk &&
           net.is_relayed == is_relayed;
}

static void call_up(struct world_node *from, struct world_node *relay, struct world_node *to) {
    call(from, relay, to);
    WAIT_WHILE(&world, !has_path(from, to, true) || !has_path(to, from, true));
}

static void send_chunk(struct world_node *from, struct world_node *to) {
    const struct tw_chunk chunk = {
        .payload = from->identity.id, .size = sizeof(payload), .bytes = payload};
    assert_true(tw_transport_send_chunk(from->transport, world_linked(from, to), &chunk));
}

/* ---- linking ------------------------------------------------------------------------------- */

WORLD_TEST(two_dial_only_nodes_link_through_a_third) {
    struct tw_peer_net net;
    start();
    call_up(a, hub, b);
    assert_int_equal(a->calls, 1);
    assert_int_equal(a->call_status, TW_OK);
    assert_int_equal(hub->relays_opened, 2); /* control and bulk */
    assert_true(tw_transport_peer(b->transport, world_linked(b, a), &net));
    assert_true(net.is_relayed && tw_id_equal(&net.relay, &hub->identity.id));
    assert_false(net.is_dialled);
    assert_true(tw_transport_peer(b->transport, world_linked(b, hub), &net));
    assert_false(net.is_relayed);
    for (unsigned i = 0; i < 20; i++) {
        send_chunk(a, b);
        send_chunk(b, a);
        tw_transport_send_control(a->transport, world_linked(a, b), TW_MSG_STATUS, payload, 100);
    }
    WAIT_WHILE(&world, a->chunks < 20 || b->chunks < 20 || b->frames < 20);
    assert_int_equal(a->chunk_bytes, 20 * sizeof(payload));
    const struct tw_relay_info info = tw_transport_relay(hub->transport);
    assert_int_equal(info.pipes, 2);
    assert_int_equal(info.calls, 0);
    assert_true(info.bytes > 40 * sizeof(payload));
    assert_true(info.bytes < 42 * sizeof(payload));
}

WORLD_TEST(relayed_bytes_count_as_traffic_of_all_three) {
    start();
    call_up(a, hub, b);
    world_turn(&world, 20);
    const struct tw_traffic of_a = tw_transport_traffic(a->transport);
    const struct tw_traffic of_b = tw_transport_traffic(b->transport);
    const struct tw_traffic of_hub = tw_transport_traffic(hub->transport);
    assert_int_equal(of_a.bytes_out + of_b.bytes_out, of_hub.bytes_in);
    assert_int_equal(of_a.bytes_in + of_b.bytes_in, of_hub.bytes_out);
}

WORLD_TEST(crossing_calls_leave_one_link) {
    start();
    call(a, hub, b);
    call(b, hub, a);
    WAIT_WHILE(&world, a->calls < 1 || b->calls < 1);
    WAIT_WHILE(&world, !has_path(a, b, true) || !has_path(b, a, true));
    WAIT_WHILE(&world, tw_transport_relay(hub->transport).pipes != 2);
    assert_int_equal(world_peers(a), 2);
    assert_int_equal(world_peers(b), 2);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void call_fails(struct world_node *from, struct world_node *relay, struct world_node *to,
                       const char *word) {
    const uint32_t before = from->calls;
    call(from, relay, to);
    WAIT_WHILE(&world, from->calls == before);
    assert_int_not_equal(from->call_status, TW_OK);
    if (strstr(from->call_sentence, word) == NULL)
        fail_msg("no '%s': %s", word, from->call_sentence);
}

WORLD_TEST(relay_refuses_what_it_must_not_carry) {
    struct tw_error err;
    start();
    call_fails(a, hub, spare, "no link of its own");
    for (struct world_node *to = hub; to != NULL; to = to == hub ? a : NULL)
        assert_int_equal(
            tw_transport_call(a->transport, world_linked(a, hub), &to->identity.id, &err),
            TW_AGAIN);
    call_up(a, hub, b);
    /* a offers to relay, but its link to b is itself relayed */
    tw_transport_set_relay(a->transport, true, 0);
    assert_int_equal(tw_transport_call(b->transport, world_linked(b, a), &spare->identity.id, &err),
                     TW_AGAIN);
    tw_transport_set_relay(hub->transport, false, 0);
    WAIT_WHILE(&world, world_peer_of(a, b) >= 0 || world_peer_of(b, a) >= 0);
    call_fails(a, hub, b, "does not relay");
    assert_int_equal(tw_transport_relay(hub->transport).pipes, 0);
    assert_true(tw_transport_relay(hub->transport).refused >= 2);
}

WORLD_TEST(node_behind_a_relayed_link_cannot_be_called) {
    start();
    link_to(spare, hub);
    call_up(spare, hub, a); /* spare reaches a only through the hub */
    link_to(b, spare);
    call_fails(b, spare, a, "no link of its own");
}

WORLD_TEST(silent_node_costs_the_caller_ten_seconds_at_most) {
    start();
    b->on_frame = NULL;
    call(a, hub, b);
    WAIT_WHILE(&world, tw_transport_relay(hub->transport).calls != 1);
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++)
        hub->transport->pipes[i].deadline_us = tw_now_us();
    tw_transport_soon(hub->transport);
    WAIT_WHILE(&world, a->calls == 0);
    assert_int_not_equal(a->call_status, TW_OK);
    assert_non_null(strstr(a->call_sentence, "did not answer"));
    assert_int_equal(tw_transport_relay(hub->transport).calls, 0);
    assert_int_equal(hub->relays_ended, 0); /* the relay's pipe was never open */
}

WORLD_TEST(calls_of_one_node_are_bounded) {
    start();
    b->on_frame = NULL;
    for (unsigned i = 0; i < TW_RELAY_CALLS_PER_PEER + 2; i++) call(a, hub, b);
    WAIT_WHILE(&world, a->calls < 2);
    assert_int_equal(tw_transport_relay(hub->transport).calls, TW_RELAY_CALLS_PER_PEER);
    assert_non_null(strstr(a->call_sentence, "carries"));
}

WORLD_TEST(token_of_another_call_opens_nothing) {
    struct tw_error err;
    const uint8_t token[TW_RELAY_TOKEN_BYTES] = {1};
    start();
    b->on_frame = NULL;
    call(a, hub, b);
    WAIT_WHILE(&world, tw_transport_relay(hub->transport).calls != 1);
    assert_int_equal(
        tw_transport_answer(b->transport, world_linked(b, hub), &a->identity.id, token, &err),
        TW_OK);
    world_turn(&world, 50);
    assert_int_equal(tw_transport_relay(hub->transport).pipes, 0);
    assert_int_equal(tw_transport_relay(hub->transport).calls, 1);
    /* The right token is refused too if another node sends it. */
    link_to(spare, hub);
    assert_int_equal(tw_transport_answer(spare->transport, world_linked(spare, hub),
                                         &a->identity.id, hub->transport->pipes[0].token, &err),
                     TW_OK);
    world_turn(&world, 50);
    assert_int_equal(hub->relays_opened, 0);
}

/* ---- nodes outside, and budgets ------------------------------------------------------------ */

static const struct tw_id *wanted[2]; /* ids that the hub wants; NULL: nobody */
static uint64_t judged_bytes,
    budget; /* bytes that the hub's judge was told of, and may be told of */

static bool is_wanted(void *user, const struct tw_id *id) {
    for (unsigned i = 0; i < 2; i++)
        if (wanted[i] != NULL && tw_id_equal(wanted[i], id)) return true;
    return false;
}

static enum tw_status judge(void *user, const struct tw_id *caller, const struct tw_id *called,
                            uint64_t bytes, struct tw_error *err) {
    assert_true(tw_id_equal(caller, &a->identity.id) && tw_id_equal(called, &b->identity.id));
    judged_bytes += bytes;
    return judged_bytes < budget ? TW_OK : tw_fail(err, TW_AGAIN, "that was enough");
}

static void start_wanting(const struct world_node *node) {
    wanted[0] = wanted[1] = NULL;
    judged_bytes = 0;
    budget = UINT64_MAX;
    start();
    hub->transport->config.events.is_wanted = is_wanted;
    hub->transport->config.events.relay_judge = judge;
    if (node != NULL) wanted[0] = &node->identity.id;
}

WORLD_TEST(nothing_is_relayed_for_nodes_outside_alone) {
    start_wanting(NULL);
    call_fails(a, hub, b, "in the roster of this relay");
    wanted[0] = &b->identity.id;
    call_up(a, hub, b);
    /* b leaves the roster, and the pipe ends. */
    wanted[0] = NULL;
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) hub->transport->pipes[i].judge_us = 0;
    tw_transport_soon(hub->transport);
    WAIT_WHILE(&world, world_peer_of(a, b) >= 0 || world_peer_of(b, a) >= 0);
    assert_true(tw_transport_relay(hub->transport).cut >= 1);
}

/* Sends chunks until the hub has relayed nearly `most` bytes, and then for a moment. Returns the
 * bytes that it relayed. */
static uint64_t relay_much(unsigned chunks, uint64_t most) {
    const uint64_t before = tw_transport_relay(hub->transport).bytes;
    for (unsigned i = 0; i < chunks; i++) send_chunk(a, b);
    WAIT_WHILE(&world,
               tw_transport_relay(hub->transport).bytes - before + 2 * TW_TLS_RECORD_BYTES_MAX <
                   most);
    world_turn(&world, 100);
    return tw_transport_relay(hub->transport).bytes - before;
}

/* The rate of the clock is not tested, only the burst: a full bucket, and little more. */
WORLD_TEST(end_outside_gets_a_burst) {
    enum { MANY = 3 * TW_RELAY_OUTSIDE_NODE_BURST / TW_CHUNK_BYTES_MAX };
    start_wanting(b);
    call_up(a, hub, b);
    struct tw_slot *slot = &hub->transport->peers[world_linked(hub, a)];
    tw_rate_init(&slot->relayed, 1, TW_RELAY_OUTSIDE_NODE_BURST, tw_now_us()); /* no refill */
    assert_true(relay_much(MANY, TW_RELAY_OUTSIDE_NODE_BURST) <= TW_RELAY_OUTSIDE_NODE_BURST);
    assert_true(has_path(a, b, true)); /* it waits, and is not cut */
    assert_true(hub->transport->relay_outside.credit_millionths <
                (int64_t)(TW_RELAY_OUTSIDE_BURST - TW_RELAY_OUTSIDE_NODE_BURST / 2) * 1000000);
    /* In the roster it has no such rate. */
    wanted[1] = &a->identity.id;
    WAIT_WHILE(&world, b->chunks < MANY);
}

WORLD_TEST(all_nodes_outside_share_a_burst) {
    start_wanting(b);
    call_up(a, hub, b);
    tw_rate_init(&hub->transport->relay_outside, 1, 4 * TW_CHUNK_BYTES_MAX, tw_now_us());
    const uint64_t burst = 4 * TW_CHUNK_BYTES_MAX;
    assert_true(relay_much(16, burst) <= burst);
}

/* A pipe ends soon after its budget is used up, however fast it is. */
WORLD_TEST(pipe_ends_with_its_budget) {
    start_wanting(b);
    wanted[1] = &a->identity.id;
    call_up(a, hub, b);
    budget = judged_bytes + 8 * TW_CHUNK_BYTES_MAX;
    for (unsigned i = 0; i < 60; i++) send_chunk(a, b);
    WAIT_WHILE(&world, world_peer_of(a, b) >= 0 || world_peer_of(b, a) >= 0);
    assert_true(judged_bytes < budget + 2 * (TW_RELAY_JUDGE_BYTES + TW_TLS_RECORD_BYTES_MAX));
    assert_true(b->chunks < 12);
    assert_int_equal(tw_transport_relay(hub->transport).cut, 1);
    call_fails(a, hub, b, "that was enough");
}

/* ---- ends ---------------------------------------------------------------------------------- */

WORLD_TEST(both_ends_notice_a_dead_relay_and_take_another) {
    start();
    link_to(a, spare);
    link_to(b, spare);
    call_up(a, hub, b);
    world_stop(hub);
    WAIT_WHILE(&world, world_peer_of(a, b) >= 0 || world_peer_of(b, a) >= 0);
    call_up(a, spare, b);
    assert_int_equal(world_peers(a), 2);
}

WORLD_TEST(goodbye_arrives_through_the_relay) {
    start();
    call_up(a, hub, b);
    tw_transport_close(a->transport, world_linked(a, b), TW_AGAIN, "enough of this");
    WAIT_WHILE(&world, world_peer_of(b, a) >= 0);
    assert_non_null(strstr(b->down_sentence, "enough of this"));
    WAIT_WHILE(&world, tw_transport_relay(hub->transport).pipes != 0 || hub->relays_ended < 2);
}

WORLD_TEST(pipes_end_with_the_link_of_an_end) {
    start();
    call_up(a, hub, b);
    tw_transport_close(hub->transport, world_linked(hub, a), TW_AGAIN, "revoked, say");
    WAIT_WHILE(&world, world_peer_of(b, a) >= 0 || world_peer_of(a, b) >= 0);
    WAIT_WHILE(&world, hub->relays_ended < 2);
    assert_int_equal(tw_transport_relay(hub->transport).pipes, 0);
    assert_int_equal(world_peers(b), 1);
}

WORLD_TEST(resting_relay_carries_nothing) {
    start();
    call_up(a, hub, b);
    tw_transport_rest(hub->transport, "its quota is used up");
    WAIT_WHILE(&world, world_peers(a) > 0 || world_peers(b) > 0);
    assert_int_equal(tw_transport_relay(hub->transport).pipes, 0);
}

/* ---- direct and relayed -------------------------------------------------------------------- */

/* b listens from now on: before, a could reach it only through the hub. */
static void direct_link_replaces_a_relayed_one(struct world_node *low, struct world_node *high,
                                               bool is_low_dialler) {
    tw_transport_set_relay(hub->transport, true, 0);
    low->on_frame = high->on_frame = answer;
    link_to(low, hub);
    link_to(high, hub);
    call_up(low, hub, high);
    world_dial(is_low_dialler ? low : high, is_low_dialler ? high : low);
    WAIT_WHILE(&world, !has_path(low, high, false) || !has_path(high, low, false));
    WAIT_WHILE(&world, tw_transport_relay(hub->transport).pipes != 0);
    assert_int_equal(low->downs, 1);
    assert_int_equal(high->downs, 1);
    /* A call has no effect while the direct link exists. */
    const uint32_t calls = low->calls;
    struct tw_error err;
    if (tw_transport_call(low->transport, world_linked(low, hub), &high->identity.id, &err) ==
        TW_OK) {
        world_turn(&world, 50);
        assert_true(low->calls <= calls + 1);
    }
    const uint8_t token[TW_RELAY_TOKEN_BYTES] = {1};
    assert_int_equal(tw_transport_answer(high->transport, world_linked(high, hub),
                                         &low->identity.id, token, &err),
                     TW_AGAIN);
    assert_true(has_path(low, high, false) && has_path(high, low, false));
    assert_int_equal(low->downs, 1);
}

WORLD_TEST(lower_id_replaces_a_relayed_link) {
    hub = world_start(&world, 2, NULL);
    direct_link_replaces_a_relayed_one(world_start(&world, 0, NULL), world_start(&world, 1, NULL),
                                       true);
}

WORLD_TEST(higher_id_replaces_a_relayed_link) {
    hub = world_start(&world, 2, NULL);
    direct_link_replaces_a_relayed_one(world_start(&world, 0, NULL), world_start(&world, 1, NULL),
                                       false);
}

/* Returns the link of a direct dial that has sent HELLO and waits for the reply, or NULL. */
static struct tw_link *greeting_of(const struct world_node *node) {
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) {
        struct tw_conn *conn = node->transport->conns[i];
        if (conn == NULL || !conn->is_dialled || conn->is_relayed || conn->peer >= 0) continue;
        if (conn->role == TW_ROLE_CONTROL && conn->has_spoken) return &conn->link;
    }
    return NULL;
}

/* GOODBYE of the relayed link and HELLO of the direct one arrive in the same turn of the loop.
 * world.c asserts that the end of the old link is reported first. */
WORLD_TEST(end_of_a_link_is_told_before_its_successor) {
    struct tw_link *direct;
    hub = world_start(&world, 2, NULL);
    struct world_node *low = world_start(&world, 0, NULL), *high = world_start(&world, 1, NULL);
    low->on_frame = high->on_frame = answer;
    tw_transport_set_relay(hub->transport, true, 0);
    link_to(low, hub);
    link_to(high, hub);
    call_up(low, hub, high);
    const int old = world_peer_of(low, high);
    world_dial(low, high);
    WAIT_WHILE(&world, (direct = greeting_of(low)) == NULL);
    tw_link_pause(direct);
    world_hold(low, old, false);
    world_hold(low, old, true);
    WAIT_WHILE(&world, high->downs == 0);
    world_turn(&world, 50);
    world_let_go(low, old, false);
    tw_link_resume(direct);
    WAIT_WHILE(&world, !has_path(low, high, false) || !has_path(high, low, false));
    assert_int_equal(low->downs, 1);
}

/* ---- caps ---------------------------------------------------------------------------------- */

static uint64_t carry_us(unsigned chunks) {
    const uint64_t begin_us = uv_hrtime() / 1000;
    const uint32_t before = b->chunks;
    for (unsigned i = 0; i < chunks; i++) send_chunk(a, b);
    WAIT_WHILE(&world, b->chunks < before + chunks);
    return uv_hrtime() / 1000 - begin_us;
}

WORLD_TEST(cap_of_the_relay_is_kept) {
    enum { RATE = 1000 * 1000 };
    start();
    call_up(a, hub, b);
    tw_transport_set_relay(hub->transport, true, RATE);
    const uint64_t before = tw_transport_relay(hub->transport).bytes;
    const uint64_t took_us = carry_us(4);
    const uint64_t bytes = tw_transport_relay(hub->transport).bytes - before;
    assert_true(bytes > 4 * sizeof(payload));
    assert_true(bytes <=
                RATE * took_us / 1000000 + 3 * TW_TLS_RECORD_BYTES_MAX + tw_rate_burst_bytes(RATE));
    assert_true(tw_transport_relay(hub->transport).bytes_per_s == RATE);
    tw_transport_set_upload(hub->transport, RATE); /* relaying gets half of the upload cap */
    assert_true(tw_transport_relay(hub->transport).bytes_per_s == RATE / 2);
}

/* If the receiver does not read, the sender stops, and the relay buffers a bounded number of
 * bytes. */
WORLD_TEST(slow_end_holds_the_other_back) {
    start();
    call_up(a, hub, b);
    world_hold(b, world_linked(b, a), true);
    for (unsigned i = 0; i < 200; i++) send_chunk(a, b);
    for (unsigned i = 0; i < 20; i++) world_turn(&world, 20);
    size_t held = 0;
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        const struct tw_pipe *pipe = &hub->transport->pipes[i];
        for (unsigned k = 0; k < 2 && pipe->state == TW_PIPE_OPEN; k++)
            if (held < tw_link_queued(&pipe->ends[k]->link))
                held = tw_link_queued(&pipe->ends[k]->link);
    }
    assert_true(held > TW_RELAY_QUEUE_BYTES / 2 && held <= TW_RELAY_QUEUE_BYTES);
    assert_true(a->released < 200);
    /* The control connection has its own pipe, so it still works. */
    tw_transport_send_control(a->transport, world_linked(a, b), TW_MSG_STATUS, payload, 100);
    WAIT_WHILE(&world, b->frames == 0);
    world_let_go(b, world_linked(b, a), true);
    WAIT_WHILE(&world, b->chunks < 200);
}

/* ---- a relay that lies --------------------------------------------------------------------- */

/* Flips a bit of the bytes that the relay buffers. Returns false if it buffers too few. */
static bool flip(struct world_node *relay) {
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        struct tw_pipe *pipe = &relay->transport->pipes[i];
        for (unsigned k = 0; k < 2 && pipe->state == TW_PIPE_OPEN; k++) {
            struct tw_link *link = &pipe->ends[k]->link;
            if (tw_link_queued(link) < 1000) continue;
            link->queue[link->queue_begin + 500] ^= 1;
            return true;
        }
    }
    return false;
}

WORLD_TEST(tampering_breaks_that_link_alone) {
    start();
    call_up(a, hub, b);
    /* The relay is so slow that bytes wait in its queue. */
    tw_transport_set_relay(hub->transport, true, 300 * 1000);
    for (unsigned i = 0; i < 8; i++) send_chunk(a, b);
    WAIT_WHILE(&world, !flip(hub));
    WAIT_WHILE(&world, world_peer_of(b, a) >= 0 || world_peer_of(a, b) >= 0);
    assert_int_equal(b->down_reason, TW_TLS);
    assert_int_equal(world_peers(a), 1);
    assert_int_equal(world_peers(b), 1);
    /* No byte of the changed chunk is accepted, and the sender is not blamed for the relay's
     * tampering. */
    assert_true(b->chunk_bytes % sizeof(payload) == 0);
    assert_int_equal(tw_bans_left_s(tw_transport_bans(b->transport), &a->identity.id, 1), 0);
    for (unsigned i = 0; i < TW_BANS_MAX; i++)
        assert_int_equal(tw_transport_bans(b->transport)->rows[i].offences, 0);
}

/* Searches all bytes that the relay buffers for `text`, which a sends. Adds their number to
 * *held. */
static bool holds_text(const struct world_node *relay, const char *text, size_t *held) {
    for (unsigned i = 0; i < TW_RELAY_PIPES_MAX; i++) {
        const struct tw_pipe *pipe = &relay->transport->pipes[i];
        for (unsigned k = 0; k < 2 && pipe->state == TW_PIPE_OPEN; k++) {
            const struct tw_link *link = &pipe->ends[k]->link;
            *held += tw_link_queued(link);
            if (memmem(link->queue, link->queue_end, text, strlen(text)) != NULL) return true;
        }
    }
    return false;
}

WORLD_TEST(relay_sees_no_plaintext) {
    static const char text[] = "In the beginning";
    size_t held = 0;
    start();
    call_up(a, hub, b);
    for (size_t i = 0; i + sizeof(text) < sizeof(payload); i += sizeof(text))
        memcpy(payload + i, text, sizeof(text));
    tw_transport_set_relay(hub->transport, true, 300 * 1000);
    for (unsigned i = 0; i < 3; i++) send_chunk(a, b);
    while (b->chunks < 3) {
        assert_false(holds_text(hub, text, &held));
        assert_false(holds_text(hub, "TWF1", &held));
        world_turn(&world, 0);
    }
    assert_true(held > 100 * 1000);
    memset(payload, 0, sizeof(payload));
}
