/* test_node.c - the core among honest peers: the behaviour that an operator expects. */

#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;

TEST(lone_node_trains_in_solo_rounds) {
    mesh_init(&mesh, 1, 3);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_int_equal(view.state, TW_STATE_SOLO);
    assert_in_range(view.rounds, 40, 60);
    assert_in_range(view.clock_tokens, 50000, 60000);
    mesh_deinit(&mesh);
}

/* Starts `started` of the `nodes`. Their run is for three nodes; the first `together` tokens of
 * `budget` are trained together, the rest apart. */
static void start_parting(uint32_t nodes, uint32_t started, uint64_t together, uint64_t budget) {
    mesh_init(&mesh, nodes, 3);
    mesh.config.alone_nodes = 3;
    mesh.config.together_tokens = together;
    mesh.config.budget_tokens = budget;
    for (uint32_t i = 0; i < nodes; i++) {
        mesh_kill(&mesh, i);
        if (i < started) mesh_start(&mesh, i, NULL);
    }
}

/* Topology solo: the nodes are linked, but each trains an equal part of the budget alone. */
TEST(solo_nodes_train_an_equal_share_each) {
    start_parting(3, 3, 0, 90000);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(20));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_SOLO);
        assert_int_equal(view.alive, 2);
        assert_int_equal(view.mixed, 0);
        assert_int_equal(view.clock_tokens % 3, 0);
        assert_in_range(view.clock_tokens, 3 * 15000, 3 * 20000);
    }
    mesh_run(&mesh, SECONDS(20));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_FINISHED);
        assert_in_range(view.tokens, 30000, 32000);
        assert_true(mesh.workers[i].is_finished);
        for (uint32_t j = 0; j < i; j++) {
            const struct tw_node_view other = mesh_view(&mesh, j);
            assert_memory_not_equal(&view.lineage, &other.lineage, sizeof(view.lineage));
        }
    }
    mesh_deinit(&mesh);
}

/* The nodes train the first part of the budget together and the rest apart. A node that joins after
 * the split starts from another node's state. */
TEST(nodes_part_after_together_tokens) {
    start_parting(4, 3, 45000, 240000);
    mesh_link(&mesh, 0, 1);
    mesh_link(&mesh, 0, 2);
    mesh_link(&mesh, 1, 2);
    mesh_run(&mesh, SECONDS(12));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_MEMBER);
        assert_false(mesh_view(&mesh, i).is_apart);
        assert_int_equal(mesh_view(&mesh, i).mixed, 2);
    }
    mesh_run(&mesh, SECONDS(6));
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(mesh_view(&mesh, i).is_apart);
        assert_int_equal(mesh_view(&mesh, i).rounds,
                         rounds); /* all have applied the last common round */
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_run(&mesh, SECONDS(36));
    mesh_start(&mesh, 3, NULL);
    for (uint32_t i = 0; i < 3; i++) mesh_link(&mesh, i, 3);
    mesh_run(&mesh, SECONDS(5));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_SOLO);
        assert_true(view.is_apart);
        assert_in_range(view.clock_tokens, 120000, 239999);
        for (uint32_t j = 0; j < i; j++) {
            const struct tw_node_view other = mesh_view(&mesh, j);
            assert_memory_not_equal(&view.lineage, &other.lineage, sizeof(view.lineage));
        }
    }
    mesh_run(&mesh, SECONDS(40));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_FINISHED);
        assert_true(mesh.workers[i].is_finished);
        if (i < 3) assert_in_range(view.tokens, 79000, 83000);
    }
    mesh_deinit(&mesh);
}

/* A node killed before the split and restarted after it continues from another node's state. A node
 * killed after the split continues from its own. */
TEST(node_away_at_the_parting_goes_on) {
    struct tw_position early, late;
    struct mesh_worker early_worker, late_worker;
    start_parting(3, 3, 45000, 300000);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(10));
    tw_node_position(mesh.nodes[2], &early);
    early_worker = mesh.workers[2];
    mesh_kill(&mesh, 2);
    mesh_run(&mesh, SECONDS(45));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_SOLO);
        assert_true(mesh_view(&mesh, i).is_apart);
    }
    tw_node_position(mesh.nodes[1], &late);
    late_worker = mesh.workers[1];
    const struct tw_node_view before = mesh_view(&mesh, 1);
    mesh_kill(&mesh, 1);
    mesh_run(&mesh, SECONDS(1));
    mesh.workers[2] = early_worker;
    mesh_start(&mesh, 2, &early);
    mesh.workers[1] = late_worker;
    mesh_start(&mesh, 1, &late);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(10));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_SOLO);
        assert_true(mesh_view(&mesh, i).is_apart);
        assert_true(mesh_view(&mesh, i).clock_tokens > before.clock_tokens);
    }
    mesh_run(&mesh, SECONDS(40));
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_FINISHED);
    mesh_deinit(&mesh);
}

TEST(nodes_that_meet_become_one_group) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.roster_count, 4);
        assert_int_equal(view.alive, 3);
        assert_int_equal(view.mixed, 3);
        assert_in_range(view.rounds_contributed, 30, 60);
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_deinit(&mesh);
}

TEST(late_joiner_gets_the_state_and_contributes) {
    mesh_init(&mesh, 3, 3);
    mesh_link(&mesh, 0, 1);
    mesh_run(&mesh, SECONDS(100));
    const uint64_t solo_count = mesh_view(&mesh, 2).rounds_contributed;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_int_equal(view.mixed, 2);
        assert_true(mesh_agree(&mesh, 0, i));
    }
    assert_in_range(mesh_view(&mesh, 2).rounds_contributed - solo_count, 30, 60);
    mesh_deinit(&mesh);
}

TEST(killed_member_is_dropped_and_comes_back) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    struct tw_position position;
    tw_node_position(mesh.nodes[3], &position);
    const struct mesh_worker saved = mesh.workers[3];
    mesh_run(&mesh, SECONDS(5));
    mesh_kill(&mesh, 3);
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(40));
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    assert_in_range(mesh_view(&mesh, 0).rounds - rounds, 25, 45);
    mesh.workers[3] = saved;
    mesh_start(&mesh, 3, &position);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(10));
    assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_MEMBER);
    mesh_run(&mesh, SECONDS(20));
    assert_int_equal(mesh_view(&mesh, 3).mixed, 3);
    for (uint32_t i = 0; i < 3; i++) assert_true(mesh_agree(&mesh, 3, i));
    mesh_deinit(&mesh);
}

/* Found with real processes: the others took the node for a live acceptor and waited for its
 * vote. */
TEST(member_that_lost_its_disk_stalls_nobody) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh_kill(&mesh, 3);
    mesh.has_vote[3] = false;
    mesh_run(&mesh, SECONDS(1));
    mesh_start(&mesh, 3, NULL);
    mesh_stop_worker(&mesh, 3); /* node 3 thus remains a receiver under its old id */
    mesh_link_all(&mesh);
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(40));
    assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_RECEIVER);
    assert_in_range(mesh_view(&mesh, 0).rounds - rounds, 30, 45);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    mesh_deinit(&mesh);
}

/* Found with real processes: the member was linked and alive, but could not store a ballot. The
 * others waited for it longer in each round that it had to propose. */
TEST(member_with_a_full_disk_stalls_nobody) {
    mesh_init(&mesh, 3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh.is_disk_full[1] = true;
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(300));
    assert_in_range(mesh_view(&mesh, 0).rounds - rounds, 60, 300);
    mesh_deinit(&mesh);
}

/* A member may have no contribution, for example because of its budget. The member announces that,
 * so that the grace period is spent on late members only. */
TEST(member_without_a_contribution_is_not_waited_for) {
    mesh_init(&mesh, 3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    const uint64_t before = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(30));
    const uint64_t usual = mesh_view(&mesh, 0).rounds - before;
    mesh.is_poor[1] = mesh.is_poor[2] = true;
    const struct tw_node_view poor = mesh_view(&mesh, 1), rich = mesh_view(&mesh, 0);
    mesh_run(&mesh, SECONDS(30));
    assert_in_range(mesh_view(&mesh, 0).rounds - rich.rounds, usual - 2, usual + 2);
    assert_in_range(mesh_view(&mesh, 0).rounds_contributed - rich.rounds_contributed, usual - 2,
                    usual + 2);
    assert_in_range(mesh_view(&mesh, 1).rounds_contributed - poor.rounds_contributed, 0, 1);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    for (uint32_t i = 1; i < 3; i++) assert_true(mesh_agree(&mesh, 0, i));

    /* If no member can contribute, no round begins; members retry from time to time. */
    mesh.is_poor[0] = true;
    mesh_run(&mesh, SECONDS(5));
    const uint64_t still = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(30));
    assert_int_equal(mesh_view(&mesh, 0).rounds, still);
    mesh.is_poor[0] = mesh.is_poor[1] = mesh.is_poor[2] = false;
    mesh_run(&mesh, SECONDS(30));
    assert_in_range(mesh_view(&mesh, 0).rounds - still, usual / 2, usual + 2);
    const uint64_t again = mesh_view(&mesh, 1).rounds_contributed;
    mesh_run(&mesh, SECONDS(30));
    assert_in_range(mesh_view(&mesh, 1).rounds_contributed - again, usual - 2, usual + 2);
    mesh_deinit(&mesh);
}

/* A node may have no worker, for example while it waits for training data. The other node keeps its
 * own lineage, whichever id is smaller. */
TEST(node_without_a_worker_is_not_followed) {
    for (uint32_t idle = 0; idle < 2; idle++) {
        mesh_init(&mesh, 2, 3);
        mesh_stop_worker(&mesh, idle);
        const struct tw_node_view before = mesh_view(&mesh, 1 - idle);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(40));
        const struct tw_node_view after = mesh_view(&mesh, 1 - idle);
        assert_memory_equal(&after.lineage, &before.lineage, sizeof(after.lineage));
        assert_int_equal(after.state, TW_STATE_SOLO);
        assert_true(after.rounds > 0);
        mesh_start_worker(&mesh, idle);
        mesh_run(&mesh, SECONDS(30));
        assert_int_equal(mesh_view(&mesh, idle).state, TW_STATE_MEMBER);
        assert_true(mesh_agree(&mesh, 0, 1));
        mesh_deinit(&mesh);
    }
}

TEST(partition_ends_in_one_lineage) {
    mesh_init(&mesh, 7, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    for (uint32_t a = 0; a < 5; a++) {
        for (uint32_t b = 5; b < 7; b++) {
            mesh_unlink(&mesh, a, b);
        }
    }
    mesh_run(&mesh, SECONDS(600));
    const struct tw_node_view large = mesh_view(&mesh, 0), small = mesh_view(&mesh, 5);
    assert_int_equal(large.roster_count, 5);
    assert_int_equal(small.roster_count, 2);
    assert_memory_not_equal(&large.lineage, &small.lineage, sizeof(large.lineage));
    assert_true(large.clock_tokens > small.clock_tokens);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 7; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_memory_equal(&view.lineage, &large.lineage, sizeof(view.lineage));
        assert_int_equal(view.state, TW_STATE_MEMBER);
        assert_true(mesh_agree(&mesh, 0, i));
    }
    mesh_deinit(&mesh);
}

TEST(slow_node_is_never_waited_for) {
    mesh_init(&mesh, 3, 3);
    mesh.step_us[2] = 2000000;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    assert_in_range(mesh_view(&mesh, 0).rounds_contributed, 60, 120);
    assert_in_range(mesh_view(&mesh, 2).rounds_contributed, 2, 10);
    assert_true(mesh_agree(&mesh, 0, 2));
    mesh_deinit(&mesh);
}

TEST(member_that_never_delivers_does_not_slow_the_rest) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    mesh.is_mute[3] = true;
    mesh_run(&mesh, SECONDS(600));
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(1200));
    assert_in_range(mesh_view(&mesh, 0).rounds - rounds, 300, 1300);
    mesh_deinit(&mesh);
}

/* Kills a member and restarts it from a checkpoint 14 rounds old; no node keeps results for that
 * long. Its stored vote is newer than the checkpoint, so it keeps its seat. Each fragment takes
 * `state_us` to arrive. */
static void come_back_from_an_old_checkpoint(uint32_t node, uint64_t state_us) {
    struct tw_position position;
    tw_node_position(mesh.nodes[node], &position);
    const struct mesh_worker saved = mesh.workers[node];
    mesh_run(&mesh, SECONDS(14));
    mesh_kill(&mesh, node);
    mesh_run(&mesh, SECONDS(1));
    mesh.workers[node] = saved;
    mesh.state_us[node] = state_us;
    mesh_start(&mesh, node, &position);
    mesh_link_all(&mesh);
}

static void assert_rounds_in(uint64_t seconds) {
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(seconds));
    assert_true(mesh_view(&mesh, 0).rounds - rounds >= seconds * 8 / 10);
}

/* Found with real processes: the member was dropped, and on busy links its next admission took
 * 45 s. */
TEST(member_keeps_its_seat_while_it_fetches) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    const struct tw_member before = mesh_view(&mesh, 0).roster.members[3];
    come_back_from_an_old_checkpoint(3, SECONDS(10));
    for (unsigned i = 0; i < 3; i++) {
        assert_rounds_in(5); /* no round waits for node 3 */
        assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_RECEIVER);
        assert_int_equal(mesh_view(&mesh, 0).roster_count, 4);
        assert_int_equal(mesh_view(&mesh, 0).roster.members[3].weight, 0);
    }
    assert_rounds_in(20);
    const struct tw_member after = mesh_view(&mesh, 0).roster.members[3];
    assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_MEMBER);
    assert_int_equal(after.nonce, before.nonce);
    assert_true(after.weight > 0);
    for (uint32_t i = 0; i < 3; i++) assert_true(mesh_agree(&mesh, 3, i));
    mesh_deinit(&mesh);
}

TEST(endless_fetch_costs_the_seat) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    come_back_from_an_old_checkpoint(3, SECONDS(600));
    assert_rounds_in(110);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 4);
    assert_rounds_in(20);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    mesh.state_us[3] = 0;
    mesh_run(&mesh, SECONDS(60));
    assert_int_equal(mesh_view(&mesh, 3).state, TW_STATE_MEMBER);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 4);
    mesh_deinit(&mesh);
}

TEST(seat_of_a_receiver_is_dropped_when_its_vote_is_needed) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    come_back_from_an_old_checkpoint(3, SECONDS(600));
    assert_rounds_in(20);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 4);
    mesh_kill(&mesh, 2); /* two members with all state are no majority of four */
    assert_rounds_in(10);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 3);
    assert_rounds_in(10);
    assert_int_equal(mesh_view(&mesh, 0).roster_count, 2);
    mesh_deinit(&mesh);
}

/* Returns whether the owner's RESULT is in flight to every other node. */
static bool is_announced(uint32_t owner) {
    uint32_t heralds_count = 0;
    for (uint32_t i = 0; i < mesh.events_count; i++) {
        const struct mesh_event *event = &mesh.events[i];
        if (event->event.kind != TW_EV_MESSAGE || event->event.peer != owner) continue;
        heralds_count +=
            event->message->kind == TW_MSG_RESULT && event->message->u.result.bytes > 0;
    }
    return heralds_count == mesh.nodes_count - 1;
}

static void set_measured(struct mesh *m, uint32_t node, uint32_t upload_kib_s, uint64_t odd) {
    struct tw_event event = {.kind = TW_EV_MEASURED};
    event.u.measured.upload_kib_s = upload_kib_s;
    event.u.measured.odd = odd;
    mesh_deliver(m, node, &event);
}

/* Returns the weight of a node in the roster of node 0. */
static uint32_t weight_of(uint32_t node) {
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_true(node < view.roster.count);
    return view.roster.members[node].weight;
}

TEST(parts_follow_measured_uploads) {
    mesh_init(&mesh, 5, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(weight_of(i), 1); /* no upload rate is known yet */
    set_measured(&mesh, 0, 1000, 0);
    set_measured(&mesh, 1, 1000, 0);
    set_measured(&mesh, 2, 250, 0);
    set_measured(&mesh, 3, UINT32_MAX, 0); /* an absurd claim */
    mesh_run(&mesh, SECONDS(10)); /* node 4 does not know its rate, so it gets the median */
    static const uint32_t expected[5] = {16, 16, 4, 64, 16};
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(weight_of(i), expected[i]);
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(30));
    assert_true(mesh_view(&mesh, 0).rounds >= rounds + 5);
    for (uint32_t i = 1; i < 5; i++) assert_true(mesh_agree(&mesh, 0, i));
    mesh_deinit(&mesh);
}

TEST(outlier_owns_no_part_but_contributes) {
    mesh_init(&mesh, 4, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    for (uint32_t i = 0; i < 4; i++) set_measured(&mesh, i, 0, i == 3 ? 0 : UINT64_C(1) << 3);
    mesh_run(&mesh, SECONDS(20)); /* rounds that node 3 proposes may give it a part */
    uint32_t without = 0;
    const uint64_t contributed = mesh_view(&mesh, 3).rounds_contributed;
    for (unsigned i = 0; i < 40; i++) {
        mesh_run(&mesh, SECONDS(1));
        without += weight_of(3) == 0;
        assert_true(weight_of(0) > 0);
    }
    assert_true(without >= 15);
    assert_true(mesh_view(&mesh, 3).rounds_contributed >= contributed + 5);
    /* A node that measures most other nodes as outliers counts as an outlier itself. */
    set_measured(&mesh, 0, 0, 0xe);
    mesh_run(&mesh, SECONDS(20));
    for (uint32_t i = 0; i < 3; i++) assert_true(weight_of(i) > 0);
    /* After a reconnect, nodes 1 and 3 judge each other afresh. */
    mesh_unlink(&mesh, 1, 3);
    mesh_run(&mesh, SECONDS(1));
    mesh_link(&mesh, 1, 3);
    mesh_run(&mesh, SECONDS(20));
    assert_true(weight_of(1) > 0);
    mesh_deinit(&mesh);
}

/* Found with real processes: every ballot named a result whose bytes were lost with its owner. */
TEST(dead_owners_unseen_result_is_left_out) {
    for (uint32_t owner = 0; owner < 4; owner++) {
        mesh_init(&mesh, 4, 3);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(30));
        const uint32_t witness = owner == 0 ? 1 : 0;
        const struct tw_node_view before = mesh_view(&mesh, witness);
        assert_true(before.roster.members[owner].weight > 0);
        while (!is_announced(owner)) mesh_run(&mesh, 1000);
        mesh_run(&mesh, 15000); /* RESULT has arrived, but no PULL for its bytes yet */
        mesh_kill(&mesh, owner);
        mesh_run(&mesh, SECONDS(60));
        const struct tw_node_view after = mesh_view(&mesh, witness);
        assert_true(after.rounds > before.rounds + 50);
        assert_memory_equal(&after.lineage, &before.lineage, sizeof(after.lineage));
        mesh_deinit(&mesh);
    }
}

/* An owner announces a result, restarts and forgets it. The other nodes got no chunks before the
 * restart: none has the result, and none proposes yet. */
TEST(result_that_its_owner_forgot_is_left_out) {
    for (uint32_t owner = 0; owner < 3; owner++) {
        struct tw_position position;
        mesh_init(&mesh, 4, 3);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(30));
        for (uint32_t i = 0; i < 4; i++) mesh.is_starved[i] = i != owner;
        while (!is_announced(owner)) mesh_run(&mesh, 1000);
        mesh_run(&mesh, 15000);
        const struct tw_node_view before = mesh_view(&mesh, 3);
        tw_node_position(mesh.nodes[owner], &position);
        mesh_kill(&mesh, owner);
        const struct mesh_worker saved = mesh.workers[owner];
        mesh_run(&mesh, SECONDS(1));
        mesh.workers[owner] = saved;
        mesh_start(&mesh, owner, &position);
        mesh.is_poor[owner] = true; /* so its next merge differs */
        for (uint32_t i = 0; i < 4; i++) mesh.is_starved[i] = false;
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(60));
        for (uint32_t i = 0; i < 4; i++) {
            const struct tw_node_view after = mesh_view(&mesh, i);
            assert_true(after.rounds > before.rounds + 30);
            assert_memory_equal(&after.lineage, &before.lineage, sizeof(after.lineage));
        }
        mesh_deinit(&mesh);
    }
}

/* All links of a node break in the middle of a round; results not fetched yet are not lost. With
 * two nodes, both miss results of the open round. With three, one misses the results of a
 * decided round. */
TEST(node_cut_off_for_a_while_loses_nothing) {
    for (uint32_t nodes = 2; nodes <= 3; nodes++) {
        for (uint64_t cut_s = 8; cut_s <= 40; cut_s += 16) {
            mesh_init(&mesh, nodes, 3);
            mesh_link_all(&mesh);
            mesh_run(&mesh, SECONDS(30));
            const uint32_t last = nodes - 1;
            const struct tw_node_view before = mesh_view(&mesh, last);
            while (!is_announced(0)) mesh_run(&mesh, 1000);
            for (uint32_t i = 0; i < nodes; i++) mesh.is_starved[i] = nodes == 2 || i == last;
            mesh_run(&mesh, SECONDS(1));
            for (uint32_t i = 0; i < last; i++) mesh_unlink(&mesh, i, last);
            for (uint32_t i = 0; i < nodes; i++) mesh.is_starved[i] = false;
            mesh_run(&mesh, SECONDS(cut_s));
            const uint64_t states_asked = mesh.states_asked;
            mesh_link_all(&mesh);
            mesh_run(&mesh, SECONDS(20));
            for (uint32_t i = 0; i < nodes; i++) {
                const struct tw_node_view after = mesh_view(&mesh, i);
                assert_int_equal(after.state, TW_STATE_MEMBER);
                assert_true(after.rounds > before.rounds + 8);
                assert_memory_equal(&after.lineage, &before.lineage, sizeof(after.lineage));
            }
            if (cut_s < 10) assert_int_equal(mesh.states_asked, states_asked);
            mesh_deinit(&mesh);
        }
    }
}

static bool has_accepted(uint32_t node) {
    return mesh.votes[node].has_accepted != 0 &&
           mesh.votes[node].round == mesh_view(&mesh, node).rounds;
}

/* Kills all daemons once node 0 has accepted a record of the open round, before any node knows that
 * it is decided. Restarts them from checkpoints taken `more_us` apart, the newest `age_us` old. */
static void kill_all(uint64_t age_us, uint64_t more_us) {
    struct tw_position positions[MESH_NODES_MAX];
    struct mesh_worker saved[MESH_NODES_MAX];
    for (uint32_t i = mesh.nodes_count; i-- > 0;) {
        tw_node_position(mesh.nodes[i], &positions[i]);
        saved[i] = mesh.workers[i];
        if (i > 0 && more_us > 0) mesh_run(&mesh, more_us);
    }
    if (age_us > 0) mesh_run(&mesh, age_us);
    while (!has_accepted(0)) mesh_run(&mesh, 1000);
    for (uint32_t i = 0; i < mesh.nodes_count; i++) {
        if (age_us == 0) { /* the checkpoint is taken now */
            tw_node_position(mesh.nodes[i], &positions[i]);
            saved[i] = mesh.workers[i];
        }
        mesh_kill(&mesh, i);
    }
    for (uint32_t i = 0; i < mesh.nodes_count; i++) {
        mesh.workers[i] = saved[i];
        mesh_start(&mesh, i, &positions[i]);
    }
    mesh_link_all(&mesh);
}

TEST(group_killed_as_a_whole_does_not_wait_for_the_dead) {
    const uint64_t ages_s[][2] = {{0, 0}, {5, 0}, {10, 0}, {3, 3}, {14, 5}};
    for (unsigned k = 0; k < sizeof(ages_s) / sizeof(ages_s[0]); k++) {
        mesh_init(&mesh, 4, 3);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(30));
        kill_all(SECONDS(ages_s[k][0]), SECONDS(ages_s[k][1]));
        mesh_run(&mesh, SECONDS(60));
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_MEMBER);
            assert_int_equal(mesh_view(&mesh, i).mixed, 3);
            assert_true(mesh_agree(&mesh, 0, i));
        }
        mesh_deinit(&mesh);
    }
}

/* Found by the simulator: alone in its new lineage, the node asked for the state for ever. Every
 * node that began to follow the lineage waited too. */
TEST(worker_lost_in_a_fork_does_not_lose_the_state) {
    mesh_init(&mesh, 2, 3);
    mesh_run(&mesh, SECONDS(20));
    const uint32_t loser =
        mesh_view(&mesh, 0).clock_tokens < mesh_view(&mesh, 1).clock_tokens ? 0 : 1;
    mesh.state_us[loser] = SECONDS(600);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(5));
    assert_int_equal(mesh_view(&mesh, loser).state, TW_STATE_RECEIVER);
    mesh_unlink(&mesh, 0, 1);
    const uint32_t forks = mesh.forks[loser];
    while (mesh.forks[loser] == forks) mesh_run(&mesh, 1);
    mesh_stop_worker(&mesh, loser);
    mesh_run(&mesh, SECONDS(1));
    mesh_start_worker(&mesh, loser);
    const uint64_t rounds = mesh_view(&mesh, loser).rounds;
    mesh_run(&mesh, SECONDS(20));
    assert_int_equal(mesh_view(&mesh, loser).state, TW_STATE_SOLO);
    assert_true(mesh_view(&mesh, loser).rounds > rounds + 10);
    mesh_deinit(&mesh);
}

/* Found by the simulator: a founder restarted from a checkpoint before the first round of its
 * lineage. It did not find itself in the record of that round, and contributed the same tokens
 * again. */
TEST(restarted_founder_counts_its_first_round_once) {
    mesh_init(&mesh, 2, 3);
    const struct tw_node_view zero = mesh_view(&mesh, 0), one = mesh_view(&mesh, 1);
    const uint32_t founder = tw_id_compare(&zero.lineage, &one.lineage) < 0 ? 0 : 1;
    mesh_stop_worker(&mesh,
                     1 - founder); /* without a worker this node follows the log, but cannot join */
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(1) / 2);
    struct tw_position position;
    tw_node_position(mesh.nodes[founder], &position);
    const struct mesh_worker saved = mesh.workers[founder];
    assert_int_equal(position.rounds, 0);
    assert_true(saved.tokens > 0);
    while (mesh_view(&mesh, founder).rounds == 0) mesh_run(&mesh, 1000);
    mesh_start_worker(&mesh, 1 - founder);
    while (mesh_view(&mesh, founder).roster_count == 1) mesh_run(&mesh, 1000);
    assert_int_equal(mesh_view(&mesh, founder).rounds,
                     2); /* the founder's own round, and the round that admits the other node */
    mesh_kill(&mesh, founder);
    mesh_run(&mesh, SECONDS(1));
    mesh.workers[founder] = saved;
    mesh_start(&mesh, founder, &position);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(1) / 10); /* too short to contribute once more */
    tw_node_position(mesh.nodes[founder], &position);
    assert_int_equal(position.tokens_listed, saved.tokens); /* told by its follower alone */
    mesh_deinit(&mesh);
}

TEST(run_ends_with_equal_anchors_everywhere) {
    mesh_init(&mesh, 3, 3);
    mesh_deinit(&mesh);
    mesh_init(&mesh, 3, 3);
    mesh.config.budget_tokens = 100000;
    for (uint32_t i = 0; i < 3; i++) mesh_start(&mesh, i, NULL);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_FINISHED);
        assert_true(mesh.workers[i].is_finished);
        for (uint32_t p = 0; p < 3; p++)
            assert_int_equal(mesh.workers[i].phi[p], mesh.workers[0].phi[p]);
    }
    mesh_deinit(&mesh);
}
