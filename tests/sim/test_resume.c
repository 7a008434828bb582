/* test_resume.c - links are reset during transfers: no chunk that arrived is sent again. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static struct tw_sim_result whole, cut;

/* Four nodes. One state occupies an uplink for about half a minute. `faults`: bit set. */
static void draw_options(struct tw_sim_options *options, uint64_t seed, uint32_t faults) {
    tw_sim_options_draw(options, seed, 4, 1);
    options->faults = faults;
    options->chaos_us = UINT64_C(2400000000);
    options->calm_us = UINT64_C(1200000000);
    options->split_us = options->split_end_us = 0;
    options->fault_per_hour[TW_SIM_RESET] = 60;
    options->fault_per_hour[TW_SIM_DISK] = 4;
    options->outage_us = 5 * 1000 * 1000;
    options->latency_us = 50 * 1000;
    options->jitter_us = 5 * 1000;
    options->loss = 0;
    options->slow_first = 1;
    options->speed_spread = 0.1;
    options->upload_bytes_per_s = 500 * 1000;
    options->bytes_per_dim = 250 * 1000;
    options->dims_per_fragment = 16;
    options->fragments_count = 2;
    options->step_us = 500 * 1000;
    options->period_steps = 240;
    options->overlap_steps = 60;
    options->pace_us = 0;
    options->quorum = 1;
    options->grace_us = 5 * 1000 * 1000;
    options->members_max = 64;
    options->orphan_us = 120 * 1000 * 1000;
    options->budget_tokens = UINT64_MAX / 4;
}

static void run(uint64_t seed, uint32_t faults, struct tw_sim_result *result) {
    struct tw_sim_options options;
    draw_options(&options, seed, faults);
    tw_sim_run(&options, result, NULL);
    if (result->is_failed) {
        tw_sim_result_print(&options, result, stdout);
        fail_msg("%s: %s", result->invariant, result->message);
    }
    printf("  seed %" PRIu64 ": %" PRIu64 " links cut, %" PRIu64 " disks lost, %" PRIu64
           " chunks sent, %" PRIu64 " received twice, %" PRIu64 " of dropped payloads, %" PRIu64
           " states\n",
           seed, result->faults[TW_SIM_RESET], result->faults[TW_SIM_DISK], result->chunks,
           result->chunks_again, result->chunks_thrown, result->loads);
}

/* The simulator itself fails a run that requests a stored chunk (invariant 32). */
TEST(received_chunks_are_not_sent_again) {
    uint64_t thrown = 0, sent = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run(seed, 0, &whole);
        assert_int_equal(whole.chunks_again, 0);
        thrown += whole.chunks_thrown; /* contributions that miss the grace of a round */
        sent += whole.chunks;
        run(seed, 1u << TW_SIM_RESET, &cut);
        assert_true(cut.faults[TW_SIM_RESET] > 50);
        assert_int_equal(cut.chunks_again, 0);
        /* The sum is tested: in one run, a round may leave out the part of a disconnected owner. */
        thrown += cut.chunks_thrown;
        sent += cut.chunks;
    }
    assert_true(thrown * 100 < sent);
}

/* Nodes with an empty disk fetch states that change with every round, over links that are reset. */
TEST(states_come_whole_through_cuts) {
    uint64_t again = 0, thrown = 0, sent = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        run(seed, 1u << TW_SIM_RESET | 1u << TW_SIM_DISK, &cut);
        assert_true(cut.loads > 2 * cut.faults[TW_SIM_DISK]);
        again += cut.chunks_again;
        thrown += cut.chunks_thrown;
        sent += cut.chunks;
    }
    assert_true(again * 100 < sent);
    assert_true(thrown * 50 < sent);
}
