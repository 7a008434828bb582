/* test_pairs.c - many small runs in pairs. No kind of fault breaks an invariant, and without faults
 * merges and clocks are nearly exact. Arguments: number of seeds, file of seeds that failed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static const char *corpus_path;
static struct tw_sim_result result, again, sum;

static void draw_options(struct tw_sim_options *options, uint64_t seed, uint32_t nodes,
                         double hours) {
    tw_sim_options_draw(options, seed, nodes, hours);
    options->is_pair = true;
}

static bool run(const struct tw_sim_options *options, struct tw_sim_result *to, double hours) {
    tw_sim_run(options, to, NULL);
    if (!to->is_failed) return true;
    tw_sim_options_print(options, stdout);
    tw_sim_result_print(options, to, stdout);
    printf("repeat with: thinwire-sim --pairs --seed %" PRIu64 " --hours %g --trace", options->seed,
           hours);
    if (options->liars_count > 0)
        printf(" --nodes %u --liars %u", options->nodes_count, options->liars_count);
    printf("\n");
    return false;
}

TEST(no_invariant_is_broken_by_the_swarm) {
    uint64_t failed = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed, 0, 1);
        failed += !run(&options, &result, 1);
        sum.node_hours += result.node_hours;
        sum.rounds += result.rounds;
        sum.merges += result.merges;
        sum.merges_whole += result.merges_whole;
        sum.merges_deserted += result.merges_deserted;
        for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) sum.faults[i] += result.faults[i];
    }
    const uint64_t one_sided = sum.merges - 2 * sum.merges_whole;
    printf("seeds 1..%" PRIu64 ": %.1f node-hours, per node-hour %.1f rounds and %.1f faults; "
           "%" PRIu64 " exchanges merged by both, %" PRIu64 " by one; %" PRIu64
           " reported as one-sided\n",
           seeds_count, sum.node_hours, (double)sum.rounds / sum.node_hours,
           (double)tw_sim_result_faults(&sum) / sum.node_hours, sum.merges_whole, one_sided,
           sum.merges_deserted);
    assert_int_equal(failed, 0);
    assert_true((double)sum.rounds > 10 * sum.node_hours);
    assert_true((double)tw_sim_result_faults(&sum) > 5 * sum.node_hours);
    assert_true(one_sided < sum.merges_whole);
    assert_true(sum.merges > sum.rounds / 4);
}

TEST(without_faults_only_unread_anchors_are_one_sided) {
    for (uint64_t seed = 1; seed <= seeds_count; seed += 3) {
        struct tw_sim_options options;
        draw_options(&options, seed, 0, 0.5);
        options.faults = 0;
        options.loss = 0;
        options.budget_tokens = UINT64_MAX / 4;
        assert_true(run(&options, &result, 0.5));
        assert_true(result.merges > 0);
        const uint64_t one_sided = result.merges - 2 * result.merges_whole;
        /* Some exchanges are still in progress when the run ends. */
        assert_true(one_sided <= result.phis_unread + options.nodes_count / 2);
        assert_true(result.merges_deserted <= result.phis_unread);
        assert_true((double)result.clock_tokens > 0.9 * (double)result.tokens);
        assert_true((double)result.clock_tokens < 1.1 * (double)result.tokens);
    }
}

TEST(equal_seeds_give_equal_hashes) {
    struct tw_sim_options options;
    draw_options(&options, 7, 0, 0.25);
    assert_true(run(&options, &result, 0.25));
    assert_true(run(&options, &again, 0.25));
    assert_int_equal(result.hash, again.hash);
    assert_int_equal(result.merges, again.merges);
}

/* The budget is spent during the faults, and each node finishes on its own. */
TEST(every_run_ends) {
    for (uint64_t seed = 2001; seed < 2001 + seeds_count / 2; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed, 0, 1);
        const double steps = (double)options.chaos_us / (double)options.step_us;
        options.budget_tokens =
            (uint64_t)(steps * options.tokens_per_step * 0.3) * options.nodes_count;
        assert_true(run(&options, &result, 1));
        if (result.finished_end == options.nodes_count) continue;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        fail();
    }
}

/* A lying partner harms no honest node: honest nodes keep invariants and pace, merge with each
 * other, and reach a low loss. */
TEST(liars_harm_nobody) {
    uint64_t told = 0, failed = 0, merges = 0, one_sided = 0;
    for (uint64_t seed = 61; seed < 61 + seeds_count / 2; seed++) {
        struct tw_sim_options options;
        draw_options(&options, seed, 5 + (uint32_t)(seed % 3), 1);
        options.liars_count = 1;
        failed += !run(&options, &result, 1);
        told += result.lies_told;
        merges += result.merges_whole;
        one_sided += result.merges_deserted;
    }
    printf("%" PRIu64 " lies published, %" PRIu64 " exchanges merged by both, %" PRIu64
           " reported as one-sided\n",
           told, merges, one_sided);
    assert_int_equal(failed, 0);
    assert_true(told > 20 * (seeds_count / 2));
    assert_true(merges > told / 2);
    assert_true(one_sided > 0);
}

TEST(seeds_that_failed_once_pass) {
    FILE *file = fopen(corpus_path, "r");
    assert_non_null(file);
    char line[256];
    uint64_t seed, count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned nodes;
        double hours;
        if (line[0] == '#' || line[0] == '\n') continue;
        assert_int_equal(sscanf(line, "%" SCNu64 " %u %lf", &seed, &nodes, &hours), 3);
        struct tw_sim_options options;
        draw_options(&options, seed, nodes, hours);
        assert_true(run(&options, &result, hours));
        count++;
    }
    fclose(file);
    assert_true(count > 0);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    corpus_path = argv[2];
    return test_run(NULL, NULL);
}
