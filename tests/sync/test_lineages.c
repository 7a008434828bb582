/* test_lineages.c - honest lineages that meet: which one remains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sync/mesh.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* Nodes [begin, end) are linked to each other. */
static void link_group(uint32_t begin, uint32_t end) {
    for (uint32_t a = begin; a < end; a++)
        for (uint32_t b = a + 1; b < end; b++) mesh_link(&mesh, a, b);
}

static void assert_one_group(const struct tw_id *lineage, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, count);
        assert_memory_equal(&view.lineage, lineage, sizeof(*lineage));
        assert_true(mesh_agree(&mesh, 0, i));
    }
}

/* Six slow nodes meet two fast ones, whose run clock is ahead. */
static void smaller_side_follows_the_larger_one(void **state) {
    (void)state;
    mesh_init(&mesh, 8, 3);
    for (uint32_t i = 0; i < 6; i++) mesh.step_us[i] = SECONDS(1);
    link_group(0, 6);
    link_group(6, 8);
    mesh_run(&mesh, SECONDS(120));
    const struct tw_node_view slow = mesh_view(&mesh, 0), fast = mesh_view(&mesh, 6);
    assert_true(fast.clock_tokens > slow.clock_tokens);
    assert_int_equal(slow.roster_count, 6);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_one_group(&slow.lineage, 8);
    mesh_deinit(&mesh);
}

static void sides_of_about_one_size_go_by_the_clock(void **state) {
    (void)state;
    mesh_init(&mesh, 8, 3);
    for (uint32_t i = 0; i < 5; i++) mesh.step_us[i] = SECONDS(1);
    link_group(0, 5);
    link_group(5, 8);
    mesh_run(&mesh, SECONDS(120));
    const struct tw_node_view slow = mesh_view(&mesh, 0), fast = mesh_view(&mesh, 5);
    assert_true(fast.clock_tokens > slow.clock_tokens);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_one_group(&fast.lineage, 8);
    mesh_deinit(&mesh);
}

/* Node 0 is the centre of a star. A lone node with a larger run clock is linked to node 0 only. */
static void lone_node_joins_a_star(void **state) {
    (void)state;
    mesh_init(&mesh, 7, 3);
    for (uint32_t i = 0; i < 6; i++) mesh.step_us[i] = SECONDS(1);
    for (uint32_t i = 1; i < 6; i++) mesh_link(&mesh, 0, i);
    mesh_run(&mesh, SECONDS(120));
    const struct tw_node_view star = mesh_view(&mesh, 0), alone = mesh_view(&mesh, 6);
    assert_int_equal(star.roster_count, 6);
    assert_true(alone.clock_tokens > star.clock_tokens);
    mesh_link(&mesh, 0, 6);
    mesh_run(&mesh, SECONDS(60));
    assert_one_group(&star.lineage, 7);
    mesh_deinit(&mesh);
}

/* All members restart from their checkpoints, with only the newest record in their logs. A lone
 * node finds the group as soon as the group has decided a round. */
static void restarted_group_keeps_its_lineage(void **state) {
    (void)state;
    struct tw_position positions[5];
    struct mesh_worker workers[5];
    mesh_init(&mesh, 6, 3);
    for (uint32_t i = 0; i < 5; i++) mesh.step_us[i] = SECONDS(1);
    link_group(0, 5);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
    for (uint32_t i = 0; i < 5; i++) {
        tw_node_position(mesh.nodes[i], &positions[i]);
        workers[i] = mesh.workers[i];
    }
    for (uint32_t i = 0; i < 5; i++) mesh_kill(&mesh, i);
    mesh_run(&mesh, SECONDS(1));
    for (uint32_t i = 0; i < 5; i++) {
        mesh.workers[i] = workers[i];
        mesh_start(&mesh, i, &positions[i]);
    }
    assert_true(mesh_view(&mesh, 5).clock_tokens > mesh_view(&mesh, 0).clock_tokens);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_one_group(&lineage, 6);
    mesh_deinit(&mesh);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaller_side_follows_the_larger_one),
        cmocka_unit_test(sides_of_about_one_size_go_by_the_clock),
        cmocka_unit_test(lone_node_joins_a_star),
        cmocka_unit_test(restarted_group_keeps_its_lineage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
