/* test_parting.c - members that leave, with a goodbye or without, and how long the others wait. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

TEST(goodbye_of_the_only_peer_costs_no_time) {
    mesh_init(&mesh, 2, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh_leave(&mesh, 1);
    const struct tw_node_view before = mesh_view(&mesh, 0);
    mesh_run(&mesh, SECONDS(20));
    const struct tw_node_view after = mesh_view(&mesh, 0);
    assert_int_equal(after.state, TW_STATE_SOLO);
    assert_true(after.rounds > before.rounds + 10);
    mesh_deinit(&mesh);
}

/* Half of the members leave at once. The rest have no majority to drop them from the roster, but
 * need not wait either. */
TEST(goodbye_of_half_the_group_costs_no_time) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh_leave(&mesh, 3);
    mesh_leave(&mesh, 2);
    mesh_run(&mesh, SECONDS(30));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_MEMBER);
        assert_int_equal(mesh_view(&mesh, i).mixed, 1);
    }
    assert_true(mesh_agree(&mesh, 0, 1));
    mesh_deinit(&mesh);
}

/* Node 1 leaves by calling `how`, and is back 0.2 s later without a checkpoint. */
static void go_and_come_back(void (*how)(struct mesh *mesh, uint32_t node)) {
    how(&mesh, 1);
    mesh_run(&mesh, SECONDS(1) / 5);
    mesh_start(&mesh, 1, NULL);
    mesh_link_all(&mesh);
}

static void open_two_that_meet_again(void) {
    mesh_init(&mesh, 2, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(20));
    go_and_come_back(mesh_leave);
}

/* A node that leaves while it is being admitted may not know that it has a seat. It returns
 * under a new nonce, and the other node is left with a seat that will never vote. */
TEST(node_that_leaves_during_its_admission_is_admitted_again) {
    open_two_that_meet_again();
    while (mesh_view(&mesh, 0).roster_count < 2) mesh_run(&mesh, 1000);
    const uint64_t admitted_us = mesh.now_us;
    mesh_deinit(&mesh);
    for (uint32_t is_killed = 0; is_killed < 2; is_killed++) {
        for (uint64_t early_us = 0; early_us <= 60000; early_us += 2000) {
            open_two_that_meet_again();
            mesh_run(&mesh, admitted_us + 30000 - early_us - mesh.now_us);
            go_and_come_back(is_killed != 0 ? mesh_kill : mesh_leave);
            mesh_run(&mesh, SECONDS(25));
            assert_int_equal(mesh_view(&mesh, 1).state, TW_STATE_MEMBER);
            assert_int_equal(mesh_view(&mesh, 1).mixed, 1);
            assert_true(mesh_agree(&mesh, 0, 1));
            mesh_deinit(&mesh);
        }
    }
}
