/* test_homes.c - worlds in which some pairs of nodes have no path, or only one through a third node
 * that may fail at any time. No invariant is broken. In the calm, the group trains as in a full
 * mesh: one lineage, every node a contributing member, rounds at their pace, and a loss as low.
 * Argument: number of seeds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static struct tw_sim_result result, mesh;

static bool draw(struct tw_sim_options *options, uint64_t seed) {
    tw_sim_options_draw(options, seed, 0, 1);
    tw_sim_options_draw_homes(options);
    return options->homes_count > 0;
}

TEST(no_invariant_is_broken_where_paths_are_missing) {
    uint64_t failed = 0, rounds = 0;
    double node_hours = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        if (!draw(&options, seed)) continue;
        tw_sim_run(&options, &result, NULL);
        node_hours += result.node_hours;
        rounds += result.rounds;
        failed += result.is_failed;
        if (!result.is_failed) continue;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        printf("repeat with: thinwire-sim --homes --seed %" PRIu64 " --hours 1 --trace\n", seed);
    }
    printf("seeds 1..%" PRIu64 ": %.1f node-hours, %.1f committed rounds per node-hour\n",
           seeds_count, node_hours, (double)rounds / node_hours);
    assert_int_equal(failed, 0);
    if (seeds_count >= 64) assert_true(node_hours >= 300);
}

/* One public node and others behind NAT, without relays or faults, decide as many rounds as the
 * same nodes in a full mesh, at about the same loss. The sums are tested: single worlds differ by
 * chance. */
TEST(star_trains_like_a_mesh) {
    uint64_t star_rounds = 0, mesh_rounds = 0;
    double star_loss = 0, mesh_loss = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed += 8) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 0, 0.5);
        if (options.nodes_count < 3) continue;
        options.faults = 0;
        options.upload_bytes_per_s = 10 * 1000 * 1000; /* the centre of a star sends every result */
        options.budget_tokens = options.together_tokens = UINT64_MAX / 4;
        tw_sim_run(&options, &mesh, NULL);
        options.homes_count = options.nodes_count - 1;
        tw_sim_run(&options, &result, NULL);
        printf("seed %" PRIu64 ": %" PRIu64 " rounds of a group, loss %.4f; mesh %" PRIu64
               ", %.4f\n",
               seed, result.group_rounds, result.loss_end, mesh.group_rounds, mesh.loss_end);
        if (result.is_failed) fail_msg("%s: %s", result.invariant, result.message);
        assert_true(result.strikes == 0);
        star_rounds += result.group_rounds;
        mesh_rounds += mesh.group_rounds;
        star_loss += result.loss_end;
        mesh_loss += mesh.loss_end + 0.02;
    }
    assert_true(star_rounds * 10 >= mesh_rounds * 9);
    assert_true(star_loss < 1.2 * mesh_loss);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    return test_run(NULL, NULL);
}
