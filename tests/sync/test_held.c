/* test_held.c - a node counts only rounds whose state it has held. Giving up a transfer, a restart
 * or a missing worker must not let the node claim more rounds. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

/* Node 0 has trained for 200 s; its position is saved in this struct. Node 1 has trained for 8 s
 * and is fetching the state of node 0, which takes ten minutes to arrive. */
static struct {
    struct tw_position position;
    struct mesh_worker worker;
    uint64_t clock_tokens; /* run clock of node 1 before the two met */
} before;

static void save_node(uint32_t node) {
    tw_node_position(mesh.nodes[node], &before.position);
    before.worker = mesh.workers[node];
}

static void begin_a_long_transfer(bool is_pair, uint64_t budget) {
    mesh_init(&mesh, 2, 3);
    mesh_kill(&mesh, 0);
    mesh_kill(&mesh, 1);
    mesh.config.is_pair = is_pair;
    mesh.config.step_tokens = 100;
    mesh.config.budget_tokens = budget;
    mesh_start(&mesh, 0, NULL);
    mesh_run(&mesh, SECONDS(200));
    save_node(0);
    mesh.state_us[1] = SECONDS(600);
    mesh_start(&mesh, 1, NULL);
    mesh_run(&mesh, SECONDS(8));
    before.clock_tokens = mesh_view(&mesh, 1).clock_tokens;
    assert_in_range(before.clock_tokens, 6000, 8000);
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(5));
    assert_int_equal(mesh_view(&mesh, 1).state, TW_STATE_RECEIVER);
    assert_true(mesh_view(&mesh, 1).clock_tokens > 190000);
}

static void wait_until_node_1_gives_up(void) {
    while (mesh_view(&mesh, 1).state == TW_STATE_RECEIVER) mesh_run(&mesh, SECONDS(1));
    mesh_run(&mesh, SECONDS(8));
}

/* Node 1 has gone on alone from its own training and counts little more than two minutes of it.
 * Node 0 restarts from its saved position, and both end up in its lineage. */
static void assert_lineage_of_node_0_wins(void) {
    const struct tw_node_view gave_up = mesh_view(&mesh, 1);
    assert_int_equal(gave_up.state, TW_STATE_SOLO);
    assert_in_range(gave_up.clock_tokens, before.clock_tokens, before.clock_tokens + 135000);
    assert_false(mesh.workers[1].is_finished);
    mesh.workers[0] = before.worker;
    mesh_start(&mesh, 0, &before.position);
    const struct tw_id lineage = mesh_view(&mesh, 0).lineage;
    mesh.state_us[1] = 0;
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(20));
    if (!mesh.config.is_pair) {
        const struct tw_node_view zero = mesh_view(&mesh, 0), one = mesh_view(&mesh, 1);
        assert_memory_equal(&zero.lineage, &lineage, sizeof(lineage));
        assert_memory_equal(&one.lineage, &lineage, sizeof(lineage));
        assert_true(mesh_agree(&mesh, 0, 1));
    }
    mesh_deinit(&mesh);
}

TEST(node_that_gives_up_a_transfer_counts_its_own_rounds_only) {
    static const uint64_t budgets[] = {UINT64_MAX,
                                       195000}; /* with the second budget, node 0 has finished */
    for (unsigned i = 0; i < 2; i++) {
        begin_a_long_transfer(false, budgets[i]);
        mesh_kill(&mesh, 0);
        wait_until_node_1_gives_up();
        assert_lineage_of_node_0_wins();
    }
}

TEST(node_restarted_in_a_transfer_counts_its_own_rounds_only) {
    begin_a_long_transfer(false, UINT64_MAX);
    struct tw_position position;
    tw_node_position(mesh.nodes[1], &position);
    mesh_kill(&mesh, 0);
    mesh_kill(&mesh, 1);
    mesh_start(&mesh, 1, &position);
    wait_until_node_1_gives_up();
    assert_lineage_of_node_0_wins();
}

TEST(pair_node_that_gives_up_a_transfer_counts_its_own_rounds_only) {
    begin_a_long_transfer(true, UINT64_MAX);
    mesh_kill(&mesh, 0);
    wait_until_node_1_gives_up();
    assert_lineage_of_node_0_wins();
}

/* A member without a worker still votes, but its weights do not change. */
TEST(member_without_a_worker_counts_its_own_rounds_only) {
    mesh_init(&mesh, 3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh_stop_worker(&mesh, 2);
    const uint64_t clock_tokens = mesh_view(&mesh, 2).clock_tokens;
    mesh_run(&mesh, SECONDS(60));
    assert_int_equal(mesh_view(&mesh, 2).state, TW_STATE_MEMBER);
    assert_true(mesh_view(&mesh, 2).clock_tokens > clock_tokens + 100000);
    mesh_kill(&mesh, 0);
    mesh_kill(&mesh, 1);
    mesh_run(&mesh, SECONDS(130));
    assert_int_equal(mesh_view(&mesh, 2).state, TW_STATE_SOLO);
    assert_in_range(mesh_view(&mesh, 2).clock_tokens, clock_tokens - 10000, clock_tokens + 10000);
    mesh_deinit(&mesh);
}

/* A receiver whose donor is gone does not adopt a lineage that has trained less than its own. */
TEST(receiver_without_its_donor_adopts_no_lesser_lineage) {
    begin_a_long_transfer(false, UINT64_MAX);
    mesh_kill(&mesh, 0);
    mesh_run(&mesh, SECONDS(1));
    mesh.step_us[0] *= 10;
    mesh_start(&mesh, 0, NULL);
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(15)); /* long enough for node 0 to ask another holder */
    const struct tw_node_view fresh = mesh_view(&mesh, 0), one = mesh_view(&mesh, 1);
    assert_int_equal(fresh.state, TW_STATE_SOLO);
    assert_memory_not_equal(&fresh.lineage, &one.lineage, sizeof(one.lineage));
    mesh_run(&mesh, SECONDS(130));
    assert_true(mesh_agree(&mesh, 0, 1));
    assert_true(mesh_view(&mesh, 0).clock_tokens > before.clock_tokens);
    mesh_deinit(&mesh);
}

/* A lone node without a worker cannot hand out its state, so no node may follow it: the follower
 * would wait until the worker is back. */
TEST(nobody_waits_for_a_node_without_a_worker) {
    mesh_init(&mesh, 2, 3);
    mesh.step_us[1] *= 4;
    mesh_run(&mesh, SECONDS(60));
    mesh_stop_worker(&mesh, 0);
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(30));
    const struct tw_node_view early = mesh_view(&mesh, 1);
    mesh_run(&mesh, SECONDS(30));
    const struct tw_node_view after = mesh_view(&mesh, 1);
    assert_int_equal(after.state, TW_STATE_SOLO);
    assert_true(after.clock_tokens > early.clock_tokens);
    mesh_start_worker(&mesh, 0);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 2; i++) assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_MEMBER);
    mesh_deinit(&mesh);
}
