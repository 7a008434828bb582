/* test_own_starts.c - nodes that train any model start from different weights and agree on one
 * start. No fault breaks an invariant, and after a quiet run all nodes have one lineage and one
 * anchor. Argument: number of seeds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static struct tw_sim_result result;

static void run(struct tw_sim_options *options, bool is_pair) {
    options->is_pair = is_pair;
    options->has_own_starts = true;
    tw_sim_run(options, &result, NULL);
    if (!result.is_failed) return;
    tw_sim_options_print(options, stdout);
    fail_msg("seed %" PRIu64 "%s: %s: %s", options->seed, is_pair ? " in pairs" : "",
             result.invariant, result.message);
}

static void no_invariant_is_broken(bool is_pair) {
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 0, 1);
        run(&options, is_pair);
    }
}

TEST(no_invariant_of_a_group_is_broken) {
    no_invariant_is_broken(false);
}

TEST(no_invariant_of_pairs_is_broken) {
    no_invariant_is_broken(true);
}

static void quiet(struct tw_sim_options *options, uint64_t seed, uint32_t nodes) {
    tw_sim_options_draw(options, seed, nodes, 1);
    options->faults = 0;
    options->split_us = options->split_end_us = 0;
    options->members_max = 64;
    options->budget_tokens = UINT64_MAX / 4; /* the run does not end */
    options->together_tokens = UINT64_MAX / 4;
}

TEST(a_group_agrees_on_one_start) {
    for (uint32_t nodes = 2; nodes <= 5; nodes += 3) {
        struct tw_sim_options options;
        quiet(&options, nodes, nodes);
        run(&options, false);
        assert_int_equal(result.lineages_end, 1);
        assert_int_equal(result.members_end, nodes);
    }
}

/* All nodes except the one whose lineage comes first load another's state before they merge. */
TEST(pairs_agree_on_one_start) {
    for (uint32_t nodes = 2; nodes <= 5; nodes += 3) {
        struct tw_sim_options options;
        quiet(&options, nodes, nodes);
        run(&options, true);
        printf("  %u nodes in pairs: %" PRIu64 " fragments taken over, distance at the end %.3g\n",
               nodes, result.loads, result.consensus_end);
        assert_true(result.loads >= (uint64_t)(nodes - 1) * options.fragments_count);
    }
}

int main(int argc, char **argv) {
    seeds_count = argc > 1 ? strtoull(argv[1], NULL, 10) : 10;
    return test_run(NULL, NULL);
}
