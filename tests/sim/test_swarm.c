/* test_swarm.c - many small runs with every kind of fault, none of which breaks an invariant.
 * Arguments: number of seeds; file of seeds that failed once (optional). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static const char *corpus_path;
static struct tw_sim_result result, again, sum;

static void run(uint64_t seed, uint32_t nodes, double hours, struct tw_sim_result *to) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, nodes, hours);
    tw_sim_run(&options, to, NULL);
    if (!to->is_failed) return;
    tw_sim_options_print(&options, stdout);
    tw_sim_result_print(&options, to, stdout);
    /* A given number of nodes makes another world than the same number drawn from the seed. */
    printf("repeat with: thinwire-sim --seed %" PRIu64 " --hours %g --trace", seed, hours);
    if (nodes != 0) printf(" --nodes %u", nodes);
    printf("\n");
}

TEST(no_invariant_is_broken_by_the_swarm) {
    uint64_t failed = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        run(seed, 0, 1, &result);
        failed += result.is_failed;
        sum.node_hours += result.node_hours;
        sum.rounds += result.rounds;
        for (uint32_t i = 0; i < TW_SIM_FAULTS_COUNT; i++) sum.faults[i] += result.faults[i];
        for (uint32_t s = 0; s < TW_SIM_STATES; s++) {
            for (uint32_t e = 0; e < TW_SIM_EVENTS; e++) {
                sum.histogram[s][e] += result.histogram[s][e];
            }
        }
    }
    const double rounds = (double)sum.rounds / sum.node_hours;
    const double faults = (double)tw_sim_result_faults(&sum) / sum.node_hours;
    printf("seeds 1..%" PRIu64 ": %.1f node-hours, per node-hour %.1f committed rounds and %.1f "
           "faults\n",
           seeds_count, sum.node_hours, rounds, faults);
    tw_sim_histogram_print(&sum, stdout);
    assert_int_equal(failed, 0);
    assert_true(rounds >= 10);
    assert_true(faults >= 5);
    if (seeds_count >= 64) assert_true(sum.node_hours >= 300);
}

/* Part sizes follow the owners' upload rates, so parts differ from round to round. */
TEST(no_invariant_is_broken_by_unequal_parts) {
    for (uint64_t seed = 1; seed <= (seeds_count + 3) / 4; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 0, 0.5);
        options.is_measured = true;
        tw_sim_run(&options, &result, NULL);
        if (result.is_failed)
            fail_msg("seed %" PRIu64 " with measured uploads: %s: %s", seed, result.invariant,
                     result.message);
    }
}

TEST(equal_seeds_give_equal_hashes) {
    for (uint64_t seed = 1; seed <= seeds_count; seed += 10) {
        run(seed, 0, 0.25, &result);
        run(seed, 0, 0.25, &again);
        assert_int_equal(result.hash, again.hash);
        assert_int_equal(result.events, again.events);
        run(seed + 1, 0, 0.25, &again);
        assert_int_not_equal(result.hash, again.hash);
    }
}

TEST(faults_cost_little_once_they_are_over) {
    for (uint64_t seed = 1; seed <= seeds_count; seed += 9) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 0, 1);
        options.budget_tokens = UINT64_MAX / 4;
        tw_sim_run(&options, &result, NULL);
        options.faults = 0;
        tw_sim_run(&options, &again, NULL);
        assert_false(again.is_failed);
        if (result.loss_end > 1.2 * again.loss_end + 0.03) {
            print_error("seed %" PRIu64 ": loss %.4f, without faults %.4f\n", seed, result.loss_end,
                        again.loss_end);
            fail();
        }
    }
}

TEST(seeds_that_failed_once_pass) {
    if (corpus_path == NULL) skip();
    FILE *file = fopen(corpus_path, "r");
    assert_non_null(file);
    char line[256];
    uint64_t seed, count = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned nodes;
        double hours;
        if (line[0] == '#' || line[0] == '\n') continue;
        assert_int_equal(sscanf(line, "%" SCNu64 " %u %lf", &seed, &nodes, &hours), 3);
        /* The first test has already run this seed. */
        if (nodes == 0 && hours == 1.0 && seed <= seeds_count) continue;
        run(seed, nodes, hours, &result);
        count++;
        assert_false(result.is_failed);
    }
    fclose(file);
    assert_true(count > 0);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    corpus_path = argc == 3 ? argv[2] : NULL;
    return test_run(NULL, NULL);
}
