/* test_unequal.c - eight machines of which the first is slow, or has a thin uplink. That machine
 * takes part in the rounds and does not delay the others. */
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static const uint64_t quarter_us = UINT64_C(900000000); /* a quarter of an hour */

static void eight_machines(struct tw_sim_options *options, double slow_first) {
    tw_sim_options_draw(options, 5, 8, 1);
    options->faults = 0;
    options->chaos_us = quarter_us;
    options->calm_us = quarter_us;
    options->split_us = options->split_end_us = 0;
    options->slow_first = slow_first;
    options->speed_spread = 0;
    options->fragments_count = 3;
    options->step_us = 200 * 1000;
    options->period_steps = 10;
    options->overlap_steps = 2;
    options->pace_us = 2 * 1000 * 1000; /* half a step of a machine 20 times slower */
    options->quorum = 1;
    options->grace_us = 5 * 1000 * 1000;
    options->members_max = 64;
    options->orphan_us = 120 * 1000 * 1000;
    options->budget_tokens = UINT64_MAX / 4;
    options->inner_lr = 1e-3f;
}

static void run(struct tw_sim_options *options, struct tw_sim_result *result) {
    tw_sim_run(options, result, NULL);
    printf(
        "  slow %.0f times: %llu rounds, %llu with several, the first node in %llu; members %u\n",
        options->slow_first, (unsigned long long)result->rounds,
        (unsigned long long)result->group_rounds, (unsigned long long)result->first_rounds,
        result->members_end);
    if (result->is_failed) fail_msg("%s: %s", result->invariant, result->message);
    assert_int_equal(result->members_end, 8);
    assert_int_equal(result->lineages_end, 1);
}

TEST(a_slow_node_takes_part_and_holds_up_nobody) {
    struct tw_sim_options options;
    static struct tw_sim_result equal, unequal;
    eight_machines(&options, 1);
    run(&options, &equal);
    eight_machines(&options, 20);
    run(&options, &unequal);
    /* The slow node encodes at the last step boundary before a round is due, so most rounds list
     * it.
     */
    assert_true(unequal.first_rounds * 4 > unequal.group_rounds * 3);
    assert_true(unequal.group_rounds * 100 > equal.group_rounds * 95);
}

/* When rounds follow the clock, the overlap is a duration. If it were counted in the slow node's
 * own steps, an overlap of nearly a period would keep that node out of all but 35 of 253 rounds. */
TEST(a_slow_node_takes_part_with_a_long_overlap) {
    struct tw_sim_options options;
    static struct tw_sim_result unequal;
    eight_machines(&options, 8);
    options.fragments_count = 1;
    options.overlap_steps = 9;
    run(&options, &unequal);
    assert_true(unequal.first_rounds * 10 > unequal.group_rounds * 9);
}

/* `is_measured`: part sizes follow the upload rates; otherwise parts are equal. Rounds follow the
 * step count and are as large as the thin uplink can just carry, so the slowest owner sets their
 * duration. */
static void with_a_thin_uplink(struct tw_sim_options *options, bool is_measured) {
    eight_machines(options, 1);
    options->upload_bytes_per_s = 1000 * 1000;
    options->thin_first = 10;
    options->is_measured = is_measured;
    options->latency_us = 20 * 1000;
    options->jitter_us = 2 * 1000;
    options->loss = 0;
    options->bytes_per_dim = 40 * 1000;
    options->dims_per_fragment = 16;
    options->pace_us = 0;
}

TEST(parts_follow_the_uploads_of_their_owners) {
    struct tw_sim_options options;
    static struct tw_sim_result equal, measured;
    with_a_thin_uplink(&options, false);
    run(&options, &equal);
    with_a_thin_uplink(&options, true);
    run(&options, &measured);
    printf("  thin uplink: %llu group rounds with equal parts, %llu with measured ones; the thin "
           "one in %llu and %llu\n",
           (unsigned long long)equal.group_rounds, (unsigned long long)measured.group_rounds,
           (unsigned long long)equal.first_rounds, (unsigned long long)measured.first_rounds);
    assert_true(measured.group_rounds * 100 > equal.group_rounds * 110);
    assert_true(measured.first_rounds > equal.first_rounds);
}
