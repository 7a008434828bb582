/* test_lineages.c - honest lineages that meet: which one remains. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

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
TEST(smaller_side_follows_the_larger_one) {
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

TEST(sides_of_about_one_size_go_by_the_clock) {
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

/* Neither has decided a round. The node that has trained keeps its work, with the larger id too;
 * of two that have trained about as much, either may give way. */
TEST(newcomer_does_not_replace_the_first_steps) {
    for (uint32_t first = 0; first < 2; first++) {
        mesh_init(&mesh, 2, 3);
        mesh.config.period_steps = 1000;
        for (uint32_t i = 0; i < 2; i++) {
            mesh_kill(&mesh, i);
            mesh_start(&mesh, i, NULL);
        }
        mesh.step_us[1 - first] = SECONDS(30);
        mesh_run(&mesh, SECONDS(20));
        const struct tw_node_view owner = mesh_view(&mesh, first);
        assert_true(owner.step > 100 && owner.rounds == 0);
        assert_true(mesh_view(&mesh, 1 - first).step < 2);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(30));
        const struct tw_node_view after = mesh_view(&mesh, 1 - first);
        assert_memory_equal(&after.lineage, &owner.lineage, sizeof(owner.lineage));
        const struct tw_node_view kept = mesh_view(&mesh, first);
        assert_memory_equal(&kept.lineage, &owner.lineage, sizeof(owner.lineage));
        mesh_deinit(&mesh);
    }
}

/* Counts that grow at one speed on both sides hold up nobody: the classes soon agree. */
TEST(two_that_train_alike_are_soon_one_group) {
    for (uint32_t seconds = 1; seconds < 12; seconds++) {
        mesh_init(&mesh, 2, 3);
        mesh_run(&mesh, SECONDS(1) / 2 + seconds * SECONDS(1) / 10);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(30));
        const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
        assert_one_group(&lineage, 2);
        mesh_deinit(&mesh);
    }
}

/* Ids are free, and so is a history that they make: it draws no member of an old group away. Those
 * that the group knows from a roster may do so. */
TEST(strangers_draw_nobody_out_of_an_old_group) {
    mesh_init(&mesh, 8, 3);
    for (uint32_t i = 3; i < 8; i++) mesh.step_us[i] = SECONDS(1) / 20;
    link_group(0, 3);
    link_group(3, 8);
    mesh_run(&mesh, SECONDS(300));
    const struct tw_node_view ours = mesh_view(&mesh, 0), theirs = mesh_view(&mesh, 3);
    assert_true(ours.rounds > TW_GROUP_OLD && theirs.clock_tokens > ours.clock_tokens);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, 3);
        assert_memory_equal(&view.lineage, &ours.lineage, sizeof(ours.lineage));
        assert_true(view.rounds > ours.rounds);
    }
    mesh_deinit(&mesh);
}

/* Node 0 is the centre of a star. A lone node with a larger run clock is linked to node 0 only. */
TEST(lone_node_joins_a_star) {
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
TEST(restarted_group_keeps_its_lineage) {
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

static bool is_group_of(uint32_t count) {
    bool is_so = true;
    for (uint32_t i = 0; i < count; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        is_so &= view.state == TW_STATE_MEMBER && view.mixed == count - 1;
    }
    return is_so;
}

/* Takes a checkpoint of node i after pauses_us[i], then kills all. The first `back_count` nodes
 * restart from their checkpoints. Returns the run clock of the newest of these. */
static uint64_t cut_the_power(const uint64_t *pauses_us, uint32_t back_count) {
    struct tw_position positions[MESH_NODES_MAX];
    struct mesh_worker saved[MESH_NODES_MAX];
    uint64_t newest_tokens = 0;
    for (uint32_t i = 0; i < mesh.nodes_count; i++) {
        mesh_run(&mesh, pauses_us[i]);
        tw_node_position(mesh.nodes[i], &positions[i]);
        saved[i] = mesh.workers[i];
    }
    mesh_run(&mesh, pauses_us[mesh.nodes_count]);
    for (uint32_t i = 0; i < mesh.nodes_count; i++) mesh_kill(&mesh, i);
    for (uint32_t i = 0; i < back_count; i++) {
        if (positions[i].tip.clock_tokens > newest_tokens)
            newest_tokens = positions[i].tip.clock_tokens;
        mesh.workers[i] = saved[i];
        mesh_start(&mesh, i, &positions[i]);
    }
    /* Links come up one after the other, those of the newest checkpoint first. */
    for (uint32_t i = back_count; i-- > 0;) {
        for (uint32_t k = 0; k < i; k++) {
            mesh_run(&mesh, SECONDS(1) / 4);
            mesh_link(&mesh, k, i);
        }
    }
    return newest_tokens;
}

/* Cuts the power of `nodes` nodes after 30 s of training. Asserts that those that come back are one
 * group within `patience_us`, and go on from the newest checkpoint. */
static void assert_goes_on(uint32_t nodes, const uint64_t *pauses_us, uint32_t back_count,
                           uint64_t patience_us) {
    mesh_init(&mesh, nodes, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    const uint64_t newest_tokens = cut_the_power(pauses_us, back_count);
    assert_true(newest_tokens > 0);
    mesh_run(&mesh, patience_us);
    assert_true(is_group_of(back_count));
    assert_true(mesh_view(&mesh, 0).clock_tokens >= newest_tokens);
    mesh_deinit(&mesh);
}

/* The newest checkpoint is some rounds older than the power cut. Nobody waits for a state that
 * nobody has: a wait for lost members lasts 10 s. */
TEST(group_begins_at_once_at_its_newest_checkpoint) {
    const uint64_t pauses_us[] = {SECONDS(1), SECONDS(3), SECONDS(2), SECONDS(4), SECONDS(3)};
    for (uint32_t nodes = 2; nodes <= 4; nodes++)
        assert_goes_on(nodes, pauses_us, nodes, SECONDS(6));
}

/* The last checkpoint, of one member, is of the round in which all are killed. The other members
 * are behind, and one of five is no proof to them. */
TEST(checkpoint_of_one_member_is_enough) {
    const uint64_t pauses_us[] = {0, SECONDS(2), SECONDS(3), SECONDS(2), SECONDS(9), 0};
    assert_goes_on(5, pauses_us, 5, SECONDS(30));
}

/* Machines that come back are a majority, and go on without the one that does not. */
TEST(majority_does_not_wait_for_a_dead_machine) {
    const uint64_t pauses_us[] = {SECONDS(1), SECONDS(3), SECONDS(2),
                                  SECONDS(4), SECONDS(3), SECONDS(3)};
    assert_goes_on(3, pauses_us, 2, SECONDS(40));
    assert_goes_on(5, pauses_us, 4, SECONDS(40));
}
