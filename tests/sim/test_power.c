/* test_power.c - all nodes lose power at once, again and again. Each time they are one group again
 * within less than a minute, and go on from the newest checkpoint that any of them has. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static struct tw_sim_result result;

static void draw_options(struct tw_sim_options *options, uint64_t seed, uint32_t nodes_count) {
    tw_sim_options_draw(options, seed, nodes_count, 1);
    options->faults = 1u << TW_SIM_POWER;
    options->fault_per_hour[TW_SIM_POWER] = 20.0 / nodes_count; /* of all together */
    options->chaos_us = UINT64_C(1800000000);
    options->calm_us = UINT64_C(600000000);
    options->split_us = options->split_end_us = 0;
    options->slow_first = 1;
    options->speed_spread = 0.1;
    options->latency_us = 50 * 1000;
    options->jitter_us = 5 * 1000;
    options->loss = 0;
    options->upload_bytes_per_s = 5 * 1000 * 1000;
    options->bytes_per_dim = 1000;
    options->fragments_count = 3;
    options->step_us = 500 * 1000;
    options->period_steps = 12;
    options->overlap_steps = 3;
    options->pace_us = 0;
    options->quorum = 1;
    options->grace_us = 5 * 1000 * 1000;
    options->members_max = 64;
    options->orphan_us = 120 * 1000 * 1000;
    options->budget_tokens = UINT64_MAX / 4;
}

TEST(group_goes_on_from_its_newest_checkpoint) {
    uint64_t cuts = 0, recovered = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed, (uint32_t)(2 + seed % 4));
        tw_sim_run(&options, &result, NULL);
        if (result.is_failed) {
            tw_sim_result_print(&options, &result, stdout);
            fail_msg("%s: %s", result.invariant, result.message);
        }
        printf("  seed %" PRIu64 ", %u nodes: %" PRIu64 " power cuts, %" PRIu64
               " times whole and not behind after 45 s\n",
               seed, options.nodes_count, result.faults[TW_SIM_POWER], result.power_recovered);
        cuts += result.faults[TW_SIM_POWER];
        recovered += result.power_recovered;
    }
    assert_true(cuts > 10);
    /* Cuts in quick succession are judged once. */
    assert_true(10 * recovered >= 8 * cuts);
}
