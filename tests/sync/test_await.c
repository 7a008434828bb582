/* test_await.c - a node that waits for the state of its run, because the owner recalled it. */

#include "base/hash.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* Nodes 0 and 1 train; nodes 2 and 3 wait. */
static void open_mesh(void) {
    mesh_init(&mesh, 4, 3);
    for (uint32_t i = 2; i < 4; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(1));
    mesh.config.awaited = tw_sha256("recall", 6);
    for (uint32_t i = 2; i < 4; i++) mesh_start(&mesh, i, NULL);
}

static void assert_waits(uint32_t node) {
    const struct tw_node_view view = mesh_view(&mesh, node);
    assert_int_equal(view.state, TW_STATE_RECEIVER);
    assert_memory_equal(&view.lineage, &mesh.config.awaited, sizeof(view.lineage));
    assert_int_equal(view.rounds, 0);
}

TEST(waiting_nodes_found_nothing) {
    open_mesh();
    mesh_link(&mesh, 2, 3);
    mesh_run(&mesh, SECONDS(1));
    const uint32_t reported[] = {mesh.forks[2], mesh.forks[3]};
    mesh_run(&mesh, SECONDS(600));
    for (uint32_t i = 2; i < 4; i++) {
        assert_waits(i);
        assert_int_equal(mesh.forks[i], reported[i - 2]);
    }
    mesh_deinit(&mesh);
}

TEST(waiting_nodes_follow_the_first_that_trained) {
    open_mesh();
    mesh_link(&mesh, 0, 1);
    mesh_link(&mesh, 2, 3);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_memory_equal(&view.lineage, &lineage, sizeof(lineage));
        assert_int_equal(view.roster_count, 4);
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_deinit(&mesh);
}

/* A peer that has trained nothing has no better state, so the waiting node does not follow it. */
TEST(waiting_node_follows_no_newcomer) {
    open_mesh();
    const struct tw_id awaited = mesh.config.awaited;
    mesh_kill(&mesh, 0);
    mesh_run(&mesh, SECONDS(1));
    mesh.step_us[0] = SECONDS(3600);
    mesh.config.awaited = (struct tw_id){{0}};
    mesh_start(&mesh, 0, NULL);
    mesh.config.awaited = awaited;
    mesh_link(&mesh, 0, 2);
    mesh_run(&mesh, SECONDS(300));
    assert_int_equal(mesh_view(&mesh, 0).state, TW_STATE_SOLO);
    assert_int_equal(mesh_view(&mesh, 0).clock_tokens, 0);
    assert_waits(2);
    mesh_deinit(&mesh);
}

/* The only peer of the followed lineage disappears before its state has arrived. The node waits
 * again. */
TEST(node_whose_donors_are_gone_waits_again) {
    open_mesh();
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(60));
    mesh_link(&mesh, 0, 2);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct tw_node_view view = mesh_view(&mesh, 2);
        if (memcmp(&view.lineage, &mesh.config.awaited, sizeof(view.lineage)) != 0) break;
        mesh_run(&mesh, SECONDS(1) / 100);
    }
    const struct tw_node_view followed = mesh_view(&mesh, 2);
    assert_memory_not_equal(&followed.lineage, &mesh.config.awaited, sizeof(followed.lineage));
    assert_int_equal(followed.state, TW_STATE_RECEIVER);
    mesh_unlink(&mesh, 0, 2);
    mesh_run(&mesh, SECONDS(600));
    assert_waits(2);
    mesh_deinit(&mesh);
}
