/* test_refused.c - lineages that a node refuses, because its operator rolled it back. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* A node that was rolled back stays away from the spoilt lineage and its children, though their run
 * clocks are far ahead. Once all nodes are rolled back, they form a group again. */
TEST(rolled_back_node_does_not_return) {
    struct tw_position positions[3];
    struct mesh_worker saved[3];
    mesh_init(&mesh, 3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    for (uint32_t i = 0; i < 3; i++) {
        tw_node_position(mesh.nodes[i], &positions[i]);
        saved[i] = mesh.workers[i];
    }
    const struct tw_id spoilt = positions[0].lineage;
    mesh_run(&mesh, SECONDS(30));
    mesh.config.refused_count = 1;
    mesh.config.refused[0] = spoilt;
    mesh_kill(&mesh, 0);
    mesh_run(&mesh, SECONDS(1));
    mesh.workers[0] = saved[0];
    mesh_start(&mesh, 0, &positions[0]);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    const struct tw_node_view early = mesh_view(&mesh, 0), other = mesh_view(&mesh, 1);
    assert_int_equal(early.state, TW_STATE_SOLO);
    assert_memory_not_equal(&early.lineage, &spoilt, sizeof(spoilt));
    assert_in_range(early.rounds, positions[0].rounds, other.rounds);
    assert_memory_equal(&other.lineage, &spoilt, sizeof(spoilt));
    mesh_unlink(&mesh, 1, 2); /* nodes 1 and 2 both found children of the spoilt lineage */
    mesh_run(&mesh, SECONDS(300));
    const struct tw_node_view late = mesh_view(&mesh, 0), child = mesh_view(&mesh, 1);
    assert_memory_not_equal(&child.lineage, &spoilt, sizeof(spoilt));
    assert_true(child.clock_tokens > late.clock_tokens);
    assert_memory_equal(&late.lineage, &early.lineage, sizeof(spoilt));
    for (uint32_t i = 1; i < 3; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(1));
    for (uint32_t i = 1; i < 3; i++) {
        mesh.workers[i] = saved[i];
        mesh_start(&mesh, i, &positions[i]);
    }
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, 3);
        assert_memory_not_equal(&view.lineage, &spoilt, sizeof(spoilt));
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_deinit(&mesh);
}
