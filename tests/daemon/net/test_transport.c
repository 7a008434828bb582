/* Tests of daemon/net/transport.c: several transports on one loop. */
#include "base/rate.h"
#include "base/rng.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static bool a_dial_is_over(struct world *w) {
    return w->nodes[0].dials > 0;
}

static bool both_have_bulk(struct world *w) {
    return world_has_bulk(&w->nodes[0]) && world_has_bulk(&w->nodes[1]);
}

static bool nobody_is_linked(struct world *w) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        if (world_peers(&w->nodes[i]) > 0) return false;
    }
    return true;
}

static void has_word(const char *sentence, const char *word) {
    if (strstr(sentence, word) == NULL) fail_msg("no '%s' in: %s", word, sentence);
}

static void pair_up(struct world_node *from, struct world_node *to) {
    world_dial(from, to);
    world_run(&world, both_have_bulk);
}

/* ---- meeting ------------------------------------------------------------------------------- */

static void two_nodes_meet(struct world_node *from, struct world_node *to) {
    pair_up(from, to);
    assert_int_equal(from->ups, 1);
    assert_int_equal(to->ups, 1);
    assert_int_equal(from->downs + to->downs, 0);
    assert_int_equal(from->dials, 1);
    assert_int_equal(from->dial_status, TW_OK);
    assert_true(from->has_dial_id && tw_id_equal(&from->dial_id, &to->identity.id));
    struct tw_peer_net net;
    assert_true(tw_transport_peer(from->transport, world_linked(from, to), &net));
    assert_true(net.is_dialled && net.has_bulk);
    assert_int_equal(net.boot, 1);
    assert_true(net.rtt_us > 0);
    assert_true(net.congestion[0] != '\0');
    assert_true(net.control.bytes_in > 500 && net.control.bytes_in < 2000);
    assert_true(tw_transport_peer(to->transport, world_linked(to, from), &net));
    assert_false(net.is_dialled);
}

static void pace_is(struct world_node *from, const struct world_node *to, uint64_t bytes_per_s) {
    struct tw_peer_net net = {.pace_bytes_per_s = UINT64_MAX};
    WAIT_WHILE(&world, !tw_transport_peer(from->transport, world_linked(from, to), &net) ||
                           net.pace_bytes_per_s != bytes_per_s);
}

static void set_pace(struct tw_transport_config *config) {
    config->pace = (struct tw_link_pace){TW_LINK_PACE_FIXED, 3000 * 1000};
}

/* Checks the pacing rate that the kernel reports for the socket. */
WORLD_TEST(kernel_keeps_to_the_pace_and_to_the_cap) {
    struct world_node *from = world_start(&world, 0, set_pace), *to = world_start(&world, 1, NULL);
    pair_up(from, to);
    pace_is(from, to, 3000 * 1000);
    pace_is(to, from, 0); /* not measured yet */
    tw_transport_set_upload(from->transport, 1000 * 1000);
    pace_is(from, to, 1000 * 1000);
    tw_transport_set_pace(from->transport, &(struct tw_link_pace){.mode = TW_LINK_PACE_OFF});
    tw_transport_set_upload(from->transport, 0);
    pace_is(from, to, 0);
}

WORLD_TEST(lower_id_dials_the_higher) {
    two_nodes_meet(world_start(&world, 0, NULL), world_start(&world, 1, NULL));
}

WORLD_TEST(higher_id_dials_the_lower) {
    world_start(&world, 0, NULL);
    two_nodes_meet(world_start(&world, 1, NULL), &world.nodes[0]);
}

WORLD_TEST(both_ends_count_the_same_bytes) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    world_turn(&world, 20);
    const struct tw_traffic of_a = tw_transport_traffic(a->transport);
    const struct tw_traffic of_b = tw_transport_traffic(b->transport);
    assert_int_equal(of_a.bytes_out, of_b.bytes_in);
    assert_int_equal(of_a.bytes_in, of_b.bytes_out);
}

static void listen_on_all(struct tw_transport_config *config) {
    (void)snprintf(config->listen[0], TW_ADDR_BYTES, "0.0.0.0:0");
}

WORLD_TEST(peers_learn_where_each_other_listens) {
    struct world_node *a = world_start(&world, 0, listen_on_all);
    struct world_node *b = world_start(&world, 1, NULL);
    char expected[TW_ADDR_BYTES];
    pair_up(a, b);
    (void)snprintf(expected, sizeof(expected), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(a->transport, 0));
    /* A wildcard is replaced by the address from which the node connected. */
    assert_string_equal(b->records[world_linked(b, a)].addrs[0], expected);
    (void)snprintf(expected, sizeof(expected), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(b->transport, 0));
    assert_string_equal(a->records[world_linked(a, b)].addrs[0], expected);
}

WORLD_TEST(frames_arrive_whole_and_in_order) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b);
    tw_transport_send_control(a->transport, peer, 7, "hello", 5);
    tw_transport_send_control(a->transport, peer, 8, NULL, 0);
    WAIT_WHILE(&world, b->frames < 2);
    assert_int_equal(b->last_kind, 8);
    assert_int_equal(b->last_body_bytes, 0);
    tw_transport_send_control(a->transport, peer, 9, "again", 5);
    WAIT_WHILE(&world, b->frames < 3);
    assert_memory_equal(b->last_body, "again", 5);
}

/* ---- refusals ------------------------------------------------------------------------------ */

WORLD_TEST(another_node_at_a_pinned_address_is_refused) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    world_dial_pinned(a, b, &world.nodes[2].identity.id);
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_status, TW_WRONG_ID);
    assert_int_equal(a->dial_cause, TW_DIAL_WRONG_ID);
    has_word(a->dial_sentence, "answers there, not");
    assert_int_equal(a->ups + b->ups, 0);
}

static struct tw_secrets wrong_secrets;

static void with_wrong_secret(struct tw_transport_config *config) {
    wrong_secrets.count = 1;
    memset(&wrong_secrets.list[0], 0xbb, sizeof(wrong_secrets.list[0]));
    config->secrets = &wrong_secrets;
}

static void with_little_patience(struct tw_transport_config *config) {
    config->handshake_us = 300 * 1000;
}

/* A node at the dialled address may refuse with AGAIN before it has proved its identity. */
WORLD_TEST(word_of_an_unproven_node_is_no_success) {
    struct world_node *a = world_start(&world, 0, with_little_patience);
    struct world_node *b = world_start(&world, 1, NULL);
    world_dial(a, b);
    WAIT_WHILE(&world, tw_transport_strangers(b->transport).bytes_in == 0);
    tw_transport_rest(b->transport, "its line rests"); /* refuses the HELLO with AGAIN */
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_status, TW_AGAIN);
    assert_false(a->has_dial_id);
    has_word(a->dial_sentence, "its line rests");
}

WORLD_TEST(two_dials_to_one_stranger_prove_nothing) {
    struct world_node *a = world_start(&world, 0, with_little_patience);
    struct world_node *b = world_start(&world, 1, with_wrong_secret);
    world_dial(a, b);
    world_dial(a, b);
    for (unsigned i = 1; i <= 2; i++) {
        WAIT_WHILE(&world, a->dials < i);
        assert_int_not_equal(a->dial_status, TW_OK);
    }
}

WORLD_TEST(right_pin_is_accepted) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    world_dial_pinned(a, b, &b->identity.id);
    world_run(&world, both_have_bulk);
    assert_int_equal(a->dial_status, TW_OK);
}

static bool both_know_of_the_refusal(struct world *w) {
    return w->nodes[0].dials > 0 && w->nodes[1].refusals > 0;
}

WORLD_TEST(wrong_secret_is_refused_and_both_sides_say_so) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, with_wrong_secret);
    world_dial(a, b);
    world_run(&world, both_know_of_the_refusal);
    assert_int_equal(a->dial_cause, TW_DIAL_WRONG_SECRET);
    assert_int_equal(b->refused_reason, TW_WRONG_SECRET);
    has_word(a->dial_sentence, "wrong run secret");
    has_word(b->refused_sentence, "wrong run secret");
    assert_int_equal(a->ups + b->ups, 0);
}

/* Makes one or two secrets, each filled with one byte value. `second` 0 means only one secret. */
static struct tw_secrets secrets_of(uint8_t first, uint8_t second) {
    struct tw_secrets secrets = {.count = second == 0 ? 1 : 2};
    memset(&secrets.list[0], first, sizeof(secrets.list[0]));
    memset(&secrets.list[1], second, sizeof(secrets.list[1]));
    return secrets;
}

static struct tw_secrets old_and_new, new_and_old;

static void prefers_the_old(struct tw_transport_config *config) {
    old_and_new = secrets_of(1, 2);
    config->secrets = &old_and_new;
}

static void prefers_the_new(struct tw_transport_config *config) {
    new_and_old = secrets_of(2, 1);
    config->secrets = &new_and_old;
}

WORLD_TEST(a_secret_is_replaced_while_nodes_meet) {
    struct world_node *a = world_start(&world, 0, prefers_the_old);
    struct world_node *b = world_start(&world, 1, prefers_the_new);
    struct world_node *c = world_start(&world, 2, prefers_the_new);
    pair_up(a, b); /* proven by the old secret */
    world_dial(c, b);
    WAIT_WHILE(&world, world_peers(c) < 1 || !world_has_bulk(c)); /* proven by the new secret */
    const struct tw_secrets fresh = secrets_of(2, 0), both = secrets_of(2, 1);
    tw_transport_set_secrets(a->transport, &both);
    WAIT_WHILE(&world, world_peers(b) < 2);
    /* a new order of the same secrets closes no link */
    assert_int_equal(a->downs + b->downs + c->downs, 0);
    tw_transport_set_secrets(b->transport, &fresh);
    WAIT_WHILE(&world, a->downs == 0);
    assert_int_equal(b->downs, 1);
    assert_int_equal(b->down_reason, TW_WRONG_SECRET);
    has_word(b->down_sentence, "no longer valid");
    assert_true(world_peer_of(b, c) >= 0);
    world_dial(a, b); /* a uses the new secret now */
    WAIT_WHILE(&world, world_peers(b) < 2);
    assert_int_equal(c->downs, 0);
}

static void in_another_run(struct tw_transport_config *config) {
    memset(&config->run, 0xab, sizeof(config->run));
}

WORLD_TEST(other_manifest_is_refused_without_naming_ours) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, in_another_run);
    world_dial(a, b);
    world_run(&world, both_know_of_the_refusal);
    const char *const sentences[2] = {a->dial_sentence, b->refused_sentence};
    for (unsigned i = 0; i < 2; i++) {
        has_word(sentences[i], "other manifest");
        has_word(sentences[i], "17171717");
    }
    /* a stranger does not learn the id of the run */
    assert_null(strstr(a->dial_sentence, "abababab"));
    assert_int_equal(a->dial_cause, TW_DIAL_OTHER_RUN);
    assert_int_equal(a->ups + b->ups, 0);
}

static void with_open_admission(struct tw_transport_config *config) {
    config->secrets = NULL;
}

WORLD_TEST(open_nodes_meet_only_each_other) {
    struct world_node *a = world_start(&world, 0, with_open_admission);
    struct world_node *b = world_start(&world, 1, with_open_admission);
    struct world_node *c = world_start(&world, 2, NULL);
    pair_up(a, b);
    const uint32_t refusals = c->refusals;
    world_dial(a, c);
    WAIT_WHILE(&world, c->refusals == refusals);
    assert_int_equal(c->refused_reason, TW_WRONG_SECRET);
}

WORLD_TEST(dialling_oneself_is_found_out) {
    struct world_node *a = world_start(&world, 0, NULL);
    world_dial(a, a);
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_cause, TW_DIAL_SELF);
    assert_true(a->has_dial_id && tw_id_equal(&a->dial_id, &a->identity.id));
    assert_int_equal(a->ups, 0);
}

WORLD_TEST(nobody_there_is_answered_once) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct tw_error err;
    assert_int_equal(tw_transport_connect(a->transport, "127.0.0.1:1", NULL, &err), TW_OK);
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_cause, TW_DIAL_CLOSED);
    has_word(a->dial_sentence, "127.0.0.1:1: nothing listens on that port");
    assert_int_equal(tw_transport_connect(a->transport, "nonsense", NULL, &err), TW_CONFIG);
    world_turn(&world, 5);
    assert_int_equal(a->dials, 1);
}

WORLD_TEST(dials_under_way_are_bounded) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct tw_error err;
    for (unsigned i = 0; i < TW_DIALS_MAX; i++)
        assert_int_equal(tw_transport_connect(a->transport, "127.0.0.1:1", NULL, &err), TW_OK);
    assert_int_equal(tw_transport_connect(a->transport, "127.0.0.1:1", NULL, &err), TW_LIMIT);
    WAIT_WHILE(&world, a->dials < TW_DIALS_MAX);
}

/* ---- start --------------------------------------------------------------------------------- */

static enum tw_status start_fails(const char *listen, bool is_open, struct tw_error *err) {
    struct world_node *a = &world.nodes[0];
    struct tw_transport_config config = {
        .loop = &world.loop,
        .identity = &a->identity,
        .secrets = is_open ? NULL : &world.secrets,
        .listen_count = 1,
        .user = a,
    };
    const struct world_node *reference = world_start(&world, 5, NULL);
    (void)reference;
    config.events.peer_up = (void (*)(void *, uint16_t, const struct tw_member_row *))(uintptr_t)1;
    config.events.peer_down =
        (void (*)(void *, uint16_t, enum tw_status, const char *))(uintptr_t)1;
    config.events.frame = (void (*)(void *, uint16_t, bool, const struct tw_frame *))(uintptr_t)1;
    (void)snprintf(config.listen[0], TW_ADDR_BYTES, "%s", listen);
    struct tw_transport *transport = NULL;
    return tw_transport_create(&config, &transport, err);
}

WORLD_TEST(port_in_use_is_named_with_the_way_out) {
    struct tw_error err;
    char address[TW_ADDR_BYTES];
    struct world_node *b = world_start(&world, 1, NULL);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(b->transport, 0));
    assert_int_equal(start_fails(address, false, &err), TW_IO);
    has_word(err.message, address);
    has_word(err.message, "another process listens there; change `listen =` or stop it");
}

WORLD_TEST(foreign_address_is_named_with_the_way_out) {
    struct tw_error err;
    assert_int_equal(start_fails("192.0.2.1:4300", false, &err), TW_IO);
    has_word(err.message, "not an address of this machine");
}

WORLD_TEST(open_admission_listens_on_loopback_only) {
    struct tw_error err;
    assert_int_equal(start_fails("0.0.0.0:0", true, &err), TW_CONFIG);
    has_word(err.message, "open lets anybody in");
}

WORLD_TEST(bad_listen_address_is_refused) {
    struct tw_error err;
    assert_int_equal(start_fails("4300", false, &err), TW_CONFIG);
    has_word(err.message, "host:port");
}

/* ---- one link per pair --------------------------------------------------------------------- */

static bool all_are_linked_in_pairs(struct world *w) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        const struct world_node *node = &w->nodes[i];
        if (world_peers(node) != WORLD_NODES_MAX - 1 || !world_has_bulk(node)) return false;
        if (node->dials < WORLD_NODES_MAX - 1) return false;
    }
    return true;
}

/* All nodes dial each other at once, so the two dials of each pair cross. */
WORLD_TEST(crossing_dials_end_with_one_link_and_no_loss) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) world_start(&world, i, NULL);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        for (unsigned k = 0; k < WORLD_NODES_MAX; k++) {
            if (i != k) world_dial(&world.nodes[i], &world.nodes[k]);
        }
    }
    world_run(&world, all_are_linked_in_pairs);
    world_turn(&world, 50);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        const struct world_node *node = &world.nodes[i];
        assert_int_equal(node->ups, WORLD_NODES_MAX - 1);
        assert_int_equal(node->downs, 0);
        for (unsigned k = 0; k < i; k++) {
            struct tw_peer_net mine, other;
            const struct world_node *lower = &world.nodes[k];
            assert_true(tw_transport_peer(node->transport, world_linked(node, lower), &mine));
            assert_true(tw_transport_peer(lower->transport, world_linked(lower, node), &other));
            assert_int_equal(mine.is_dialled, !other.is_dialled);
        }
    }
}

WORLD_TEST(second_dial_to_a_linked_peer_succeeds_without_a_second_link) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    world_dial(a, b);
    WAIT_WHILE(&world, a->dials < 2);
    assert_int_equal(a->dial_status, TW_OK);
    world_dial(b, a);
    WAIT_WHILE(&world, b->dials < 1);
    assert_int_equal(b->dial_status, TW_OK);
    world_turn(&world, 20);
    assert_int_equal(a->ups + b->ups, 2);
    assert_int_equal(a->downs + b->downs, 0);
}

/* ---- bulk ---------------------------------------------------------------------------------- */

enum { PAYLOAD_BYTES = 1000 * 1000, CHUNK = TW_CHUNK_BYTES_MAX };
static uint8_t payload[4 * 1024 * 1024];
static const struct tw_id payload_id = {{0xda, 0x7a}};
static uint64_t sum_in;

static void check_chunk(struct world_node *node, uint16_t peer, bool is_bulk,
                        const struct tw_frame *frame) {
    struct tw_id id;
    uint32_t idx = 0, size = 0;
    const uint8_t *bytes = NULL;
    if (!is_bulk) return;
    assert_int_equal(tw_frame_chunk_decode(frame, &id, &idx, &bytes, &size, NULL), TW_OK);
    assert_memory_equal(bytes, payload + (size_t)idx * CHUNK, size);
    sum_in += size;
}

static void send_payload(struct world_node *from, uint16_t peer, uint32_t bytes) {
    for (uint32_t idx = 0; (uint64_t)idx * CHUNK < bytes; idx++) {
        const uint32_t left = bytes - idx * CHUNK;
        const struct tw_chunk chunk = {
            .payload = payload_id,
            .idx = idx,
            .size = left < CHUNK ? left : CHUNK,
            .bytes = payload + (size_t)idx * CHUNK,
        };
        assert_true(tw_transport_send_chunk(from->transport, peer, &chunk));
    }
}

static void payload_fill(void) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 7);
    for (size_t i = 0; i < sizeof(payload); i++) payload[i] = (uint8_t)tw_rng_next(&rng);
    sum_in = 0;
}

enum { UPLOAD_CAP = 5 * 1000 * 1000 }; /* bytes/s: 40 Mbit/s */

static void with_upload_cap(struct tw_transport_config *config) {
    config->upload_bytes_per_s = UPLOAD_CAP;
}

WORLD_TEST(megabyte_over_bulk_has_the_expected_cost_and_obeys_the_cap) {
    struct world_node *a = world_start(&world, 0, with_upload_cap);
    struct world_node *b = world_start(&world, 1, NULL);
    payload_fill();
    pair_up(a, b);
    b->on_frame = check_chunk;
    const uint16_t peer = world_linked(a, b);
    const struct tw_traffic before = tw_transport_traffic(a->transport);
    const uint64_t begin_us = uv_hrtime() / 1000;
    send_payload(a, peer, PAYLOAD_BYTES);
    WAIT_WHILE(&world, b->chunk_bytes < PAYLOAD_BYTES);
    const struct tw_traffic after = tw_transport_traffic(a->transport);
    const uint64_t cost = after.bytes_out - before.bytes_out;
    assert_in_range(cost, PAYLOAD_BYTES, PAYLOAD_BYTES + PAYLOAD_BYTES / 100);
    assert_int_equal(sum_in, PAYLOAD_BYTES);
    assert_int_equal(a->released, 4);
    /* On any machine, sending is no faster than the cap and one burst allow. */
    const uint64_t capped = PAYLOAD_BYTES - tw_rate_burst_bytes(UPLOAD_CAP);
    assert_true(uv_hrtime() / 1000 - begin_us >= capped / (UPLOAD_CAP / 1000000));
    struct tw_peer_net net;
    assert_true(tw_transport_peer(a->transport, peer, &net));
    assert_in_range(net.bulk.bytes_out, PAYLOAD_BYTES, PAYLOAD_BYTES + PAYLOAD_BYTES / 100);
    assert_int_equal(net.chunks_queued, 0);
}

WORLD_TEST(control_is_not_delayed_by_capped_bulk) {
    struct world_node *a = world_start(&world, 0, with_upload_cap);
    struct world_node *b = world_start(&world, 1, NULL);
    payload_fill();
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b);
    send_payload(a, peer, PAYLOAD_BYTES);
    for (unsigned i = 0; i < 5; i++) {
        tw_transport_send_control(a->transport, peer, 1, "x", 1);
        const uint32_t frames = b->frames;
        WAIT_WHILE(&world, b->frames == frames);
    }
    assert_true(b->chunk_bytes < PAYLOAD_BYTES);
    WAIT_WHILE(&world, b->chunk_bytes < PAYLOAD_BYTES);
}

static uint64_t widest_gap;

static void note_gap(struct world_node *node, uint16_t peer, bool is_bulk,
                     const struct tw_frame *frame) {
    if (!is_bulk) return;
    const struct world_node *b = &node->world->nodes[1], *c = &node->world->nodes[2];
    const uint64_t gap = b->chunks > c->chunks ? b->chunks - c->chunks : c->chunks - b->chunks;
    if (gap > widest_gap) widest_gap = gap;
}

static bool three_have_bulk(struct world *w) {
    return world_peers(&w->nodes[0]) == 2 && world_has_bulk(&w->nodes[0]) &&
           world_has_bulk(&w->nodes[1]) && world_has_bulk(&w->nodes[2]);
}

WORLD_TEST(upload_is_shared_fairly) {
    struct world_node *a = world_start(&world, 0, with_upload_cap);
    struct world_node *b = world_start(&world, 1, NULL), *c = world_start(&world, 2, NULL);
    world_dial(a, b);
    world_dial(c, a);
    world_run(&world, three_have_bulk);
    b->on_frame = c->on_frame = note_gap;
    widest_gap = 0;
    /* queued first, but both peers are served in turn */
    send_payload(a, world_linked(a, b), 2 * PAYLOAD_BYTES);
    send_payload(a, world_linked(a, c), 2 * PAYLOAD_BYTES);
    WAIT_WHILE(&world, b->chunk_bytes + c->chunk_bytes < 4 * PAYLOAD_BYTES);
    assert_true(widest_gap <= 2);
}

WORLD_TEST(dropped_payload_is_not_read_any_more) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b);
    uint8_t *bytes = malloc(CHUNK);
    assert_non_null(bytes);
    memset(bytes, 1, CHUNK);
    for (uint32_t i = 0; i < 20; i++) {
        const struct tw_chunk chunk = {.payload = {{(uint8_t)(i % 2)}},
                                       .idx = i,
                                       .size = CHUNK,
                                       .bytes = i % 2 == 1 ? bytes : payload};
        assert_true(tw_transport_send_chunk(a->transport, peer, &chunk));
    }
    const struct tw_id dropped = {{1}};
    tw_transport_drop(a->transport, &dropped);
    memset(bytes, 0, CHUNK);
    free(bytes); /* a sanitizer would report a later read */
    WAIT_WHILE(&world, b->chunks < 10);
    world_turn(&world, 20);
    assert_int_equal(b->chunks, 10);
    assert_int_equal(a->released, 10);
}

/* ---- peers that do not read ---------------------------------------------------------------- */

WORLD_TEST(peer_that_does_not_read_bulk_holds_up_nothing_else) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b), back = world_linked(b, a);
    enum { CHUNKS = 200 }; /* 50 MiB: more than the kernel's buffers hold */
    world_hold(b, back, true);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const struct tw_chunk chunk = {
            .payload = payload_id, .idx = i, .size = CHUNK, .bytes = payload};
        assert_true(tw_transport_send_chunk(a->transport, peer, &chunk));
    }
    struct tw_peer_net net;
    uint32_t queued = CHUNKS, quiet = 0;
    while (quiet < 20) {
        world_turn(&world, 5);
        assert_true(tw_transport_peer(a->transport, peer, &net));
        quiet = net.chunks_queued == queued ? quiet + 1 : 0;
        queued = net.chunks_queued;
    }
    assert_true(queued > 0); /* the sender still owns them: the transport makes no copies */
    assert_int_equal(b->chunks, 0);
    tw_transport_send_control(a->transport, peer, 3, "still here", 10);
    WAIT_WHILE(&world, b->frames < 1);
    world_let_go(b, back, true);
    WAIT_WHILE(&world, b->chunks < CHUNKS);
    assert_int_equal(a->downs + b->downs, 0);
}

WORLD_TEST(peer_that_does_not_read_control_is_closed) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b);
    world_hold(b, world_linked(b, a), false);
    uint64_t sent = 0;
    while (a->downs == 0 && sent < 256u * 1024 * 1024) {
        tw_transport_send_control(a->transport, peer, 1, payload, 60 * 1024);
        sent += 60 * 1024;
        struct tw_peer_net net;
        if (tw_transport_peer(a->transport, peer, &net))
            assert_true(net.control_queued_bytes <= TW_CONTROL_QUEUE_BYTES);
        (void)uv_run(&world.loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(a->downs, 1);
    assert_int_equal(a->down_reason, TW_LIMIT);
    has_word(a->down_sentence, "does not read");
}

WORLD_TEST(pulling_too_far_ahead_closes_the_peer) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const struct tw_chunk chunk = {.payload = payload_id, .size = 1, .bytes = payload};
    for (uint32_t i = 0; i <= TW_BULK_QUEUE_CHUNKS; i++)
        assert_int_equal(tw_transport_send_chunk(a->transport, world_linked(a, b), &chunk),
                         i < TW_BULK_QUEUE_CHUNKS);
    assert_int_equal(a->downs, 0); /* no callback is called from within an API call */
    WAIT_WHILE(&world, a->downs == 0);
    assert_int_equal(a->down_reason, TW_LIMIT);
    assert_int_equal(a->unsent, TW_BULK_QUEUE_CHUNKS);
}

WORLD_TEST(held_connection_holds_back_frames_that_arrived_already) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t back = world_linked(b, a);
    world_hold(b, back, false);
    for (unsigned i = 0; i < 10; i++)
        tw_transport_send_control(a->transport, world_linked(a, b), 1, "x", 1);
    world_turn(&world, 20);
    assert_int_equal(b->frames, 0);
    world_let_go(b, back, false);
    assert_int_equal(b->frames, 0);
    WAIT_WHILE(&world, b->frames < 10);
}

/* ---- ends ---------------------------------------------------------------------------------- */

WORLD_TEST(close_tells_the_other_side_why) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    const uint16_t peer = world_linked(a, b);
    tw_transport_close(a->transport, peer, TW_PROTO, "you spoke out of turn");
    assert_int_equal(a->downs, 0); /* no callback is called from within an API call */
    tw_transport_send_control(a->transport, peer, 1, "x", 1);
    tw_transport_close(a->transport, peer, TW_IO, "again");
    WAIT_WHILE(&world, a->downs < 1 || b->downs < 1);
    assert_int_equal(a->down_reason, TW_PROTO);
    assert_int_equal(b->down_reason, TW_PROTO);
    has_word(b->down_sentence, "you spoke out of turn");
    assert_int_equal(b->frames, 0);
    /* The two nodes may link again at once. */
    world_dial(b, a);
    world_run(&world, both_have_bulk);
}

WORLD_TEST(end_of_a_node_is_a_goodbye) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up(a, b);
    world_stop(a);
    WAIT_WHILE(&world, b->downs < 1);
    assert_int_equal(b->down_reason, TW_OK);
    has_word(b->down_sentence, "the test is over");
}

WORLD_TEST(end_in_the_middle_of_everything_leaves_nothing) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) world_start(&world, i, NULL);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        for (unsigned k = 0; k < WORLD_NODES_MAX; k++) world_dial(&world.nodes[i], &world.nodes[k]);
    }
    struct tw_error err;
    assert_int_equal(tw_transport_connect(world.nodes[0].transport, "localhost:1", NULL, &err),
                     TW_OK);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        for (unsigned turn = 0; turn < 3; turn++) (void)uv_run(&world.loop, UV_RUN_NOWAIT);
        world_stop(&world.nodes[i]);
    }
}

static void ender(struct world_node *node, uint16_t peer) {
    world_stop(node);
}

WORLD_TEST(node_may_end_from_inside_a_callback) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    b->on_up = ender;
    world_dial(a, b);
    WAIT_WHILE(&world, b->transport != NULL);
    WAIT_WHILE(&world, a->ups != a->downs || a->dials < 1);
    assert_true(nobody_is_linked(&world));
}

WORLD_TEST(links_that_rest_cost_nothing_and_come_back) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    world_dial(a, b);
    WAIT_WHILE(&world, world_peers(a) == 0 || world_peers(b) == 0);
    tw_transport_rest(a->transport, "its hours are over, until 18:00");
    WAIT_WHILE(&world, a->downs == 0 || b->downs == 0);
    assert_int_equal(b->down_reason, TW_AGAIN);
    assert_non_null(strstr(b->down_sentence, "its hours are over"));
    const struct tw_traffic before = tw_transport_traffic(a->transport);
    const uint32_t dials = b->dials;
    world_dial(b, a); /* refused without a single byte of TLS */
    WAIT_WHILE(&world, b->dials == dials);
    assert_int_not_equal(b->dial_status, TW_OK);
    assert_int_equal(world_peers(a), 0);
    assert_int_equal(tw_transport_traffic(a->transport).bytes_out, before.bytes_out);
    tw_transport_rest(a->transport, NULL);
    world_dial(b, a);
    WAIT_WHILE(&world, world_peers(a) == 0 || world_peers(b) == 0);
}
