/* Tests of daemon/net/peer.c: payloads are sent before background chunks, and neither is
 * starved. */
#include "tests/daemon/net/world.h"
#include "tests/test.h"

enum { CHUNK = TW_CHUNK_BYTES_MAX, UPLOAD_CAP = 5 * 1000 * 1000 };

static const uint8_t bytes[CHUNK];

static void with_upload_cap(struct tw_transport_config *config) {
    config->upload_bytes_per_s = UPLOAD_CAP;
}

static bool two_have_bulk(struct world *w) {
    return world_has_bulk(&w->nodes[0]) && world_has_bulk(&w->nodes[1]);
}

static bool three_have_bulk(struct world *w) {
    return world_peers(&w->nodes[0]) == 2 && two_have_bulk(w) && world_has_bulk(&w->nodes[2]);
}

enum { PAYLOAD = 1, BACKGROUND = 9 }; /* first byte of the payload id of a chunk */

static void send_chunks(struct world_node *from, const struct world_node *to, uint8_t name,
                        uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const struct tw_chunk chunk = {.payload = {{name}},
                                       .size = CHUNK,
                                       .bytes = bytes,
                                       .is_background = name == BACKGROUND};
        assert_true(tw_transport_send_chunk(from->transport, world_linked(from, to), &chunk));
    }
}

/* Counts of received background and payload chunks; background chunks received while payloads
 * were still due; and payload chunks still due. */
static uint32_t background_in, payloads_in, background_between, payloads_awaited;

static void tell_apart(struct world_node *node, uint16_t peer, bool is_bulk,
                       const struct tw_frame *frame) {
    if (!is_bulk) return;
    if (frame->body[0] != BACKGROUND) {
        payloads_in++;
        return;
    }
    background_in++;
    background_between += payloads_in > 0 && payloads_in < payloads_awaited;
}

static void count_apart(uint32_t awaited) {
    background_in = payloads_in = background_between = 0;
    payloads_awaited = awaited;
}

static void two_meet(struct world_node *a, struct world_node *b) {
    world_dial(a, b);
    world_run(&world, two_have_bulk);
    b->on_frame = tell_apart;
}

static void three_meet(struct world_node *a, struct world_node *b, struct world_node *c) {
    world_dial(a, b);
    world_dial(c, a);
    world_run(&world, three_have_bulk);
    b->on_frame = c->on_frame = tell_apart;
}

WORLD_TEST(background_waits_behind_payloads_of_another_peer) {
    struct world_node *a = world_start(&world, 0, with_upload_cap);
    struct world_node *b = world_start(&world, 1, NULL), *c = world_start(&world, 2, NULL);
    three_meet(a, b, c);
    count_apart(8);
    send_chunks(a, b, BACKGROUND, 16);
    WAIT_WHILE(&world, background_in < 2);
    send_chunks(a, c, PAYLOAD, 8);
    WAIT_WHILE(&world, payloads_in < 8);
    assert_true(background_in < 16); /* else the test delayed no background chunk */
    /* one may have been sent before the payloads were queued */
    assert_true(background_between <= 1);
    WAIT_WHILE(&world, background_in < 16);
    assert_int_equal(a->released, 24);
}

WORLD_TEST(payload_waits_for_one_background_chunk_of_its_connection) {
    struct world_node *a = world_start(&world, 0, with_upload_cap);
    struct world_node *b = world_start(&world, 1, NULL);
    two_meet(a, b);
    count_apart(4);
    send_chunks(a, b, BACKGROUND, 16);
    WAIT_WHILE(&world, background_in < 2);
    const uint32_t released = a->released;
    send_chunks(a, b, PAYLOAD, 4);
    WAIT_WHILE(&world, payloads_in < 1);
    assert_true(background_in <= released); /* only the chunks that were being sent already */
    WAIT_WHILE(&world, background_in < 16 || payloads_in < 4);
    assert_int_equal(background_between, 0);
}

static void with_impatience(struct tw_transport_config *config) {
    config->upload_bytes_per_s = UPLOAD_CAP;
    config->background_us = 100 * 1000;
}

WORLD_TEST(background_does_not_starve) {
    struct world_node *a = world_start(&world, 0, with_impatience);
    struct world_node *b = world_start(&world, 1, NULL), *c = world_start(&world, 2, NULL);
    three_meet(a, b, c);
    count_apart(UINT32_MAX);
    send_chunks(a, c, PAYLOAD, 8);
    WAIT_WHILE(&world, payloads_in < 1);
    send_chunks(a, b, BACKGROUND, 2);
    send_chunks(a, c, BACKGROUND, 2); /* these wait behind payloads of their own connection */
    /* Payloads never run out, but a background chunk is sent now and then. */
    while (background_in < 4 && payloads_in < 200) {
        struct tw_peer_net net;
        assert_true(tw_transport_peer(a->transport, world_linked(a, c), &net));
        if (net.chunks_queued < 4) send_chunks(a, c, PAYLOAD, 4);
        world_turn(&world, 1);
    }
    assert_int_equal(background_in, 4);
    assert_true(payloads_in >= 4);
}

WORLD_TEST(unread_payload_does_not_hold_up_the_background) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, NULL), *c = world_start(&world, 2, NULL);
    three_meet(a, b, c);
    count_apart(UINT32_MAX);
    world_hold(c, world_linked(c, a), true);
    send_chunks(a, c, PAYLOAD, 200); /* 50 MiB: more than the kernel's buffers hold */
    send_chunks(a, b, BACKGROUND, 40);
    WAIT_WHILE(&world, background_in < 40);
    assert_int_equal(payloads_in, 0);
}

WORLD_TEST(background_queue_has_a_bound_and_is_given_back) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    two_meet(a, b);
    send_chunks(a, b, BACKGROUND, TW_BACKGROUND_QUEUE_CHUNKS);
    struct tw_peer_net net;
    assert_true(tw_transport_peer(a->transport, world_linked(a, b), &net));
    assert_int_equal(net.background_queued, TW_BACKGROUND_QUEUE_CHUNKS);
    assert_int_equal(net.chunks_queued, 0);
    const struct tw_chunk chunk = {.size = 1, .bytes = bytes, .is_background = true};
    assert_false(tw_transport_send_chunk(a->transport, world_linked(a, b), &chunk));
    WAIT_WHILE(&world, a->downs == 0);
    assert_int_equal(a->down_reason, TW_LIMIT);
    assert_int_equal(a->unsent, TW_BACKGROUND_QUEUE_CHUNKS);
}

WORLD_TEST(dropped_background_is_not_read_any_more) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    two_meet(a, b);
    count_apart(0);
    send_chunks(a, b, BACKGROUND, 8);
    send_chunks(a, b, PAYLOAD, 1);
    const struct tw_id dropped = {{BACKGROUND}};
    tw_transport_drop(a->transport, &dropped);
    WAIT_WHILE(&world, payloads_in < 1);
    world_turn(&world, 20);
    assert_int_equal(background_in, 0);
    assert_int_equal(a->released, 1);
}

WORLD_TEST(chunk_that_waits_is_known) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    two_meet(a, b);
    const uint16_t peer = world_linked(a, b);
    const struct tw_chunk chunk = {.payload = {{7}}, .idx = 3, .size = CHUNK, .bytes = bytes};
    const struct tw_id other = {{8}};
    assert_false(tw_transport_has_chunk(a->transport, peer, &chunk.payload, 3));
    assert_true(tw_transport_send_chunk(a->transport, peer, &chunk));
    assert_true(tw_transport_has_chunk(a->transport, peer, &chunk.payload, 3));
    assert_false(tw_transport_has_chunk(a->transport, peer, &chunk.payload, 2));
    assert_false(tw_transport_has_chunk(a->transport, peer, &other, 3));
    WAIT_WHILE(&world, a->released == 0);
    assert_false(tw_transport_has_chunk(a->transport, peer, &chunk.payload, 3));
}
