/* test_roles.c - groups in which some nodes take no steps: they follow, or they reduce. No
 * invariant is broken by any fault. A node that reduces owns parts, so that nodes that train
 * send fewer results. Argument: number of seeds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static struct tw_sim_result result;

static void run(const struct tw_sim_options *options) {
    tw_sim_run(options, &result, NULL);
    if (!result.is_failed) return;
    tw_sim_options_print(options, stdout);
    tw_sim_result_print(options, &result, stdout);
    fail_msg("seed %" PRIu64 ": %s: %s", options->seed, result.invariant, result.message);
}

/* At least one node trains, and has a seat. */
static void draw_roles(struct tw_sim_options *options, uint64_t seed) {
    options->members_max = 64;
    const uint32_t others = options->nodes_count / 2;
    options->reducers_count = 1 + (uint32_t)(seed % others);
    options->followers_count = others - options->reducers_count;
}

TEST(no_invariant_is_broken) {
    uint64_t reduced = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 3 + (uint32_t)(seed % 6), 1);
        if (seed % 4 == 3) tw_sim_options_draw_homes(&options);
        draw_roles(&options, seed);
        run(&options);
        reduced += result.reduced_parts;
    }
    assert_true(reduced > 0);
}

static void quiet(struct tw_sim_options *options, uint64_t seed, uint32_t nodes) {
    tw_sim_options_draw(options, seed, nodes, 0.5);
    options->faults = 0;
    options->members_max = 64;
    options->budget_tokens = options->together_tokens = UINT64_MAX / 4;
    options->upload_bytes_per_s = 10 * 1000 * 1000;
}

/* Three nodes train; the fourth follows, or reduces. */
TEST(node_that_reduces_takes_work_from_the_others) {
    uint64_t rounds[2] = {0}, bytes[2] = {0};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        for (uint32_t k = 0; k < 2; k++) {
            struct tw_sim_options options;
            quiet(&options, seed, 4);
            options.followers_count = 1 - k;
            options.reducers_count = k;
            run(&options);
            assert_int_equal(result.lineages_end, 1);
            assert_int_equal(result.members_end, 4);
            assert_true(k == 0 ? result.reduced_parts == 0
                               : 10 * result.reduced_parts >= 9 * result.group_rounds);
            rounds[k] += result.group_rounds;
            bytes[k] += result.trainer_bytes;
        }
    }
    printf("rounds %" PRIu64 " with a follower, %" PRIu64 " with a reducer; result bytes of nodes "
           "that train: %" PRIu64 ", %" PRIu64 "\n",
           rounds[0], rounds[1], bytes[0], bytes[1]);
    assert_true(10 * rounds[1] >= 9 * rounds[0]);
    assert_true(100 * bytes[1] * rounds[0] <= 85 * bytes[0] * rounds[1]); /* a round */
}

/* The node that reduces publishes false results. It is refused and struck as any other owner. */
TEST(reducer_that_lies_is_struck) {
    uint64_t told = 0, committed = 0, strikes = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct tw_sim_options options;
        quiet(&options, seed, 7);
        options.reducers_count = options.liars_count = 1;
        run(&options);
        assert_true(result.group_rounds > 20);
        told += result.lies_told;
        committed += result.lies_committed;
        strikes += result.strikes;
    }
    printf("lies told %" PRIu64 ", committed %" PRIu64 "; strikes %" PRIu64 "\n", told, committed,
           strikes);
    assert_true(told > 10 && strikes > 0);
    assert_true(10 * committed <= told);
}

/* Traitors claim to reduce, and lie in every message. The others keep a pace. */
TEST(traitors_that_claim_to_reduce_stop_no_group) {
    static const uint32_t sizes[] = {4, 7};
    for (uint64_t seed = 1; seed <= 2 * seeds_count / 4; seed++) {
        struct tw_sim_options options;
        const uint32_t nodes = sizes[seed % 2];
        tw_sim_options_draw(&options, seed, nodes, 1);
        tw_sim_options_draw_traitors(&options, (nodes - 1) / 3);
        options.reducers_count = options.traitors_count + 1;
        run(&options);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    return test_run(NULL, NULL);
}
