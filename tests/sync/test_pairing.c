/* test_pairing.c - pair runs: the choice of partners, the cost of a lost partner, and the books
 * (total training against all changes), which must stay even whatever happens. */

#include "base/rng.h"
#include "tests/sync/mesh.h"
#include "tests/test.h"

#define SECONDS(n) ((uint64_t)(n)*1000000)

static struct mesh mesh;
static struct tw_rng rng;

static uint32_t draw(uint64_t below) {
    return (uint32_t)tw_rng_below(&rng, below);
}

static void start(uint32_t nodes_count, uint32_t fragments_count) {
    mesh_init(&mesh, nodes_count, fragments_count);
    /* Restarts the nodes as nodes of a pair run. */
    mesh.config.is_pair = true;
    mesh.config.step_tokens = 100;
    for (uint32_t i = 0; i < nodes_count; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
}

static void assert_even_books(uint32_t one_sided) {
    uint32_t found = 0;
    assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
    assert_int_equal(found, one_sided);
}

/* The largest distance between the anchors of two nodes, over all fragments. */
static uint64_t largest_spread(void) {
    uint64_t most = 0;
    for (uint32_t p = 0; p < mesh.config.fragments_count; p++) {
        for (uint32_t a = 0; a < mesh.nodes_count; a++) {
            for (uint32_t b = 0; b < a; b++) {
                const int64_t apart =
                    (int64_t)mesh.workers[a].phi[p] - (int64_t)mesh.workers[b].phi[p];
                const uint64_t size = (uint64_t)llabs(apart);
                if (size > most) most = size;
            }
        }
    }
    return most;
}

/* ---- without faults -------------------------------------------------------------------------- */

TEST(lone_node_of_a_pair_run_trains) {
    start(1, 3);
    mesh_run(&mesh, SECONDS(60));
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_int_equal(view.state, TW_STATE_SOLO);
    assert_in_range(view.rounds, 45, 60);
    assert_in_range(view.clock_tokens, 50000, 60000);
    assert_int_equal(view.pairs.merged, 0);
    for (uint32_t p = 0; p < 3; p++) /* phi follows theta: one period of 30 steps behind, at most */
        assert_true((int64_t)mesh.workers[0].phi[p] - mesh.workers[0].pair[p].theta < 40 * 1100);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(two_nodes_merge_and_nothing_is_lost) {
    start(2, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    for (uint32_t i = 0; i < 2; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_SOLO);
        assert_int_equal(view.mixed, 1);
        assert_in_range(view.pairs.merged, 80, 130);
        assert_in_range(view.pairs.alone, 0, 10);
        assert_int_equal(view.pairs.one_sided, 0);
        assert_int_equal(mesh.forks[i], 2); /* start() starts each node twice */
    }
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(eight_nodes_find_each_other_and_stay_together) {
    start(8, 4);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(300));
    uint64_t merged = 0, alone = 0;
    for (uint32_t i = 0; i < 8; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        merged += view.pairs.merged;
        alone += view.pairs.alone;
        assert_int_equal(view.pairs.one_sided, 0);
        assert_in_range(view.mixed, 2, 7);
        assert_in_range(mesh.workers[i].step, 2990, 3000); /* no worker ever waited */
    }
    print_message("merged %llu alone %llu spread %llu\n", (unsigned long long)merged,
                  (unsigned long long)alone, (unsigned long long)largest_spread());
    assert_true(merged > 3 * alone);
    /* Without merging they would be 7 * 37 * 3000 apart. */
    assert_true(largest_spread() < UINT64_C(7) * 37 * 3000 / 4);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(slow_node_is_merged_with_and_nobody_waits_for_it) {
    start(3, 3);
    mesh.step_us[2] = 1000000;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(300));
    for (uint32_t i = 0; i < 2; i++) {
        assert_in_range(mesh.workers[i].step, 2990, 3000);
        assert_in_range(mesh_view(&mesh, i).pairs.merged, 150, 400);
    }
    assert_in_range(mesh_view(&mesh, 2).pairs.merged, 15, 80);
    assert_in_range(mesh.workers[2].step, 298, 300);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(rounds_can_follow_the_clock) {
    start(4, 2);
    mesh.config.pace_us = SECONDS(2);
    for (uint32_t i = 0; i < 4; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
        mesh.step_us[i] = 50000 * (i + 1);
    }
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(200));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_in_range(view.rounds, 75, 110);
        assert_true(view.pairs.merged > 2 * view.pairs.alone);
    }
    assert_even_books(0);
    mesh_deinit(&mesh);
}

/* Every second draw is from the peers with the shortest delays only; all others are still drawn. */
TEST(near_peers_are_paired_with_more_often) {
    for (unsigned is_far = 0; is_far < 2; is_far++) {
        uint32_t inside = 0, across = 0;
        start(8, 2);
        for (uint32_t a = 0; a < 8; a++) {
            for (uint32_t b = 0; b < 8; b++)
                mesh.far_us[a][b] = is_far == 1 && a / 4 != b / 4 ? 200000 : 0;
        }
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(300));
        for (uint32_t a = 0; a < 8; a++) {
            for (uint32_t b = 0; b < 8; b++)
                *(a / 4 == b / 4 ? &inside : &across) += mesh.paired[a][b];
        }
        print_message("far %u: %u inside, %u across\n", is_far, inside, across);
        assert_true(across > inside / 4);
        if (is_far == 1) assert_true(inside > across * 3 / 2);
        if (is_far == 0)
            assert_in_range(inside, across / 2, across); /* three of seven peers are inside */
        assert_even_books(0);
        mesh_deinit(&mesh);
    }
}

/* ---- the clock and the end ------------------------------------------------------------------ */

TEST(clocks_count_the_tokens_of_all_nodes) {
    start(4, 2);
    mesh.step_us[3] = 400000;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(300));
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < 4; i++) tokens += mesh.workers[i].tokens;
    for (uint32_t i = 0; i < 4; i++)
        assert_in_range(mesh_view(&mesh, i).clock_tokens, tokens * 85 / 100, tokens * 110 / 100);
    mesh_deinit(&mesh);
}

TEST(run_ends_for_everybody) {
    start(4, 3);
    mesh.config.budget_tokens = 500000;
    for (uint32_t i = 0; i < 4; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
        mesh.step_us[i] = 100000 * (i + 1);
    }
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(400));
    for (uint32_t i = 0; i < 4; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_FINISHED);
        assert_true(mesh.workers[i].is_finished);
        assert_in_range(view.clock_tokens, 500000, 560000);
        for (uint32_t p = 0; p < 3; p++)
            assert_int_equal((int64_t)mesh.workers[i].phi[p], mesh.workers[i].pair[p].theta);
    }
    assert_even_books(0);
    mesh_deinit(&mesh);
}

/* ---- faults ---------------------------------------------------------------------------------- */

TEST(payloads_that_never_come_cost_the_partner_only) {
    start(3, 3);
    mesh.is_mute[2] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(600));
    for (uint32_t i = 0; i < 3; i++) assert_in_range(mesh.workers[i].step, 5990, 6000);
    for (uint32_t i = 0; i < 2; i++) assert_true(mesh_view(&mesh, i).pairs.merged > 100);
    uint32_t found = 0; /* node 2 gets chunks and merges; the others do not get its chunks */
    assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
    assert_true(found > 0);
    /* The other nodes report the exchanges that they gave up. Node 2 remembers its newest eight. */
    assert_in_range(mesh_view(&mesh, 2).pairs.one_sided, 1, found);
    mesh_deinit(&mesh);
}

/* A payload that cannot be decoded ends the exchange at once. */
TEST(undecodable_payloads_cost_no_time) {
    start(2, 3);
    mesh.is_garbler[1] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(300));
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_int_equal(view.pairs.merged, 0);
    assert_true(view.pairs.alone > 200);
    mesh_deinit(&mesh);
}

/* The culprit gets a strike for ten minutes, then for twenty. Meanwhile no peer asks or accepts it,
 * and the view shows the reason. */
TEST(node_with_undecodable_or_outlier_deltas_gets_a_strike) {
    for (unsigned is_giant = 0; is_giant < 2; is_giant++) {
        start(3, 3);
        mesh.is_giant[2] = is_giant == 1;
        mesh.is_garbler[2] = is_giant == 0;
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(60));
        uint64_t alone[2];
        for (uint32_t i = 0; i < 2; i++) {
            const struct tw_node_view view = mesh_view(&mesh, i);
            assert_int_equal(view.peers[2].strike.count, 1);
            assert_int_equal(view.peers[2].strike.is_false, is_giant == 0);
            assert_in_range(view.peers[2].strike.left_us, SECONDS(530), SECONDS(600));
            assert_int_equal(view.peers[1 - i].strike.count, 0);
            assert_int_equal(view.peers[2].last_mixed_round, 0);
            alone[i] = view.pairs.alone;
        }
        const uint64_t encodes = mesh.encodes;
        mesh_run(&mesh, SECONDS(300));
        for (uint32_t i = 0; i < 2; i++)
            assert_in_range(mesh_view(&mesh, i).pairs.alone - alone[i], 0, 80);
        /* The culprit is left out: only the other two encode, once for each merge. */
        assert_in_range(mesh.encodes - encodes, 400, 2 * 310);
        mesh_run(&mesh, SECONDS(300)); /* the culprit is tried again, and its strike is longer */
        for (uint32_t i = 0; i < 2; i++) {
            const struct tw_node_view view = mesh_view(&mesh, i);
            assert_int_equal(view.peers[2].strike.count, 2);
            assert_in_range(view.peers[2].strike.left_us, SECONDS(1000), SECONDS(1200));
        }
        mesh_deinit(&mesh);
    }
}

/* A node's budget or memory may have no room for its payloads. To step alone, a node needs no
 * payload. */
TEST(node_that_cannot_encode_steps_alone) {
    start(3, 3);
    mesh.is_poor[2] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    const struct tw_node_view poor = mesh_view(&mesh, 2);
    assert_int_equal(poor.state, TW_STATE_SOLO);
    assert_int_equal(poor.pairs.merged, 0);
    assert_in_range(poor.rounds, 90, 130); /* a round alone takes about one second */
    for (uint32_t i = 0; i < 2; i++) assert_true(mesh_view(&mesh, i).pairs.merged > 30);
    assert_even_books(0);
    mesh.is_poor[2] = false;
    mesh_run(&mesh, SECONDS(20));
    assert_true(mesh_view(&mesh, 2).pairs.merged > 5);
    mesh_deinit(&mesh);
}

static uint64_t merged_by_all(void) {
    uint64_t merged = 0;
    for (uint32_t i = 0; i < mesh.nodes_count; i++) merged += mesh_view(&mesh, i).pairs.merged;
    return merged;
}

static void set_short(uint32_t node, bool is_short) {
    struct tw_event event = {.kind = TW_EV_MEASURED};
    event.u.measured.is_short = is_short;
    mesh_deliver(&mesh, node, &event);
}

/* A node over budget knows that before it asks, so no peer loses an exchange to it. */
TEST(node_over_budget_neither_asks_nor_accepts) {
    start(3, 3);
    mesh.config.budget_tokens = 500000;
    for (uint32_t i = 0; i < 3; i++) {
        mesh_kill(&mesh, i);
        mesh_start(&mesh, i, NULL);
    }
    mesh_link_all(&mesh);
    set_short(2, true);
    mesh_run(&mesh, SECONDS(120));
    const struct tw_node_view view = mesh_view(&mesh, 2);
    assert_int_equal(view.pairs.merged, 0);
    assert_in_range(view.rounds, 90, 130);
    assert_int_equal(view.pairs.short_of_bytes, view.pairs.alone);
    for (uint32_t i = 0; i < 2; i++) {
        assert_in_range(mesh_view(&mesh, i).pairs.alone, 0,
                        25); /* a peer that asks node 2 first loses time */
        assert_true(mesh_view(&mesh, i).pairs.merged > 80);
    }
    assert_int_equal(mesh.encodes, merged_by_all()); /* no encoding was in vain */
    set_short(2, false);
    mesh_run(&mesh, SECONDS(20));
    assert_true(mesh_view(&mesh, 2).pairs.merged > 10);
    for (uint32_t i = 0; i < 3; i++) set_short(i, true);
    mesh_run(&mesh, SECONDS(60)); /* the run ends all the same */
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_FINISHED);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(partner_that_vanishes_is_left_at_once) {
    start(2, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (unsigned trial = 0; trial < 50; trial++) {
        const uint64_t rounds = mesh_view(&mesh, 0).rounds;
        mesh_run(&mesh, UINT64_C(1000) * draw(1000));
        mesh_unlink(&mesh, 0, 1);
        mesh_run(&mesh, SECONDS(3));
        assert_true(mesh_view(&mesh, 0).rounds > rounds);
        assert_false(mesh_view(&mesh, 0).pairs.is_trading);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(5));
    }
    uint32_t found = 0;
    assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
    mesh_deinit(&mesh);
}

TEST(worker_that_dies_in_an_exchange_leaves_it) {
    start(3, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (unsigned trial = 0; trial < 50; trial++) {
        mesh_run(&mesh, UINT64_C(1000) * draw(2000));
        mesh_stop_worker(&mesh, trial % 3);
        assert_false(mesh_view(&mesh, trial % 3).pairs.is_trading);
        mesh_run(&mesh, SECONDS(2));
        mesh_start_worker(&mesh, trial % 3);
        mesh_run(&mesh, SECONDS(2));
    }
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 3; i++) {
        const struct tw_node_view view = mesh_view(&mesh, i);
        assert_int_equal(view.state, TW_STATE_SOLO);
        assert_true(view.pairs.merged > 2 * view.pairs.alone);
    }
    uint32_t found = 0;
    assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
    mesh_deinit(&mesh);
}

TEST(phi_that_is_too_far_away_comes_whole_the_next_time) {
    start(2, 1);
    mesh.wrap_limit = 20000;
    mesh_run(&mesh, SECONDS(100)); /* distance: 37 per step over 1000 steps */
    assert_true(largest_spread() > 30000);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh.wholes[0] > 0 && mesh.wholes[1] > 0);
    assert_true(mesh.wholes[0] < 5 && mesh.wholes[1] < 5);
    assert_true(mesh_view(&mesh, 0).pairs.merged > 10);
    assert_true(largest_spread() < 20000);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

TEST(partition_goes_on_apart_and_together_again) {
    start(6, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(100));
    for (uint32_t a = 0; a < 3; a++) {
        for (uint32_t b = 3; b < 6; b++) {
            mesh.is_cut[a][b] = true;
            mesh_unlink(&mesh, a, b);
        }
    }
    mesh_run(&mesh, SECONDS(200));
    const uint64_t apart = largest_spread();
    for (uint32_t i = 0; i < 6; i++) assert_in_range(mesh_view(&mesh, i).mixed, 0, 2);
    memset(mesh.is_cut, 0, sizeof(mesh.is_cut));
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(100));
    assert_true(largest_spread() < apart / 2);
    uint32_t found = 0;
    assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
    mesh_deinit(&mesh);
}

TEST(newcomer_takes_over_a_state_then_merges) {
    start(3, 3);
    mesh_link(&mesh, 0, 1);
    mesh_kill(&mesh, 2);
    mesh_run(&mesh, SECONDS(200));
    mesh_start(&mesh, 2, NULL);
    const uint32_t forks = mesh.forks[2];
    mesh_run(&mesh, SECONDS(5));
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(40));
    const struct tw_node_view view = mesh_view(&mesh, 2), other = mesh_view(&mesh, 0);
    assert_int_equal(view.state, TW_STATE_SOLO);
    assert_int_equal(mesh.forks[2], forks + 2); /* into the donor's lineage, then into its own */
    assert_true(view.clock_tokens > other.clock_tokens * 8 / 10);
    assert_true(view.pairs.merged > 10);
    assert_memory_not_equal(&view.lineage, &other.lineage, sizeof(view.lineage));
    assert_true(largest_spread() < 100000); /* training for 200 s moves phi by 2 million */
    mesh_deinit(&mesh);
}

/* Its own theta would draw the state that it takes over back to where it was. */
TEST(node_left_behind_takes_over_theta_too) {
    start(3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(40));
    assert_true(mesh_view(&mesh, 2).pairs.merged > 5);
    mesh_unlink(&mesh, 0, 2);
    mesh_unlink(&mesh, 1, 2);
    mesh.step_us[2] = SECONDS(100);
    mesh_run(&mesh, SECONDS(200));
    assert_true(mesh_view(&mesh, 2).clock_tokens < mesh_view(&mesh, 0).clock_tokens / 2);
    mesh.step_us[2] = mesh.step_us[0];
    mesh_link_all(&mesh);
    for (uint32_t i = 0; i < 2000 && mesh.forks[2] < 4; i++) mesh_run(&mesh, SECONDS(1) / 10);
    assert_int_equal(mesh.forks[2], 4); /* start() starts twice */
    for (uint32_t p = 0; p < 3; p++) {  /* training for 200 s moves phi by 2 million */
        const int64_t phi = (int64_t)mesh.workers[2].phi[p];
        assert_true(llabs(mesh.workers[2].pair[p].theta - phi) < 100000);
    }
    mesh_deinit(&mesh);
}

TEST(nodes_that_start_together_take_over_nothing) {
    start(4, 3);
    mesh_run(&mesh, SECONDS(4));
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(mesh.forks[i], 2); /* start() starts twice */
    mesh_deinit(&mesh);
}

TEST(donor_that_dies_is_replaced) {
    start(3, 3);
    mesh_link(&mesh, 0, 1);
    mesh_kill(&mesh, 2);
    mesh_run(&mesh, SECONDS(200));
    mesh_start(&mesh, 2, NULL);
    mesh.state_us[2] = SECONDS(3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(4));
    assert_int_equal(mesh_view(&mesh, 2).state, TW_STATE_RECEIVER);
    const struct tw_id from = mesh_view(&mesh, 2).lineage;
    const struct tw_id of_0 = mesh_view(&mesh, 0).lineage;
    mesh_kill(&mesh, tw_id_equal(&from, &of_0) ? 0 : 1);
    mesh.state_us[2] = 0;
    mesh_run(&mesh, SECONDS(60));
    assert_int_equal(mesh_view(&mesh, 2).state, TW_STATE_SOLO);
    assert_true(mesh_view(&mesh, 2).pairs.merged > 5);
    mesh_deinit(&mesh);
}

TEST(restart_goes_on_from_its_checkpoint) {
    start(3, 3);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(100));
    struct tw_position position;
    tw_node_position(mesh.nodes[1], &position);
    const struct mesh_worker saved = mesh.workers[1];
    mesh_run(&mesh, SECONDS(10));
    mesh_kill(&mesh, 1);
    mesh_run(&mesh, SECONDS(10));
    mesh.workers[1] = saved;
    mesh_start(&mesh, 1, &position);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    const struct tw_node_view view = mesh_view(&mesh, 1);
    assert_int_equal(view.state, TW_STATE_SOLO);
    assert_true(view.rounds > position.rounds + 20);
    assert_true(view.pairs.merged > 10);
    mesh_deinit(&mesh);
}

TEST(goodbye_ends_the_exchange) {
    start(2, 1);
    mesh_link_all(&mesh);
    for (unsigned k = 0; k < 400 && !mesh_view(&mesh, 0).pairs.is_trading; k++)
        mesh_run(&mesh, 10000);
    assert_true(mesh_view(&mesh, 0).pairs.is_trading);
    mesh_leave(&mesh, 1);
    mesh_run(&mesh, SECONDS(1));
    assert_false(mesh_view(&mesh, 0).pairs.is_trading);
    const uint64_t rounds = mesh_view(&mesh, 0).rounds;
    mesh_run(&mesh, SECONDS(20));
    assert_true(mesh_view(&mesh, 0).rounds > rounds + 10);
    mesh_deinit(&mesh);
}

/* Links, workers and payloads fail at random. The books stay even apart from one-sided merges, and
 * the nodes report no more one-sided merges than happened. */
TEST(storm_keeps_the_books_even) {
    for (unsigned seed = 1; seed <= 12; seed++) {
        tw_rng_seed(&rng, seed);
        start(5, 3);
        mesh_link_all(&mesh);
        bool is_stopped[5] = {false};
        for (unsigned k = 0; k < 300; k++) {
            mesh_run(&mesh, UINT64_C(1000) * (1 + draw(2000)));
            const uint32_t a = draw(5), b = draw(5);
            switch (draw(4)) {
            case 0:
                if (a != b) mesh_unlink(&mesh, a, b);
                break;
            case 1:
                if (is_stopped[a]) {
                    mesh_start_worker(&mesh, a);
                } else {
                    mesh_stop_worker(&mesh, a);
                }
                is_stopped[a] = !is_stopped[a];
                break;
            case 2: mesh.is_mute[a] = !mesh.is_mute[a]; break;
            default: mesh_link_all(&mesh); break;
            }
        }
        mesh_run(&mesh, 1000);
        for (uint32_t i = 0; i < 5; i++) {
            if (is_stopped[i]) mesh_start_worker(&mesh, i);
            mesh.is_mute[i] = false;
        }
        mesh_link_all(&mesh);
        const uint64_t rounds = mesh_view(&mesh, 0).rounds;
        mesh_run(&mesh, SECONDS(700)); /* longer than any timeout */
        uint32_t found = 0;
        uint64_t counted = 0, merged = 0;
        assert_int_equal(mesh_pair_imbalance(&mesh, &found), 0);
        for (uint32_t i = 0; i < 5; i++) {
            const struct tw_node_view view = mesh_view(&mesh, i);
            assert_int_equal(view.state, TW_STATE_SOLO);
            counted += view.pairs.one_sided;
            merged += view.pairs.merged;
        }
        assert_true(mesh_view(&mesh, 0).rounds > rounds + 500);
        assert_true(counted <= found);
        assert_true(found < merged / 10);
        mesh_deinit(&mesh);
    }
}

/* Nodes die and restart, with or without a checkpoint, and links fail and recover. No live worker
 * stops stepping, no run clock goes back, and the run ends at all nodes. */
TEST(run_ends_through_kills_and_cuts) {
    for (unsigned seed = 1; seed <= 6; seed++) {
        tw_rng_seed(&rng, 100 + seed);
        start(5, 3);
        mesh.config.budget_tokens = 1500000;
        for (uint32_t i = 0; i < 5; i++) {
            mesh_kill(&mesh, i);
            mesh_start(&mesh, i, NULL);
        }
        mesh_link_all(&mesh);
        for (unsigned k = 0; k < 60; k++) {
            uint64_t steps[5], clocks[5];
            for (uint32_t i = 0; i < 5; i++) {
                steps[i] = mesh.workers[i].step;
                clocks[i] = mesh_view(&mesh, i).clock_tokens;
            }
            mesh_run(&mesh, SECONDS(3));
            for (uint32_t i = 0; i < 5; i++) {
                const bool is_over = mesh.workers[i].is_finished;
                assert_true(is_over || mesh.workers[i].step >= steps[i] + 29);
                const struct tw_node_view view = mesh_view(&mesh, i);
                /* A receiver has no clock until it has adopted the other state, which is ahead
                 * of its own. */
                assert_true(view.state == TW_STATE_RECEIVER || view.clock_tokens >= clocks[i]);
            }
            const uint32_t a = draw(5), b = draw(5);
            struct tw_position position;
            tw_node_position(mesh.nodes[a], &position);
            const uint32_t how = draw(4);
            if (how == 0 && a != b) mesh_unlink(&mesh, a, b);
            if (how == 1 || how == 2) {
                mesh_kill(&mesh, a);
                mesh_run(&mesh, 1000);
                mesh_start(&mesh, a, how == 1 ? &position : NULL);
            }
            if (how == 3) {
                mesh_run(&mesh, 1000);
                mesh_link_all(&mesh);
            }
        }
        mesh_run(&mesh, 1000);
        mesh_link_all(&mesh);
        mesh_run(&mesh, SECONDS(900));
        for (uint32_t i = 0; i < 5; i++) {
            assert_int_equal(mesh_view(&mesh, i).state, TW_STATE_FINISHED);
            assert_in_range(mesh_view(&mesh, i).clock_tokens, 1500000, 1700000);
        }
        mesh_deinit(&mesh);
    }
}

/* ---- lying peers ----------------------------------------------------------------------------- */

static void deliver_from(uint32_t to, uint16_t from, struct tw_message *message) {
    const struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = from, .u.message = message};
    mesh_deliver(&mesh, to, &event);
}

/* If two nodes ask each other, the request of the lower id makes the other void, even if no
 * exchange follows. */
TEST(void_request_is_not_waited_for) {
    start(2, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(10));
    set_short(0, true); /* node 0 never asks for a payload */
    mesh_run(&mesh, SECONDS(5));
    while (!mesh_view(&mesh, 1).pairs.is_trading) mesh_run(&mesh, 1000);
    static struct tw_message message;
    message.kind = TW_MSG_PAIR_REQUEST;
    message.u.pair_request = (struct tw_msg_pair_request){{1, 2}, 63, 0};
    const uint64_t alone = mesh_view(&mesh, 1).pairs.alone;
    deliver_from(1, 0, &message);
    assert_false(mesh_view(&mesh, 1).pairs.is_trading);
    mesh_run(&mesh, 200000); /* well before the two seconds that an answer may take */
    assert_int_equal(mesh_view(&mesh, 1).pairs.alone, alone + 1);
    assert_even_books(0);
    mesh_deinit(&mesh);
}

/* Node 1 sends random pair messages. Node 0 must not be affected. */
TEST(lies_cost_nothing) {
    start(2, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(30));
    static struct tw_message message;
    for (unsigned k = 0; k < 300; k++) {
        memset(&message, 0, sizeof(message));
        const struct tw_pair_id pair = {draw(3), draw(3)};
        switch (draw(4)) {
        case 0:
            message.kind = TW_MSG_PAIR_REQUEST;
            message.u.pair_request = (struct tw_msg_pair_request){pair, draw(64), draw(2)};
            break;
        case 1:
            message.kind = TW_MSG_PAIR_ACCEPT;
            message.u.pair_accept = (struct tw_msg_pair_accept){pair, 1};
            break;
        case 2:
            message.kind = TW_MSG_PAIR_OFFER;
            message.u.pair_offer = (struct tw_msg_pair_offer){
                .pair = pair, .clock_tokens = UINT64_MAX, .delta_bytes = 1, .phi_bytes = 1};
            break;
        default:
            message.kind = TW_MSG_PAIR_BUSY;
            message.u.pair_busy.pair = pair;
            break;
        }
        deliver_from(0, 1, &message);
        mesh_run(&mesh, UINT64_C(1000) * draw(500));
    }
    const struct tw_node_view view = mesh_view(&mesh, 0);
    assert_int_equal(view.state, TW_STATE_SOLO);
    assert_true(view.rounds > 70);
    assert_true(view.pairs.refused > 0);
    assert_in_range(view.pairs.one_sided, 0, 5);
    const uint64_t tokens = mesh.workers[0].tokens + mesh.workers[1].tokens;
    assert_in_range(view.clock_tokens, tokens / 2, tokens * 16 / 10); /* raised by half at most */
    mesh_deinit(&mesh);
}

TEST(lying_clock_lifts_by_half_at_most) {
    start(2, 2);
    mesh.is_liar[1] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(60));
    assert_true(mesh_view(&mesh, 0).pairs.merged > 20);
    const uint64_t tokens = mesh.workers[0].tokens + mesh.workers[1].tokens;
    assert_in_range(mesh_view(&mesh, 0).clock_tokens, tokens, tokens * 16 / 10);
    mesh_deinit(&mesh);
}

/* The boaster's real state is behind its claimed clock. The others adopt that state more and more
 * rarely, and go on merging. */
TEST(boaster_is_followed_ever_more_rarely) {
    start(3, 2);
    mesh.is_boaster[2] = true;
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(300));
    const uint32_t early = mesh.forks[0];
    const uint64_t merged = mesh_view(&mesh, 0).pairs.merged;
    assert_true(early > 2); /* start() accounts for two of them */
    mesh_run(&mesh, SECONDS(600));
    assert_in_range(mesh.forks[0] - early, 0,
                    2 * 3); /* two forks each time: into the boaster's lineage, then into its own */
    assert_true(mesh_view(&mesh, 0).pairs.merged > merged + 100);
    const uint64_t tokens =
        mesh.workers[0].tokens + mesh.workers[1].tokens + mesh.workers[2].tokens;
    assert_in_range(mesh_view(&mesh, 0).clock_tokens, tokens / 2, tokens * 16 / 10);
    mesh_deinit(&mesh);
}

/* Three linked nodes have trained for long. A fourth one lies that it is far ahead of them. */
TEST(boaster_among_many_is_not_followed) {
    start(4, 2);
    mesh_link_all(&mesh);
    mesh_run(&mesh, SECONDS(120));
    const uint32_t forks = mesh.forks[0];
    mesh.is_boaster[3] = true;
    mesh_run(&mesh, SECONDS(300));
    assert_int_equal(mesh.forks[0], forks);
    assert_true(mesh_view(&mesh, 0).pairs.merged > 100);
    mesh_deinit(&mesh);
}

int main(void) {
    tw_rng_seed(&rng, 7);
    return test_run(NULL, NULL);
}
