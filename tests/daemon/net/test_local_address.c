/* Tests of a node's addresses: where it listens, from which address it dials, and what it
 * announces. Covers socket.c and the addresses in HELLO. */
#include "base/address.h"
#include "daemon/net/socket.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static void has_word(const char *sentence, const char *word) {
    if (strstr(sentence, word) == NULL) fail_msg("no '%s' in: %s", word, sentence);
}

static bool has_ipv6(void) {
    struct sockaddr_storage loopback;
    memset(&loopback, 0, sizeof(loopback));
    assert_int_equal(uv_ip6_addr("::1", 0, (struct sockaddr_in6 *)&loopback), 0);
    return tw_local_address_is(&loopback);
}

static void dial(struct world_node *from, const char *host, const struct world_node *to,
                 uint32_t listener) {
    char address[TW_ADDR_BYTES];
    struct tw_error err;
    (void)snprintf(address, sizeof(address), "%s:%u", host,
                   (unsigned)tw_transport_port(to->transport, listener));
    assert_int_equal(tw_transport_connect(from->transport, address, NULL, &err), TW_OK);
}

static bool a_dial_is_over(struct world *w) {
    return w->nodes[0].dials > 0;
}

static bool both_have_bulk(struct world *w) {
    return world_has_bulk(&w->nodes[0]) && world_has_bulk(&w->nodes[1]);
}

static void seen_from(const struct world_node *node, const char *host) {
    struct tw_peer_net net;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (!node->is_up[i]) continue;
        assert_true(tw_transport_peer(node->transport, i, &net));
        has_word(net.address, host);
        return;
    }
    fail_msg("no peer is up");
}

/* ---- listening ----------------------------------------------------------------------------- */

static void on_both_loopbacks(struct tw_transport_config *config) {
    (void)snprintf(config->listen[0], TW_ADDR_BYTES, "127.0.0.1:0");
    (void)snprintf(config->listen[1], TW_ADDR_BYTES, "[::1]:0");
    config->listen_count = 2;
}

static void dials_only(struct tw_transport_config *config) {
    config->listen_count = 0;
}

WORLD_TEST(one_node_listens_on_ipv4_and_ipv6) {
    if (!has_ipv6()) skip();
    static const char *const hosts[2] = {"127.0.0.1", "[::1]"};
    for (uint32_t i = 0; i < 2; i++) {
        struct world_node *a = world_start(&world, 0, NULL);
        struct world_node *b = world_start(&world, 1, on_both_loopbacks);
        dial(a, hosts[i], b, i);
        world_run(&world, both_have_bulk); /* bulk uses the same address as control */
        seen_from(a, hosts[i]);
        has_word(a->records[world_peer_of(a, b)].addrs[0], "127.0.0.1:");
        has_word(a->records[world_peer_of(a, b)].addrs[1], "[::1]:");
        world_deinit(&world);
        world_init(&world);
    }
}

static void on_wildcards(struct tw_transport_config *config) {
    (void)snprintf(config->listen[0], TW_ADDR_BYTES, "0.0.0.0:0");
    (void)snprintf(config->listen[1], TW_ADDR_BYTES, "[::]:0");
    config->listen_count = 2;
}

static void on_one_wildcard(struct tw_transport_config *config) {
    (void)snprintf(config->listen[0], TW_ADDR_BYTES, "[::]:0");
}

/* Each wildcard is replaced by the address from which the node connected, if the family fits. No
 * address is announced twice, and no wildcard remains. */
WORLD_TEST(wildcards_become_addresses_of_their_family) {
    if (!has_ipv6()) skip();
    for (unsigned is_single = 0; is_single < 2; is_single++) {
        struct world_node *a = world_start(&world, 0, NULL);
        struct world_node *b =
            world_start(&world, 1, is_single == 1 ? on_one_wildcard : on_wildcards);
        dial(a, "127.0.0.1", b, 0);
        world_run(&world, both_have_bulk);
        const struct tw_member_row *record = &a->records[world_peer_of(a, b)];
        char expected[TW_ADDR_BYTES];
        (void)snprintf(expected, sizeof(expected), "127.0.0.1:%u",
                       (unsigned)tw_transport_port(b->transport, 0));
        assert_string_equal(record->addrs[0], expected);
        for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
            if (record->addrs[i][0] == '\0') continue;
            assert_true(tw_address_is_valid(record->addrs[i]));
            assert_null(strstr(record->addrs[i], "0.0.0.0"));
            assert_null(strstr(record->addrs[i], "[::]"));
            for (unsigned k = 0; k < i; k++)
                assert_string_not_equal(record->addrs[i], record->addrs[k]);
        }
        world_deinit(&world);
        world_init(&world);
    }
}

WORLD_TEST(node_without_listener_is_a_peer_like_any_other) {
    struct world_node *a = world_start(&world, 0, dials_only);
    struct world_node *b = world_start(&world, 1, NULL);
    dial(a, "127.0.0.1", b, 0);
    world_run(&world, both_have_bulk);
    assert_string_equal(b->records[world_peer_of(b, a)].addrs[0], "");
    tw_transport_send_control(b->transport, (uint16_t)world_peer_of(b, a), TW_MSG_STATUS, "x", 1);
    WAIT_WHILE(&world, a->frames == 0);
}

/* ---- dialling ------------------------------------------------------------------------------ */

static void from_another_loopback(struct tw_transport_config *config) {
    (void)snprintf(config->bind[0], TW_ADDR_BYTES, "127.0.0.9");
}

static void by_loopback(struct tw_transport_config *config) {
    (void)snprintf(config->interface, sizeof(config->interface), "lo");
}

WORLD_TEST(node_dials_from_the_address_it_was_told) {
    struct world_node *a = world_start(&world, 0, from_another_loopback);
    struct world_node *b = world_start(&world, 1, NULL);
    dial(a, "127.0.0.1", b, 0);
    world_run(&world, both_have_bulk);
    seen_from(b, "127.0.0.9:");
}

WORLD_TEST(family_without_a_source_address_is_not_dialled) {
    struct tw_error err;
    struct world_node *a = world_start(&world, 0, from_another_loopback);
    assert_int_equal(tw_transport_connect(a->transport, "[::1]:1", NULL, &err), TW_OK);
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_status, TW_IO);
    has_word(a->dial_sentence, "network.bind has no IPv6 address");
}

WORLD_TEST(node_keeps_to_its_interface) {
    struct world_node *a = world_start(&world, 0, by_loopback);
    struct world_node *b = world_start(&world, 1, by_loopback);
    dial(a, "127.0.0.1", b, 0);
    world_run(&world, both_have_bulk);
}

WORLD_TEST(unusable_source_addresses_are_refused) {
    struct tw_egress egress;
    struct tw_error err;
    static const char none[TW_BIND_MAX][TW_ADDR_BYTES];
    static const char words[TW_BIND_MAX][TW_ADDR_BYTES] = {"line2"};
    static const char twice[TW_BIND_MAX][TW_ADDR_BYTES] = {"10.0.0.1", "10.0.0.2"};
    static const char both[TW_BIND_MAX][TW_ADDR_BYTES] = {"2001:db8::1", "10.0.0.2"};
    assert_int_equal(tw_egress_init(&egress, "nosuch9", none, &err), TW_IO);
    has_word(err.message, "network.interface = nosuch9");
    assert_int_equal(tw_egress_init(&egress, "an-interface-of-many-letters", none, &err), TW_IO);
    assert_int_equal(tw_egress_init(&egress, "", words, &err), TW_CONFIG);
    has_word(err.message, "line2 is no IP address");
    assert_int_equal(tw_egress_init(&egress, "", twice, &err), TW_CONFIG);
    has_word(err.message, "10.0.0.2 is the second IPv4 address");
    assert_int_equal(tw_egress_init(&egress, "", both, &err), TW_OK);
    assert_true(egress.has_v4 && egress.has_v6);
}

WORLD_TEST(dial_from_an_address_that_is_gone_says_so) {
    struct tw_egress egress;
    struct tw_error err;
    static const char gone[TW_BIND_MAX][TW_ADDR_BYTES] = {"192.0.2.77"};
    uv_tcp_t tcp;
    assert_int_equal(tw_egress_init(&egress, NULL, gone, &err), TW_OK);
    assert_int_equal(uv_tcp_init(&world.loop, &tcp), 0);
    assert_int_equal(tw_egress_apply(&egress, &tcp, AF_INET, &err), UV_EADDRNOTAVAIL);
    has_word(err.message, "cannot dial from the address of network.bind");
    uv_close((uv_handle_t *)&tcp, NULL);
    world_turn(&world, 1);
}

/* ---- probes -------------------------------------------------------------------------------- */

static void probe(struct world_node *from, const struct world_node *to, uint16_t port,
                  enum tw_status status, enum tw_dial_cause cause) {
    char address[TW_ADDR_BYTES];
    struct tw_error err;
    const uint32_t before = from->probes;
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)port);
    assert_int_equal(tw_transport_probe(from->transport, address, &to->identity.id, &err), TW_OK);
    WAIT_WHILE(&world, from->probes == before);
    assert_int_equal(from->probe_status, status);
    assert_int_equal(from->probe_cause, cause);
}

static void with_other_secret(struct tw_transport_config *config) {
    static struct tw_secrets other;
    other = (struct tw_secrets){.count = 1};
    memset(&other.list[0], 0x77, sizeof(other.list[0]));
    config->secrets = &other;
}

WORLD_TEST(probe_tells_whether_an_address_leads_to_a_node) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, NULL);
    struct world_node *c = world_start(&world, 2, with_other_secret);
    const uint16_t port = tw_transport_port(b->transport, 0);
    dial(b, "127.0.0.1", a, 0);
    world_run(&world, both_have_bulk);
    /* The existing link does not count as an answer: b may have dialled it. */
    probe(a, b, port, TW_OK, TW_DIAL_NONE);
    probe(a, b, 1, TW_IO, TW_DIAL_CLOSED);
    probe(a, c, port, TW_WRONG_ID, TW_DIAL_WRONG_ID); /* not the expected node */
    probe(a, c, tw_transport_port(c->transport, 0), TW_WRONG_SECRET, TW_DIAL_WRONG_SECRET);
    world_turn(&world, 5);
    assert_int_equal(a->ups + b->ups, 2); /* no link was made, and none was lost */
    assert_int_equal(a->downs + b->downs + c->ups, 0);
    assert_int_equal(a->dials, 0);
}

/* ---- this machine -------------------------------------------------------------------------- */

static struct sockaddr_storage address_of(const char *text) {
    struct sockaddr_storage address;
    memset(&address, 0, sizeof(address));
    if (uv_ip4_addr(text, 4747, (struct sockaddr_in *)&address) != 0)
        assert_int_equal(uv_ip6_addr(text, 4747, (struct sockaddr_in6 *)&address), 0);
    return address;
}

static void pick_is(const uv_interface_address_t *list, int count, const char *interface,
                    int family, const char *expected) {
    struct sockaddr_storage found;
    char host[INET6_ADDRSTRLEN] = "";
    if (tw_local_address_pick(list, count, interface, family, &found)) {
        assert_int_equal(found.ss_family, family);
        assert_int_equal(uv_ip_name((const struct sockaddr *)&found, host, sizeof(host)), 0);
    }
    assert_string_equal(host, expected);
}

/* In an isolated network, without a default route. */
WORLD_TEST(interface_gives_the_address_where_there_is_no_way_out) {
    static const struct {
        const char *name, *address;
        int is_internal;
    } rows[] = {{"lo", "127.0.0.1", 1},  {"lo", "::1", 1},        {"eth0", "169.254.3.4", 0},
                {"eth0", "fe80::1", 0},  {"eth1", "10.9.0.1", 0}, {"eth1", "fd00:9::1", 0},
                {"eth2", "192.0.2.5", 0}};
    enum { COUNT = sizeof(rows) / sizeof(rows[0]) };
    uv_interface_address_t list[COUNT];
    memset(list, 0, sizeof(list));
    for (unsigned i = 0; i < COUNT; i++) {
        const struct sockaddr_storage address = address_of(rows[i].address);
        list[i].name = (char *)(uintptr_t)rows[i].name;
        list[i].is_internal = rows[i].is_internal;
        memcpy(&list[i].address, &address, sizeof(list[i].address));
    }
    pick_is(list, COUNT, "", AF_INET, "10.9.0.1");
    pick_is(list, COUNT, "", AF_INET6, "fd00:9::1");
    pick_is(list, COUNT, "eth2", AF_INET, "192.0.2.5");
    pick_is(list, COUNT, "eth2", AF_INET6, "");
    pick_is(list, COUNT, "eth0", AF_INET, "");
    pick_is(list, 4, "", AF_INET, "");
    pick_is(list, 0, "", AF_INET6, "");
}

static void give_network(uv_interface_address_t *row, const char *address, const char *mask) {
    const struct sockaddr_storage at = address_of(address), within = address_of(mask);
    *row = (uv_interface_address_t){.is_internal = false};
    memcpy(&row->address, &at, sizeof(row->address));
    memcpy(&row->netmask, &within, sizeof(row->netmask));
}

WORLD_TEST(neighbours_are_told_from_others) {
    static const char *const near[] = {"10.9.255.7:1", "10.9.0.1:1", "[fd00:9::7]:1"};
    static const char *const far[] = {"10.8.0.1:1",        "127.0.0.1:1",    "198.51.100.7:1",
                                      "[fd00:9:0:1::7]:1", "node.example:1", "nonsense"};
    uv_interface_address_t list[3];
    give_network(&list[0], "127.0.0.1", "255.0.0.0");
    list[0].is_internal = true;
    give_network(&list[1], "10.9.0.1", "255.255.0.0");
    give_network(&list[2], "fd00:9::1", "ffff:ffff:ffff:ffff::");
    for (unsigned i = 0; i < sizeof(near) / sizeof(near[0]); i++)
        if (!tw_local_address_is_on_link(list, 3, near[i])) fail_msg("%s", near[i]);
    for (unsigned i = 0; i < sizeof(far) / sizeof(far[0]); i++)
        if (tw_local_address_is_on_link(list, 3, far[i])) fail_msg("%s", far[i]);
    assert_false(tw_local_address_is_on_link(NULL, 0, near[0]));
    struct sockaddr_storage remote = address_of("10.9.200.1");
    assert_true(tw_local_address_is_near(list, 3, &remote));
    remote = address_of("10.8.0.1");
    assert_false(tw_local_address_is_near(list, 3, &remote));
    remote = address_of("fd00:9::77");
    assert_true(tw_local_address_is_near(list, 3, &remote));
    assert_int_equal(tw_local_address_judge(TW_DIAL_CLOSED, &remote), TW_DIAL_CLOSED);
}

WORLD_TEST(own_addresses_are_told_from_others) {
    struct sockaddr_storage address = address_of("127.0.0.1");
    assert_true(tw_local_address_is(&address));
    address = address_of("192.0.2.1");
    assert_false(tw_local_address_is(&address));
    if (!has_ipv6()) skip();
    address = address_of("::ffff:127.0.0.1"); /* the form that a dual-stack socket reports */
    assert_true(tw_local_address_is(&address));
    address = address_of("::ffff:192.0.2.1");
    assert_false(tw_local_address_is(&address));
    address = address_of("2001:db8::1");
    assert_false(tw_local_address_is(&address));
}

static bool announces(const struct world_node *node, const char *address) {
    const struct tw_member_row *self = tw_transport_self(node->transport);
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++) {
        if (strcmp(self->addrs[i], address) == 0) return true;
    }
    return false;
}

WORLD_TEST(address_at_the_router_is_announced_while_it_is_there) {
    struct world_node *a = world_start(&world, 0, NULL);
    assert_true(tw_transport_set_mapped(a->transport, "11.0.0.3:4747"));
    assert_false(tw_transport_set_mapped(a->transport, "11.0.0.3:4747"));
    assert_true(tw_transport_refresh(a->transport));
    assert_true(announces(a, "11.0.0.3:4747"));
    struct world_node *b = world_start(&world, 1, NULL);
    dial(b, "127.0.0.1", a, 0);
    world_run(&world, both_have_bulk);
    assert_string_equal(b->records[world_peer_of(b, a)].addrs[1], "11.0.0.3:4747");
    assert_true(tw_transport_set_mapped(a->transport, ""));
    assert_true(tw_transport_refresh(a->transport));
    assert_false(announces(a, "11.0.0.3:4747"));
}

WORLD_TEST(only_private_ipv4_addresses_need_a_router) {
    char host[TW_ADDR_BYTES];
    uint16_t port = 0;
    struct world_node *a = world_start(&world, 0, NULL); /* on loopback */
    assert_false(tw_transport_inner(a->transport, host, &port));
    struct world_node *b = world_start(&world, 1, dials_only);
    assert_false(tw_transport_inner(b->transport, host, &port));
}

WORLD_TEST(refresh_without_a_change_changes_nothing) {
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, NULL);
    dial(a, "127.0.0.1", b, 0);
    world_run(&world, both_have_bulk);
    assert_false(tw_transport_refresh(a->transport));
    assert_false(tw_transport_refresh(b->transport));
    world_turn(&world, 5);
    assert_int_equal(a->downs + b->downs, 0);
}

/* The resolver reads the name "2130706433" as 127.0.0.1. Any name that resolves to this machine
 * would do. */
WORLD_TEST(name_of_this_machine_is_not_dialled_by_hearsay) {
    struct tw_error err;
    char address[64];
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    (void)snprintf(address, sizeof(address), "2130706433:%u",
                   (unsigned)tw_transport_port(b->transport, 0));
    assert_int_equal(tw_transport_connect_hearsay(a->transport, address, NULL, &err), TW_OK);
    world_run(&world, a_dial_is_over);
    assert_int_equal(a->dial_cause, TW_DIAL_DNS);
    has_word(a->dial_sentence, "means this machine");
    assert_int_equal(a->ups, 0);
    assert_int_equal(tw_transport_connect(a->transport, address, NULL, &err), TW_OK);
    world_run(&world, both_have_bulk);
}

WORLD_TEST(address_without_a_line_is_offline) {
    struct sockaddr_storage own;
    memset(&own, 0, sizeof(own));
    assert_int_equal(uv_ip4_addr("127.0.0.1", 9, (struct sockaddr_in *)&own), 0);
    assert_true(tw_local_address_has_line(&own));
    assert_int_equal(uv_ip6_addr("::ffff:127.0.0.1", 9, (struct sockaddr_in6 *)&own), 0);
    assert_true(tw_local_address_has_line(&own));
    assert_int_equal(uv_ip4_addr("192.0.2.7", 9, (struct sockaddr_in *)&own), 0);
    assert_false(tw_local_address_has_line(&own)); /* gone: a lease ended, a cable was pulled */
}
