/* Tests of the resources that one peer may use: messages, time for a frame, protocol violations. */
#include <time.h>

#include "daemon/net/bans.h"
#include "daemon/net/link.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

enum { SECOND_US = 1000 * 1000 };

static void pair_up(struct world_node *from, struct world_node *to) {
    world_dial(from, to);
    WAIT_WHILE(&world, world_peer_of(from, to) < 0 || world_peer_of(to, from) < 0);
}

/* ---- messages ------------------------------------------------------------------------------ */

enum { FLOOD = 200, AT_ONCE = TW_MESSAGES_BURST / 100 }; /* a PEERS message counts as 100 */

static uint32_t frames_of_the_friend;
static const struct world_node *friend;

static void count_friend(struct world_node *node, uint16_t peer, bool is_bulk,
                         const struct tw_frame *frame) {
    frames_of_the_friend += tw_id_equal(&node->records[peer].id, &friend->identity.id);
}

WORLD_TEST(flood_of_messages_waits_with_itself) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    struct world_node *c = world_start(&world, 2, NULL);
    friend = c;
    frames_of_the_friend = 0;
    b->on_frame = count_friend;
    pair_up(a, b);
    pair_up(c, b);
    for (unsigned i = 0; i < FLOOD; i++)
        tw_transport_send_control(a->transport, world_linked(a, b), TW_MSG_PEERS, NULL, 0);
    WAIT_WHILE(&world, b->frames < AT_ONCE);
    tw_transport_send_control(c->transport, world_linked(c, b), TW_MSG_STATUS, NULL, 0);
    WAIT_WHILE(&world, frames_of_the_friend == 0);
    assert_true(b->frames <
                FLOOD); /* the frames of the honest peer did not wait until the flood ended */
    WAIT_WHILE(&world, b->frames < FLOOD + 1);
    assert_int_equal(b->frames, FLOOD + 1); /* and none of its frames was lost */
    assert_int_equal(a->downs + b->downs, 0);
}

/* ---- bans ---------------------------------------------------------------------------------- */

static uint32_t banned_by(const struct world_node *node) {
    const struct tw_bans *bans = tw_transport_bans(node->transport);
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_BANS_MAX; i++)
        count += tw_bans_left_s(bans, &bans->rows[i].id, (uint64_t)time(NULL)) > 0;
    return count;
}

/* `by` reports `times` violations by `node`. The two link again after each. */
static void breach(struct world_node *by, struct world_node *node, unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        pair_up(node, by);
        const uint32_t downs = node->downs;
        tw_transport_blame(by->transport, world_linked(by, node), TW_PROTO,
                           "a chunk without a header");
        WAIT_WHILE(&world, node->downs == downs || world_peer_of(by, node) >= 0);
    }
}

static void must_be_refused(struct world_node *from, const struct world_node *to) {
    const uint32_t dials = from->dials;
    world_dial(from, to);
    WAIT_WHILE(&world, from->dials == dials);
    assert_int_equal(from->dial_cause, TW_DIAL_BANNED);
    assert_int_equal(from->dial_status, TW_BANNED);
    assert_non_null(strstr(from->dial_sentence, "UTC"));
}

WORLD_TEST(three_breaches_ban_dials_both_ways) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    struct world_node *c = world_start(&world, 2, NULL);
    pair_up(c, b);
    breach(b, a, TW_BAN_OFFENCES - 1);
    assert_int_equal(banned_by(b), 0);
    breach(b, a, 1);
    assert_int_equal(banned_by(b), 1);
    assert_int_equal(banned_by(a), 0); /* another node's report of a violation is no proof */
    must_be_refused(a, b);
    must_be_refused(b, a);
    assert_true(world_peer_of(b, c) >= 0); /* a node at the same host keeps its link */
}

WORLD_TEST(ban_outlives_a_restart) {
    static char text[TW_BANS_TEXT_MAX];
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    breach(b, a, TW_BAN_OFFENCES);
    const size_t size = tw_bans_encode(tw_transport_bans(b->transport), text);
    world_stop(b);
    WAIT_WHILE(&world, world.closed != 0);
    (void)world_start(&world, 1, NULL);
    assert_int_equal(tw_bans_decode(tw_transport_bans(b->transport), text, size), 0);
    must_be_refused(a, b);
}

WORLD_TEST(ends_that_others_can_cause_are_no_breach) {
    static const enum tw_status reasons[] = {TW_OK, TW_AGAIN, TW_IO, TW_TLS, TW_VERSION};
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    for (unsigned i = 0; i < 4 * sizeof(reasons) / sizeof(reasons[0]); i++) {
        pair_up(a, b);
        const uint32_t downs = a->downs;
        tw_transport_blame(b->transport, world_linked(b, a), reasons[i / 4], "it ended");
        WAIT_WHILE(&world, a->downs == downs || world_peer_of(b, a) >= 0);
    }
    assert_int_equal(banned_by(b), 0);
}

/* ---- frames that take too long ------------------------------------------------------------- */

static uint32_t failures;

static void on_failed(struct tw_link *link) {
    failures++;
}

/* Makes a link on which `held` bytes of an incomplete frame have arrived. */
static void begin(struct tw_link *link, enum tw_role role, uint32_t body_bytes, size_t held) {
    static const struct tw_link_events events = {.failed = on_failed};
    static uint8_t bytes[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    static const uint8_t body[TW_FRAME_BODY_MAX];
    failures = 0;
    *link = (struct tw_link){
        .events = &events, .state = TW_LINK_UP, .role = role, .frame_us = 100 * SECOND_US};
    tw_reader_init(&link->reader, bytes, sizeof(bytes));
    tw_frame_header(bytes, role == TW_ROLE_BULK ? TW_FRAME_CHUNK : TW_MSG_STATUS, 0, body,
                    body_bytes);
    tw_reader_fill(&link->reader, held);
}

static void must_end_within(struct tw_link *link, uint64_t seconds) {
    const uint64_t end_us = (100 + seconds) * SECOND_US;
    assert_in_range(tw_link_deadline_us(link), end_us - SECOND_US, end_us + SECOND_US);
    tw_link_sweep(link, tw_link_deadline_us(link) - 1);
    assert_int_equal(failures, 0);
    tw_link_sweep(link, tw_link_deadline_us(link));
    assert_int_equal(failures, 1);
    /* it may only be a slow network, so no violation */
    assert_int_equal(link->error.status, TW_IO);
    assert_non_null(strstr(link->error.message, "has not ended"));
    assert_int_equal(tw_link_deadline_us(link), UINT64_MAX); /* reported once */
}

TEST(started_control_frame_must_end) {
    struct tw_link link;
    begin(&link, TW_ROLE_CONTROL, 0, 5); /* not even a header */
    must_end_within(&link, 10);
    begin(&link, TW_ROLE_CONTROL, TW_CONTROL_BYTES_MAX, 4000);
    must_end_within(&link, 10 + 16);
}

TEST(started_chunk_has_the_time_of_a_shared_slow_line) {
    struct tw_link link;
    begin(&link, TW_ROLE_BULK, TW_FRAME_BODY_MAX, 100 * 1000);
    must_end_within(&link, 30 + 512);
}

TEST(links_without_a_started_frame_wait_for_ever) {
    struct tw_link link;
    begin(&link, TW_ROLE_CONTROL, 0, 0);
    link.frame_us = 0;
    assert_int_equal(tw_link_deadline_us(&link), UINT64_MAX);
    tw_link_sweep(&link, UINT64_MAX - 1);
    assert_int_equal(failures, 0);
}

/* ---- connections that were refused ---------------------------------------------------------- */

WORLD_TEST(refused_stranger_pumps_no_bytes) {
    static uint8_t noise[16 << 20];
    struct world_raw raw;
    struct world_node *a = world_start(&world, 0, NULL);
    memset(noise, 0x55, sizeof(noise)); /* bytes that are not TLS: refused at once, then drained */
    world_raw_open(&raw, a, noise, sizeof(noise));
    WAIT_WHILE(&world, !raw.is_over);
    assert_true(tw_transport_traffic(a->transport).bytes_in < 4 * TW_LINK_DRAIN_BYTES);
    assert_int_equal(tw_transport_strangers(a->transport).bytes_in,
                     tw_transport_traffic(a->transport).bytes_in);
    world_raw_close(&raw);
}

WORLD_TEST(admitted_bytes_are_no_strangers) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    WAIT_WHILE(&world, !world_has_bulk(a) || !world_has_bulk(b));
    assert_int_equal(tw_transport_strangers(a->transport).bytes_in, 0);
    assert_int_equal(tw_transport_strangers(b->transport).bytes_in, 0);
}
