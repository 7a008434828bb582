/* test_end.c - a run that spends its budget ends on all nodes with equal anchors, faults or not. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"
#include "tests/traitor/traitor.h"

/* The budget is spent between the middle of the faults and a little after their end. */
static void draw_options(struct tw_sim_options *options, uint64_t seed) {
    tw_sim_options_draw(options, seed, 0, 1);
    if (seed % 4 == 0) options->faults = 0;
    options->members_max = 64;
    const double steps = (double)options->chaos_us / (double)options->step_us;
    options->budget_tokens = (uint64_t)(steps * options->tokens_per_step *
                                        (0.3 + 0.05 * (double)(seed % 10)) * options->nodes_count);
}

/* Returns true if the run passes and all nodes finish: in one lineage if `is_one`, otherwise in
 * several. Prints the run if not. */
static bool ends_well(const struct tw_sim_options *options, bool is_one) {
    static struct tw_sim_result result;
    tw_sim_run(options, &result, NULL);
    if (!result.is_failed && result.finished_end == options->nodes_count &&
        (result.lineages_end == 1) == is_one)
        return true;
    tw_sim_options_print(options, stdout);
    tw_sim_result_print(options, &result, stdout);
    return false;
}

TEST(all_finish_with_equal_anchors) {
    uint32_t failed = 0;
    for (uint64_t seed = 1001; seed <= 1010; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed);
        failed += !ends_well(&options, true);
    }
    assert_int_equal(failed, 0);
}

/* With sync.together, each node finishes in its own lineage, whatever its state when the group
 * splits up. */
TEST(all_part_and_finish) {
    uint32_t failed = 0;
    for (uint64_t seed = 1101; seed <= 1110; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed);
        options.together_tokens = options.budget_tokens / 8 * (1 + seed % 7);
        failed += !ends_well(&options, options.nodes_count == 1);
    }
    assert_int_equal(failed, 0);
}

/* A third of the members constantly claim that the budget is spent, and sign and send records that
 * end the run. */
TEST(minority_ends_no_run) {
    static struct tw_sim_result result;
    static const uint32_t sizes[] = {4, 7, 4, 7};
    for (uint64_t i = 0; i < 4; i++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, 1201 + i, sizes[i], 1);
        tw_sim_options_draw_traitors(&options, (sizes[i] - 1) / 3);
        options.lies = UINT32_C(1) << TW_LIE_END;
        options.faults = 0;
        options.members_max = 64;
        const double steps = (double)(options.chaos_us + options.calm_us) / (double)options.step_us;
        options.budget_tokens =
            (uint64_t)(4 * steps * options.tokens_per_step * options.nodes_count);
        tw_sim_run(&options, &result, NULL);
        if (result.is_failed || result.finished_end > 0 || result.calm_paced == 0) {
            tw_sim_options_print(&options, stdout);
            tw_sim_result_print(&options, &result, stdout);
            fail_msg("%u nodes finished", result.finished_end);
        }
    }
}
