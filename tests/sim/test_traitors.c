/* test_traitors.c - a third of the members run no honest core (treason.c). No invariant is broken
 * for the others, and most of their rounds go on. A traitor that is not waited for as a proposer
 * may still hold a ballot for seconds, now and then. The rounds of these worlds last only seconds,
 * too, so the larger groups lose more than a run with rounds of minutes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t seeds_count;
static double hours;
static struct tw_sim_result result, without;

enum { SIZES = 3 };
static const uint32_t sizes[SIZES] = {4, 7, 16};

struct sums {
    uint64_t failed, worlds, overrun;
    uint64_t rounds[SIZES], without[SIZES]; /* rounds with traitors, and of worlds without faults */
    double node_hours;
};

static void run_world(uint64_t seed, uint32_t size, struct sums *sums) {
    const uint32_t nodes_count = sizes[size];
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, nodes_count, hours);
    tw_sim_options_draw_traitors(&options, 0);
    tw_sim_run(&options, &result, NULL);
    sums->worlds++;
    sums->node_hours += result.node_hours;
    sums->overrun += result.is_overrun;
    if (result.is_failed) {
        sums->failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        printf("repeat with: thinwire-sim --seed %" PRIu64 " --nodes %u --hours %g --traitors 0\n",
               seed, nodes_count, hours);
        return;
    }
    if (result.is_overrun || options.faults != 0 || result.finished_end > 0) return;
    options.traitors_count = 0;
    tw_sim_run(&options, &without, NULL);
    sums->node_hours += without.node_hours;
    sums->rounds[size] += result.calm_paced;
    sums->without[size] += without.calm_paced;
    printf("seed %" PRIu64 ", %u nodes: %" PRIu64 " rounds, %" PRIu64 " without traitors\n", seed,
           nodes_count, result.calm_paced, without.calm_paced);
}

static void traitors_break_nothing_and_stop_nobody(void **state) {
    (void)state;
    static const uint32_t drawn[] = {0, 0, 0, 1, 1, 2};
    struct sums sums = {0};
    uint64_t rounds = 0, all = 0;
    for (uint64_t seed = 1; seed <= seeds_count; seed++) run_world(seed, drawn[seed % 6], &sums);
    printf("%" PRIu64 " worlds, %" PRIu64 " failed, %" PRIu64
           " overrun by faults; %.0f node-hours\n",
           sums.worlds, sums.failed, sums.overrun, sums.node_hours);
    for (uint32_t i = 0; i < SIZES; i++) {
        printf("%2u nodes: %" PRIu64 " rounds, %" PRIu64 " without traitors\n", sizes[i],
               sums.rounds[i], sums.without[i]);
        rounds += sums.rounds[i];
        all += sums.without[i];
    }
    assert_int_equal(sums.failed, 0);
    assert_true(10 * rounds >= 6 * all);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    seeds_count = strtoull(argv[1], NULL, 10);
    hours = strtod(argv[2], NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traitors_break_nothing_and_stop_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
