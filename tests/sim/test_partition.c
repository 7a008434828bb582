/* test_partition.c - six nodes are partitioned into halves for a day. Both halves keep training.
 * After the day one lineage remains, at most 2 % worse than the better half was. */
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static const uint64_t hour_us = UINT64_C(3600000000);

static void split_for_a_day(struct tw_sim_options *options) {
    tw_sim_options_draw(options, 24, 6, 27);
    options->faults = 0;
    options->chaos_us = 26 * hour_us;
    options->calm_us = 2 * hour_us;
    options->split_us = hour_us;
    options->split_end_us = 25 * hour_us;
    options->fragments_count = 3;
    options->step_us = 4 * 1000 * 1000;
    options->speed_spread = 0.2;
    options->period_steps = 16;
    options->overlap_steps = 4;
    options->pace_us = 0;
    options->quorum = 3;
    options->grace_us = 20 * 1000 * 1000;
    options->members_max = 64;
    options->orphan_us = 120 * 1000 * 1000;
    options->budget_tokens = UINT64_MAX / 4;
    options->inner_lr = 2e-4f; /* so small that the loss still falls after a day */
    options->outer_momentum = 0;
}

TEST(a_day_apart_ends_with_one_lineage) {
    struct tw_sim_options options;
    static struct tw_sim_result result;
    split_for_a_day(&options);
    tw_sim_run(&options, &result, NULL);
    tw_sim_options_print(&options, stdout);
    tw_sim_result_print(&options, &result, stdout);
    for (int side = 0; side < 2; side++) {
        const struct tw_sim_side *it = &result.sides[side];
        printf("  side %d     %llu rounds in the 24 h, loss %.4f at its end\n", side,
               (unsigned long long)(it->rounds - it->rounds_before), it->loss);
    }
    assert_false(result.is_failed);
    assert_int_equal(result.lineages_end, 1);
    assert_int_equal(result.members_end, 6);
    for (int side = 0; side < 2; side++) {
        /* 24 h in rounds of 16 steps of 4 s are 1350 rounds, less the 2 min before the fork. */
        assert_true(result.sides[side].rounds - result.sides[side].rounds_before > 600);
        assert_int_equal(result.sides[side].lineages, 1);
        assert_true(result.sides[side].loss < 0.5 * result.loss_start);
        assert_true(result.loss_end <= 1.02 * result.sides[side].loss);
    }
}
