#include "tests/daemon/world.h"
#include "tests/test.h"

static struct world world;

static int setup(void **state) {
    (void)state;
    world_init(&world);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    world_deinit(&world);
    return 0;
}

static bool a_dial_is_over(struct world *w) {
    return w->nodes[0].dials + w->nodes[1].dials > 0;
}

static bool both_have_bulk(struct world *w) {
    return world_has_bulk(&w->nodes[0]) && world_has_bulk(&w->nodes[1]);
}

static void pair_up(void) {
    world_dial(&world.nodes[0], &world.nodes[1]);
    world_run(&world, both_have_bulk);
}

static void two_nodes_meet_on_two_connections(void **state) {
    (void)state;
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    pair_up();
    assert_int_equal(a->ups, 1);
    assert_int_equal(b->ups, 1);
    assert_int_equal(a->downs + b->downs, 0);
    assert_int_equal(a->dials, 1);
    assert_int_equal(a->dial_status, TW_OK);
    assert_true(a->has_dial_id && tw_id_equal(&a->dial_id, &b->identity.id));
    const int at = world_peer_of(a, b);
    assert_true(at >= 0);
    /* The other side said where it listens. */
    assert_int_equal(strncmp(a->records[at].addrs[0], "127.0.0.1:", 10), 0);
    struct tw_peer_net net;
    assert_true(tw_transport_peer(a->transport, (uint16_t)at, &net));
    assert_true(net.is_dialled && net.has_bulk);
    assert_true(net.rtt_us > 0);
    assert_true(net.congestion[0] != '\0');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_nodes_meet_on_two_connections, setup, teardown),
    };
    (void)both_have_bulk;
    (void)a_dial_is_over;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
