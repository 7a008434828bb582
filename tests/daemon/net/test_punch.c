/* Tests of daemon/net/dialer.c on loopback: its bounds, and its failure. On loopback a dial to a
 * port whose node dials too is refused at once. Success needs real routers:
 * tests/nat/test_punch.py. */
#include "daemon/net/transport_impl.h"
#include "proto/control.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static struct world_node *a, *b, *hub; /* a and b do not listen */
static struct tw_punch_info info;
static struct tw_error err;

static void dial_only(struct tw_transport_config *config) {
    config->listen_count = 0;
    config->connect_us = 400 * 1000;
}

/* Accepts every RELAY_CALL. */
static void answer(struct world_node *node, uint16_t peer, bool is_bulk,
                   const struct tw_frame *frame) {
    static struct tw_message message;
    if (is_bulk || frame->kind != TW_MSG_RELAY_CALL) return;
    assert_int_equal(tw_control_decode(frame->kind, frame->body, frame->body_bytes, &message, &err),
                     TW_OK);
    (void)tw_transport_answer(node->transport, peer, &message.u.relay_call.from,
                              message.u.relay_call.token, &err);
}

static bool is_relayed(const struct world_node *from, const struct world_node *to) {
    struct tw_peer_net net;
    const int peer = world_peer_of(from, to);
    return peer >= 0 && tw_transport_peer(from->transport, (uint16_t)peer, &net) && net.has_bulk &&
           net.is_relayed;
}

static void link_to_hub(struct world_node *node) {
    world_dial(node, hub);
    WAIT_WHILE(&world, world_peer_of(node, hub) < 0 || world_peer_of(hub, node) < 0);
}

static void start_with(void (*change_a)(struct tw_transport_config *config)) {
    a = world_start(&world, 0, change_a);
    b = world_start(&world, 1, dial_only);
    hub = world_start(&world, 2, NULL);
    a->on_frame = b->on_frame = answer;
    tw_transport_set_relay(hub->transport, true, 0);
    link_to_hub(a);
    link_to_hub(b);
    assert_int_equal(tw_transport_call(a->transport, world_linked(a, hub), &b->identity.id, &err),
                     TW_OK);
    WAIT_WHILE(&world, !is_relayed(a, b) || !is_relayed(b, a));
}

static void start(void) {
    start_with(dial_only);
}

static struct tw_slot *slot_of(struct world_node *node, struct world_node *other) {
    return &node->transport->peers[world_linked(node, other)];
}

static void not_punchable(const char *word) {
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err),
                     TW_AGAIN);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' lacks '%s'", err.message, word);
    assert_int_equal(tw_transport_punch(a->transport, world_linked(a, b), 0, &err), TW_AGAIN);
}

/* ---- addresses ----------------------------------------------------------------------------- */

WORLD_TEST(both_ends_learn_the_same_addresses_from_the_relay) {
    struct tw_punch_info other;
    start();
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err), TW_OK);
    assert_int_equal(tw_transport_punch_info(b->transport, world_linked(b, a), &other, &err),
                     TW_OK);
    assert_true(info.is_client && !other.is_client); /* a called */
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(info.own[i], other.other[i]);
        assert_string_equal(info.other[i], other.own[i]);
        assert_true(strncmp(info.own[i], "127.0.0.1:", 10) == 0);
    }
    assert_string_not_equal(info.own[0], info.own[1]);
}

WORLD_TEST(addresses_that_only_one_of_them_names_are_not_agreed) {
    struct tw_msg_punch punch = {.stage = TW_PUNCH_ASK};
    start();
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err), TW_OK);
    memcpy(punch.control, info.other[0], TW_ADDR_BYTES);
    memcpy(punch.bulk, info.other[1], TW_ADDR_BYTES);
    assert_true(tw_punch_is_agreed(&info, &punch));
    memcpy(punch.bulk, info.own[1], TW_ADDR_BYTES);
    assert_false(tw_punch_is_agreed(&info, &punch));
    memcpy(punch.bulk, info.other[1], TW_ADDR_BYTES);
    memcpy(punch.control, "198.41.0.4:4747", 16);
    assert_false(tw_punch_is_agreed(&info, &punch));
}

WORLD_TEST(links_that_cannot_be_punched_say_why) {
    start();
    char *const seen = slot_of(a, b)->control->call.seen[1];
    char kept[TW_ADDR_BYTES];
    memcpy(kept, seen, sizeof(kept));
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, hub), &info, &err),
                     TW_AGAIN);
    slot_of(a, b)->features &= ~TW_FEATURE_PUNCH;
    not_punchable("too old");
    slot_of(a, b)->features |= TW_FEATURE_PUNCH;
    memcpy(seen, "[2001:db8::1]:4747", 19);
    not_punchable("by IPv6, the other by IPv4");
    memcpy(seen, "localhost:4747", 15);
    not_punchable("no usable addresses");
    memcpy(seen, "127.0.0.1:1023", 15); /* ports below 1024 are never dialled */
    not_punchable("no usable addresses");
    memcpy(seen, kept, sizeof(kept));
    char *const own = slot_of(a, b)->bulk->call.seen[0];
    memcpy(kept, own, sizeof(kept));
    own[0] = '\0';
    not_punchable("does not say");
    memcpy(own, kept, sizeof(kept));
    struct sockaddr_storage *const relay = &slot_of(a, b)->control->remote, real = *relay;
    assert_int_equal(uv_ip4_addr("198.41.0.4", 4747, (struct sockaddr_in *)relay), 0);
    /* A relay with a public address cannot make a node dial a private address. */
    not_punchable("in a private network");
    *relay = real;
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err), TW_OK);
}

WORLD_TEST(addresses_are_written_as_others_dial_them) {
    static const char *const rows[][2] = {{"11.0.0.3", "11.0.0.3:4747"},
                                          {"::ffff:11.0.0.3", "11.0.0.3:4747"},
                                          {"2001:db8::1", "[2001:db8::1]:4747"}};
    for (unsigned i = 0; i < 3; i++) {
        struct sockaddr_storage from = {0};
        char text[TW_ADDR_BYTES];
        if (uv_ip4_addr(rows[i][0], 4747, (struct sockaddr_in *)&from) != 0)
            assert_int_equal(uv_ip6_addr(rows[i][0], 4747, (struct sockaddr_in6 *)&from), 0);
        tw_seen_address(&from, text);
        assert_string_equal(text, rows[i][1]);
    }
}

static void listener_address(const struct world_node *node, char address[TW_ADDR_BYTES]) {
    (void)snprintf(address, TW_ADDR_BYTES, "127.0.0.1:%u",
                   (unsigned)tw_transport_port(node->transport, 0));
}

WORLD_TEST(probe_that_asks_is_told_where_it_came_from) {
    char address[TW_ADDR_BYTES];
    a = world_start(&world, 0, NULL);
    b = world_start(&world, 1, NULL);
    hub = world_start(&world, 2, NULL);
    struct world_node *const asked[2] = {b, hub};
    for (unsigned i = 0; i < 2; i++) {
        listener_address(asked[i], address);
        assert_int_equal(
            tw_transport_observe(a->transport, address, &asked[i]->identity.id, 0, 42 + i, &err),
            TW_OK);
    }
    WAIT_WHILE(&world, b->observed_token == 0 || hub->observed_token == 0);
    assert_int_equal(b->observed_token, 42);
    assert_int_equal(hub->observed_token, 43);
    assert_true(strncmp(b->observed_address, "127.0.0.1:", 10) == 0);
    world_turn(&world, 20);
    assert_int_equal(a->probes, 0); /* the connection does not count as a dial-back */
    b->observed_token = 0;
    listener_address(b, address);
    assert_int_equal(tw_transport_probe(a->transport, address, &b->identity.id, &err), TW_OK);
    WAIT_WHILE(&world, a->probes == 0);
    /* A plain probe carries no token, so it does not ask for a PUNCH with the observed address. */
    assert_int_equal(b->observed_token, 0);
}

static void on_a_line(struct tw_transport_config *config) {
    (void)snprintf(config->bind[0], TW_ADDR_BYTES, "127.0.0.9");
}

WORLD_TEST(tied_node_asks_for_nothing) {
    a = world_start(&world, 0, on_a_line);
    b = world_start(&world, 1, NULL);
    char address[TW_ADDR_BYTES];
    listener_address(b, address);
    assert_int_equal(tw_transport_observe(a->transport, address, &b->identity.id, 40000, 42, &err),
                     TW_AGAIN);
}

static void dial_by_loopback(struct tw_transport_config *config) {
    dial_only(config);
    (void)snprintf(config->interface, sizeof(config->interface), "lo");
}

static void dial_from_a_line(struct tw_transport_config *config) {
    dial_only(config);
    on_a_line(config);
}

WORLD_TEST(nodes_tied_to_a_line_are_relayed_and_punched_from_there) {
    start_with(dial_from_a_line);
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err), TW_OK);
    assert_true(strncmp(info.own[0], "127.0.0.9:", 10) == 0);
    world_deinit(&world);
    world_init(&world);
    start_with(dial_by_loopback);
    assert_int_equal(tw_transport_punch_info(a->transport, world_linked(a, b), &info, &err), TW_OK);
}

/* ---- failure ------------------------------------------------------------------------------- */

static bool is_punching(const struct world_node *node) {
    for (unsigned i = 0; i < TW_PUNCHES_MAX; i++) {
        if (node->transport->punches[i].is_used) return true;
    }
    return false;
}

static unsigned count_conns(const struct world_node *node) {
    unsigned count = 0;
    for (unsigned i = 0; i < TW_CONNS_MAX; i++) count += node->transport->conns[i] != NULL;
    return count;
}

WORLD_TEST(failed_punch_leaves_the_relayed_link_and_nothing_else) {
    start();
    const unsigned before = count_conns(a);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(tw_transport_punch(a->transport, world_linked(a, b), 0, &err), TW_OK);
        assert_int_equal(tw_transport_punch(a->transport, world_linked(a, b), 0, &err), TW_AGAIN);
        assert_int_equal(tw_transport_punch(b->transport, world_linked(b, a), 20 * 1000, &err),
                         TW_OK);
        WAIT_WHILE(&world, is_punching(a) || is_punching(b));
        WAIT_WHILE(&world, count_conns(a) != before);
        assert_true(is_relayed(a, b) && is_relayed(b, a));
    }
    assert_int_equal(a->downs + b->downs, 0);
    assert_int_equal(a->refusals + b->refusals, 0);
}

WORLD_TEST(punch_ends_with_the_link_and_with_the_node) {
    start();
    assert_int_equal(tw_transport_punch(a->transport, world_linked(a, b), 0, &err), TW_OK);
    assert_int_equal(tw_transport_punch(b->transport, world_linked(b, a), 0, &err), TW_OK);
    world_turn(&world, 20);
    tw_transport_close(a->transport, world_linked(a, b), TW_AGAIN, "over");
    WAIT_WHILE(&world, is_punching(a));
    world_stop(b); /* b is still dialling */
    WAIT_WHILE(&world, world_peer_of(hub, b) >= 0);
}
