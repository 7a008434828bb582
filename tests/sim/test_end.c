/* test_end.c - a run that spends its budget ends everywhere, with one anchor, faults or not. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

/* The budget is spent between the middle of the faults and a little after their end. */
static void all_finish_with_equal_anchors(void **state) {
    (void)state;
    uint32_t failed = 0;
    for (uint64_t seed = 1001; seed <= 1016; seed++) {
        struct tw_sim_options options;
        static struct tw_sim_result result;
        tw_sim_options_draw(&options, seed, 0, 1);
        if (seed % 4 == 0) options.faults = 0;
        options.members_max = 64;
        const double steps = (double)options.chaos_us / (double)options.step_us;
        options.budget_tokens =
            (uint64_t)(steps * options.tokens_per_step * (0.3 + 0.05 * (double)(seed % 10)) *
                       options.nodes_count);
        tw_sim_run(&options, &result, NULL);
        const bool is_good = !result.is_failed && result.finished_end == options.nodes_count &&
                             result.lineages_end == 1;
        if (is_good) continue;
        failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
    }
    assert_int_equal(failed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_finish_with_equal_anchors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
