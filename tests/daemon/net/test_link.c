/* Attacks on a link by peers and strangers. The victim is a transport. The attacker is a bare TCP
 * client, or a bare link with a valid key that breaks the rules. */
#include "base/bytes.h"
#include "daemon/net/link.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static struct world_node *victim;

static void with_short_handshake(struct tw_transport_config *config) {
    config->handshake_us = 200 * 1000;
    config->listen_count = 2;
    (void)snprintf(config->listen[1], TW_ADDR_BYTES, "[::1]:0");
}

static int setup(void **state) {
    world_init(&world);
    victim = world_start(&world, 3, with_short_handshake);
    return 0;
}

#define FACT(name) TEST_IN(setup, world_tear_down, name)

/* Checks that the victim still works. */
static void victim_is_well(void) {
    struct world_node *friend = &world.nodes[0];
    if (friend->transport == NULL) (void)world_start(&world, 0, NULL);
    const uint32_t ups = victim->ups;
    char address[TW_ADDR_BYTES];
    struct tw_error err;
    (void)snprintf(address, sizeof(address), "[::1]:%u",
                   (unsigned)tw_transport_port(victim->transport, 1));
    assert_int_equal(tw_transport_connect(friend->transport, address, NULL, &err), TW_OK);
    WAIT_WHILE(&world, victim->ups == ups);
}

/* ---- strangers ----------------------------------------------------------------------------- */

FACT(garbage_before_tls_is_closed_with_a_sentence) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    struct world_raw raw;
    world_raw_open(&raw, victim, http, sizeof(http) - 1);
    WAIT_WHILE(&world, !raw.is_over);
    assert_int_equal(victim->refusals, 1);
    assert_int_equal(victim->refused_reason, TW_TLS);
    assert_non_null(strstr(victim->refused_sentence, "does not speak TLS 1.3"));
    world_raw_close(&raw);
    victim_is_well();
}

FACT(silent_connection_is_closed_in_time) {
    struct world_raw raw;
    world_raw_open(&raw, victim, NULL, 0);
    WAIT_WHILE(&world, !raw.is_over);
    assert_int_equal(victim->refusals, 1);
    assert_non_null(strstr(victim->refused_sentence, "no complete handshake"));
    world_raw_close(&raw);
}

FACT(half_a_handshake_is_closed_in_time) {
    struct tw_tls_context context;
    struct tw_tls tls;
    uint8_t hello[2048];
    assert_int_equal(tw_tls_context_init(&context, &world.nodes[1].identity, NULL), TW_OK);
    assert_int_equal(tw_tls_init(&tls, &context, true, NULL, NULL), TW_OK);
    assert_int_equal(tw_tls_handshake(&tls, NULL), TW_AGAIN);
    const size_t size = tw_tls_take(&tls, hello, sizeof(hello));
    for (size_t cut = 0; cut <= size; cut += size / 7) {
        struct world_raw raw;
        world_raw_open(&raw, victim, hello, (uint32_t)(cut > 0 ? cut : 1));
        WAIT_WHILE(&world, !raw.is_over);
        world_raw_close(&raw);
        (void)uv_run(&world.loop, UV_RUN_NOWAIT);
    }
    assert_true(victim->refusals >= 7);
    assert_int_equal(victim->ups, 0);
    tw_tls_deinit(&tls);
    tw_tls_context_deinit(&context);
    victim_is_well();
}

FACT(connection_that_leaves_at_once_is_no_event) {
    for (unsigned i = 0; i < 10; i++) {
        struct world_raw raw;
        world_raw_open(&raw, victim, "\x16", i % 2);
        world_turn(&world, 1);
        world_raw_close(&raw);
        world_turn(&world, 1);
    }
    victim_is_well();
}

FACT(flood_of_connections_is_bounded_and_keeps_no_member_out) {
    enum { FLOOD = 100 };
    static struct world_raw raws[FLOOD];
    for (unsigned i = 0; i < FLOOD; i++) world_raw_open(&raws[i], victim, NULL, 0);
    WAIT_WHILE(&world, victim->limit_refusals < FLOOD / 4); /* refused before TLS */
    victim_is_well(); /* another host can link while the flood holds its connections */
    for (unsigned i = 0; i < FLOOD; i++) {
        WAIT_WHILE(&world, !raws[i].is_over);
        world_raw_close(&raws[i]);
    }
}

/* ---- a link that breaks the rules ---------------------------------------------------------- */

struct rogue {
    struct tw_link link; /* first member */
    uv_connect_t connect;
    struct tw_tls_context context;
    struct world_node *node; /* node whose key the rogue uses */
    bool says_hello, is_secured, is_failed, is_gone, is_heard, is_admitted;
    struct tw_goodbye heard;
    uint32_t frames;
};

static struct rogue rogue;

/* Sends bytes that tw_link_send would never produce. */
static void rogue_say(const void *bytes, size_t size) {
    struct tw_link *link = &rogue.link;
    const uint8_t *from = bytes;
    while (size > 0 && link->state < TW_LINK_DRAINING) {
        const size_t piece = size < 1024 ? size : 1024;
        assert_int_equal(tw_tls_write(&link->tls, from, piece, NULL), TW_OK);
        from += piece;
        size -= piece;
    }
    tw_link_pump(link); /* flushes */
}

static void rogue_frame(uint16_t kind, const void *body, uint32_t size) {
    static uint8_t bytes[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    tw_frame_header(bytes, kind, 0, body, size);
    if (size > 0) memcpy(bytes + TW_FRAME_HEADER_BYTES, body, size);
    rogue_say(bytes, TW_FRAME_HEADER_BYTES + size);
}

static void rogue_hello(void) {
    uint8_t ekm[TW_TLS_EXPORT_BYTES], body[TW_HELLO_BYTES_MAX];
    struct tw_hello hello = {.version_min = 1, .version_max = 1, .boot = 1};
    hello.run = world.run;
    hello.id = rogue.node->identity.id;
    assert_int_equal(tw_tls_export(&rogue.link.tls, TW_HELLO_EXPORT, ekm, NULL), TW_OK);
    tw_hello_prove(&hello, &world.secrets.list[0], ekm);
    rogue_frame(TW_FRAME_HELLO, body, tw_hello_encode(&hello, body));
}

static void on_secured(struct tw_link *link) {
    rogue.is_secured = true;
}

static void on_frame(struct tw_link *link, const struct tw_frame *frame) {
    rogue.frames++;
    if (frame->kind == TW_FRAME_HELLO) {
        assert_int_equal(tw_link_admit(link, TW_ROLE_CONTROL, NULL), TW_OK);
        rogue.is_admitted = true;
    } else if (frame->kind == TW_FRAME_GOODBYE) {
        const enum tw_status status =
            tw_goodbye_decode(frame->body, frame->body_bytes, &rogue.heard, NULL);
        assert_int_equal(status, TW_OK);
        rogue.is_heard = true;
    }
}

static void on_nothing(struct tw_link *link) {
}

static void on_failed(struct tw_link *link) {
    rogue.is_failed = true;
}

static void on_spent(struct tw_link *link, size_t bytes) {
}

static void on_gone(struct tw_link *link) {
    rogue.is_gone = true;
}

static const struct tw_link_events events = {
    .secured = on_secured,
    .frame = on_frame,
    .writable = on_nothing,
    .failed = on_failed,
    .spent = on_spent,
    .gone = on_gone,
};

static void on_connected(uv_connect_t *connect, int code) {
    assert_int_equal(code, 0);
    assert_int_equal(tw_link_secure(&rogue.link, &rogue.context, true, NULL, NULL), TW_OK);
}

/* Opens a TLS link to the victim with this node's key. */
static void rogue_open_as(struct world_node *node) {
    struct sockaddr_in address;
    memset(&rogue, 0, sizeof(rogue));
    rogue.node = node;
    assert_int_equal(tw_tls_context_init(&rogue.context, &rogue.node->identity, NULL), TW_OK);
    assert_int_equal(tw_link_init(&rogue.link, &world.loop, &events, NULL), TW_OK);
    assert_int_equal(uv_ip4_addr("127.0.0.1", tw_transport_port(victim->transport, 0), &address),
                     0);
    assert_int_equal(
        uv_tcp_connect(&rogue.connect, &rogue.link.tcp, (struct sockaddr *)&address, on_connected),
        0);
    WAIT_WHILE(&world, !rogue.is_secured);
}

static void rogue_open(void) {
    rogue_open_as(&world.nodes[1]);
}

static void rogue_enter(void) {
    rogue_open();
    rogue_hello();
    WAIT_WHILE(&world, !rogue.is_admitted);
}

static void rogue_close(void) {
    tw_link_abort(&rogue.link);
    WAIT_WHILE(&world, !rogue.is_gone);
    tw_tls_context_deinit(&rogue.context);
}

static void rogue_is_refused(enum tw_status status) {
    WAIT_WHILE(&world, !rogue.is_failed && !rogue.is_heard);
    if (rogue.is_heard) assert_int_equal(rogue.heard.status, status);
    WAIT_WHILE(&world, !rogue.is_failed);
    rogue_close();
    if (victim->refusals > 0) assert_int_equal(victim->refused_reason, status);
    if (victim->downs > 0) assert_int_equal(victim->down_reason, status);
    assert_true(victim->refusals + victim->downs > 0);
    assert_int_equal(world_peers(victim), 0);
    victim_is_well();
}

FACT(first_frame_must_be_hello) {
    rogue_open();
    rogue_frame(TW_MSG_STATUS, "x", 1);
    rogue_is_refused(TW_PROTO);
}

FACT(giant_length_before_admission_is_refused_by_its_header) {
    uint8_t header[TW_FRAME_HEADER_BYTES] = "TWF1\x01";
    tw_put_u16(header + 6, TW_FRAME_HELLO);
    tw_put_u32(header + 8, UINT32_MAX);
    rogue_open();
    rogue_say(header, sizeof(header));
    rogue_is_refused(TW_LIMIT);
}

FACT(giant_length_after_admission_is_refused_by_its_header) {
    uint8_t header[TW_FRAME_HEADER_BYTES] = "TWF1\x01";
    tw_put_u16(header + 6, TW_MSG_STATUS);
    tw_put_u32(header + 8, 1u << 30);
    rogue_enter();
    rogue_say(header, sizeof(header));
    rogue_is_refused(TW_LIMIT);
}

FACT(damaged_frame_is_refused) {
    uint8_t bytes[TW_FRAME_HEADER_BYTES + 4] = {0};
    tw_frame_header(bytes, TW_MSG_STATUS, 0, (const uint8_t *)"abcd", 4);
    memcpy(bytes + TW_FRAME_HEADER_BYTES, "abce", 4);
    rogue_enter();
    rogue_say(bytes, sizeof(bytes));
    rogue_is_refused(TW_CORRUPT);
}

FACT(endless_greeting_is_refused) {
    rogue_open();
    /* Before its HELLO is complete, a peer may send GOODBYE. This one sends incomplete frames
     * instead, and must be refused at 16 KiB. */
    uint8_t header[TW_FRAME_HEADER_BYTES] = "TWF1\x01";
    tw_put_u16(header + 6, TW_FRAME_HELLO);
    tw_put_u32(header + 8, TW_HELLO_BYTES_MAX);
    rogue_say(header, sizeof(header));
    static uint8_t zeros[64 * 1024];
    rogue_say(zeros, sizeof(zeros));
    rogue_is_refused(TW_CORRUPT);
}

FACT(second_hello_is_refused) {
    rogue_enter();
    rogue_hello();
    rogue_is_refused(TW_PROTO);
}

FACT(chunk_on_control_is_refused) {
    uint8_t body[TW_CHUNK_HEADER_BYTES + 1] = {0};
    rogue_enter();
    rogue_frame(TW_FRAME_CHUNK, body, sizeof(body));
    rogue_is_refused(TW_PROTO);
}

FACT(unknown_kinds_are_skipped) {
    rogue_enter();
    static const uint8_t body[1000];
    rogue_frame(0xff, body, sizeof(body));
    rogue_frame(0x7777, body, sizeof(body));
    rogue_frame(TW_MSG_LEAVE, body, 4);
    WAIT_WHILE(&world, victim->frames < 1);
    assert_int_equal(victim->last_kind, TW_MSG_LEAVE);
    assert_int_equal(victim->downs, 0);
    rogue_close();
}

FACT(frames_that_come_with_the_hello_are_not_lost) {
    rogue_open();
    rogue_hello();
    for (unsigned i = 0; i < 5; i++) rogue_frame(TW_MSG_LEAVE, "abcd", 4);
    WAIT_WHILE(&world, victim->frames < 5);
    assert_memory_equal(victim->last_body, "abcd", 4);
    rogue_close();
}

FACT(torn_connection_is_a_peer_down) {
    rogue_enter();
    WAIT_WHILE(&world, victim->ups < 1);
    rogue_close();
    WAIT_WHILE(&world, victim->downs < 1);
    assert_int_equal(victim->down_reason, TW_IO);
    victim_is_well();
}

/* ---- which of two links stays -------------------------------------------------------------- */

static void dialled_by_the_victim(struct world_node *node) {
    world_dial(victim, node);
    WAIT_WHILE(&world, victim->ups < 1 || node->ups < 1);
}

FACT(higher_id_keeps_the_link_it_dialled) {
    struct world_node *lower = world_start(&world, 1, NULL);
    dialled_by_the_victim(lower);
    rogue_open_as(lower);
    /* An honest node with the lower id may send HELLO before it sees the other connection. */
    rogue_hello();
    WAIT_WHILE(&world, !rogue.is_heard);
    assert_int_equal(rogue.heard.status, TW_AGAIN);
    assert_int_equal(victim->downs + lower->downs, 0);
    rogue_close();
}

FACT(lower_id_obeys_a_hello_of_the_higher) {
    struct world_node *higher = world_start(&world, 5, NULL);
    dialled_by_the_victim(higher);
    rogue_open_as(higher);
    rogue_hello();
    WAIT_WHILE(&world, !rogue.is_admitted || victim->ups < 2);
    assert_int_equal(victim->downs, 1);
    assert_int_equal(world_peers(victim), 1);
    rogue_close();
}

/* ---- cost of a reader that stops ----------------------------------------------------------- */

FACT(sender_holds_no_more_than_its_bound_for_a_reader_that_stops) {
    static uint8_t body[16 * 1024];
    rogue_enter();
    (void)uv_read_stop((uv_stream_t *)&rogue.link.tcp); /* reads no more */
    rogue.link.is_reading = false;
    WAIT_WHILE(&world, world_peers(victim) < 1);
    const int peer = world_peer_of(victim, rogue.node);
    assert_true(peer >= 0);
    for (unsigned i = 0; i < 4096 && victim->downs == 0; i++) {
        struct tw_peer_net net;
        tw_transport_send_control(victim->transport, (uint16_t)peer, TW_MSG_LEAVE, body,
                                  sizeof(body));
        (void)uv_run(&world.loop, UV_RUN_NOWAIT);
        if (!tw_transport_peer(victim->transport, (uint16_t)peer, &net)) continue;
        assert_true(net.control_queued_bytes <= TW_CONTROL_QUEUE_BYTES);
    }
    assert_int_equal(victim->downs, 1);
    assert_int_equal(victim->down_reason, TW_LIMIT);
    rogue_close();
}
