/* test_liars.c - owners, proposers and acceptors that lie about results (lie.c). No invariant is
 * broken, few lies are merged, and the honest nodes keep their pace. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;

/* A quarter of the nodes lie: too few to reach a majority with honest nodes that miss a lie. */
TEST(few_lies_are_merged_and_nobody_stalls) {
    static struct tw_sim_result result;
    uint64_t failed = 0, told = 0, committed = 0, strikes = 0, rounds = 0, most = 0, given_back = 0;
    uint64_t fooled = 0; /* worlds in which more than a fifth of the lies were committed */
    uint64_t tries[TW_SIM_TRIES] = {0};
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 5 + (uint32_t)(seed % 7), 1);
        options.liars_count = options.nodes_count / 4;
        tw_sim_run(&options, &result, NULL);
        told += result.lies_told;
        committed += result.lies_committed;
        if (5 * result.lies_committed > result.lies_told) fooled++;
        strikes += result.strikes;
        given_back += result.given_back;
        rounds += result.group_rounds;
        for (uint32_t i = 0; i < TW_SIM_TRIES; i++) tries[i] += result.tries[i];
        if (result.tries_most > most) most = result.tries_most;
        if (result.tries_most >= 16)
            printf("seed %" PRIu64 ": a round with %" PRIu64 " ballots\n", seed, result.tries_most);
        if (!result.is_failed) continue;
        failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        printf("repeat with: thinwire-sim --seed %" PRIu64 " --nodes %u --hours 1 --liars %u\n",
               seed, options.nodes_count, options.liars_count);
    }
    printf("%" PRIu64 " group rounds, %" PRIu64 " lies published, %" PRIu64 " committed, %" PRIu64
           " strikes after audits, %" PRIu64 " parts for struck owners\n",
           rounds, told, committed, strikes, given_back);
    printf("ballots above the lowest, rounds with 0, 1, 2-3, 4-7, ...:");
    for (uint32_t i = 0; i < TW_SIM_TRIES; i++) printf(" %" PRIu64, tries[i]);
    printf("; most %" PRIu64 "; in %" PRIu64 " worlds more than a fifth of the lies\n", most,
           fooled);
    assert_int_equal(failed, 0);
    assert_true(told > 15 * seeds_count);
    /* By worlds: in one whose liars are alone with one honest node for long, most lies pass. */
    assert_true(5 * fooled < seeds_count);
    assert_true(5 * committed < told);
    assert_true(strikes > 0);
    /* A few vetoes block no round. Members that started late have no vote for a while, so a liar
     * may be one of three voters. */
    assert_true(most < 128);
}

/* All nodes are honest, but each judges every eighth result an outlier. In groups too small to
 * outvote one node, this splits no lineage and stops no round. */
TEST(doubts_of_one_of_few_stop_nothing) {
    static struct tw_sim_result result;
    uint64_t failed = 0, rounds = 0, committed = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) {
        struct tw_sim_options options;
        tw_sim_options_draw(&options, seed, 2 + (uint32_t)(seed % 3), 1);
        options.has_doubt = true;
        tw_sim_run(&options, &result, NULL);
        rounds += result.group_rounds;
        for (uint32_t i = 1; i < TW_SIM_TRIES; i++) committed += result.tries[i];
        if (!result.is_failed) continue;
        failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
    }
    printf("%" PRIu64 " group rounds, %" PRIu64 " of them with more than one ballot\n", rounds,
           committed);
    assert_int_equal(failed, 0);
    assert_true(committed > rounds / 20); /* committed in spite of a veto */
}

/* ---- members that send work they did not do, and checks of training (sync/check/audit.c) -------
 */

static uint64_t jury_seeds(void) {
    return 1 + seeds_count / 4;
}

static void run_jury(uint64_t seed, uint32_t idlers, struct tw_sim_result *result) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, 5 + (uint32_t)(seed % 7), 1);
    options.jury_millionths = 500000;
    options.idlers_count = idlers;
    tw_sim_run(&options, result, NULL);
    if (!result->is_failed) return;
    tw_sim_options_print(&options, stdout);
    tw_sim_result_print(&options, result, stdout);
}

TEST(idlers_are_found_and_nobody_else) {
    static struct tw_sim_result result;
    uint64_t failed = 0, checks = 0, found = 0, worlds = 0;
    for (uint64_t seed = 1; seed <= jury_seeds(); seed++) {
        run_jury(seed, 1, &result);
        failed += result.is_failed;
        checks += result.checks;
        found += result.idlers_found;
        worlds += result.idlers_found > 0;
    }
    printf("%" PRIu64 " checks, %" PRIu64 " verdicts, in %" PRIu64 " of %" PRIu64 " worlds\n",
           checks, found, worlds, jury_seeds());
    assert_int_equal(failed, 0);
    assert_true(2 * worlds > jury_seeds());
}

TEST(honest_worlds_have_no_verdict) {
    static struct tw_sim_result result;
    uint64_t failed = 0, checks = 0;
    for (uint64_t seed = 1; seed <= jury_seeds(); seed++) {
        run_jury(seed, 0, &result);
        failed += result.is_failed;
        checks += result.checks;
    }
    printf("%" PRIu64 " checks\n", checks);
    assert_int_equal(failed, 0);
    assert_true(checks > 100 * jury_seeds());
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    return test_run(NULL, NULL);
}
