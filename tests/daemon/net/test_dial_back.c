/* Tests of tw_transport_dial_back in daemon/net/dialer.c. A peer may choose only a few ports, of
 * its own host alone. */
#include "daemon/net/bans.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

/* Makes the node announce addresses of other hosts, a host name, and a wildcard. */
static void announcing_others(struct tw_transport_config *config) {
    static const char *const addrs[TW_ADDRS_MAX] = {"192.0.2.1:80", "localhost:80", "[::1]:22",
                                                    "0.0.0.0:22"};
    for (unsigned i = 0; i < TW_ADDRS_MAX; i++)
        (void)snprintf(config->advertise[i], TW_ADDR_BYTES, "%s", addrs[i]);
}

/* Links b to a, and returns the number of peer b at a. */
static uint16_t link_up(struct world_node *a, struct world_node *b) {
    world_dial(b, a);
    WAIT_WHILE(&world, world_peer_of(a, b) < 0 || world_peer_of(b, a) < 0);
    return (uint16_t)world_peer_of(a, b);
}

static void link_down(struct world_node *a, struct world_node *b) {
    tw_transport_close(b->transport, (uint16_t)world_peer_of(b, a), TW_OK, "on to the next");
    WAIT_WHILE(&world, world_peers(a) > 0 || world_peers(b) > 0);
}

WORLD_TEST(only_the_host_that_is_seen_is_dialled) {
    char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES];
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, announcing_others);
    const uint16_t peer = link_up(a, b);
    assert_int_equal(tw_transport_dial_back(a->transport, peer, dialled), 2);
    assert_string_equal(dialled[0], "127.0.0.1:80");
    assert_string_equal(dialled[1], "127.0.0.1:22"); /* each port once */
    WAIT_WHILE(&world, a->probes < 2);
}

WORLD_TEST(peer_that_can_be_dialled_is_reached) {
    char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES];
    struct world_node *a = world_start(&world, 0, NULL);
    struct world_node *b = world_start(&world, 1, NULL);
    const uint16_t peer = link_up(a, b);
    assert_int_equal(tw_transport_dial_back(a->transport, peer, dialled), 1);
    WAIT_WHILE(&world, a->probes < 1);
    assert_int_equal(a->probe_status, TW_OK);
}

WORLD_TEST(fresh_link_has_no_fresh_allowance) {
    char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES];
    struct world_node *a = world_start(&world, 0, NULL);
    uint32_t count = 0;
    for (unsigned i = 1; i < WORLD_NODES_MAX; i++) {
        struct world_node *b = world_start(&world, i, announcing_others);
        count += tw_transport_dial_back(a->transport, link_up(a, b), dialled);
        link_down(a, b);
    }
    assert_int_equal(count, TW_DIAL_BACKS_BURST);
    WAIT_WHILE(&world, a->probes < count);
}
