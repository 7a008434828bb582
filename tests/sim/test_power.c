/* test_power.c - all nodes that vote lose power at once, again and again. Each time all are one
 * group again within less than a minute, and go on from the newest checkpoint that any of them has.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static struct tw_sim_result result;

/* Cuts in quick succession are judged once. */
static void check_cuts(uint32_t voters_count, uint64_t seeds) {
    uint64_t cuts = 0, recovered = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, voters_count > 0 ? 7 : (uint32_t)(2 + seed % 4), 1);
        tw_sim_options_draw_power(&options);
        options.voters_count = voters_count;
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
    assert_true(cuts > 5 * seeds / 2);
    assert_true(10 * recovered >= 8 * cuts);
}

TEST(group_goes_on_from_its_newest_checkpoint) {
    check_cuts(0, 4);
}

/* The trainers keep the state, which the voters lack when they return. */
TEST(voters_that_all_return_behind_soon_decide_again) {
    check_cuts(4, 2);
}
