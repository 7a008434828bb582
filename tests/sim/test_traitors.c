/* test_traitors.c - a third of the members run no honest core (treason.c). No invariant is broken
 * for the others, and they keep deciding rounds. Without faults, their pace is at least four fifths
 * of the pace without traitors, once the traitors are known. Arguments: first and last seed, hours
 * of each world, and the numbers of nodes, used in turn. With "committee" before these, only some
 * nodes vote. A third of the voters lie, and any number of the others. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t first, last; /* seeds */
static bool has_committee;
static double hours;
static uint32_t sizes[64], sizes_count;
static struct tw_sim_result result, without;

struct sums {
    uint64_t failed, worlds, overrun;
    /* rounds of worlds without faults, with traitors and without, indexed by number of nodes */
    uint64_t rounds[TW_MEMBERS_MAX + 1], without[TW_MEMBERS_MAX + 1];
    double node_hours, hours_of[TW_MEMBERS_MAX + 1];
};

static void run_world(uint64_t seed, uint32_t nodes_count, struct sums *sums) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, nodes_count, hours);
    tw_sim_options_draw_traitors(&options, 0);
    if (has_committee) tw_sim_options_draw_committee(&options);
    tw_sim_run(&options, &result, NULL);
    sums->worlds++;
    sums->node_hours += result.node_hours;
    sums->hours_of[nodes_count] += result.node_hours;
    sums->overrun += result.is_overrun;
    if (result.is_failed) {
        sums->failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        printf("repeat with: thinwire-sim --seed %" PRIu64
               " --nodes %u --hours %g --traitors 0%s\n",
               seed, nodes_count, hours, has_committee ? " --committee" : "");
        return;
    }
    if (result.is_overrun || options.faults != 0 || result.finished_end > 0) return;
    options.traitors_count = options.voting_traitors = 0;
    tw_sim_run(&options, &without, NULL);
    sums->node_hours += without.node_hours;
    if (without.is_failed || without.finished_end > 0) return;
    sums->rounds[nodes_count] += result.calm_paced;
    sums->without[nodes_count] += without.calm_paced;
    printf("seed %" PRIu64 ", %u nodes: %" PRIu64 " rounds, %" PRIu64 " without traitors\n", seed,
           nodes_count, result.calm_paced, without.calm_paced);
}

static void traitors_break_nothing_and_stop_nobody(void **state) {
    (void)state;
    static struct sums sums;
    bool is_paced = true;
    for (uint64_t seed = first; seed <= last; seed++)
        run_world(seed, sizes[seed % sizes_count], &sums);
    printf("%" PRIu64 " worlds, %" PRIu64 " failed, %" PRIu64
           " overrun by faults; %.0f node-hours\n",
           sums.worlds, sums.failed, sums.overrun, sums.node_hours);
    for (uint32_t n = 0; n <= TW_MEMBERS_MAX; n++) {
        if (sums.hours_of[n] <= 0) continue;
        printf("%2u nodes: %.0f node-hours with traitors; %" PRIu64 " rounds, %" PRIu64
               " without traitors\n",
               n, sums.hours_of[n], sums.rounds[n], sums.without[n]);
        is_paced &= 10 * sums.rounds[n] >= 8 * sums.without[n];
    }
    assert_int_equal(sums.failed, 0);
    assert_true(is_paced);
}

int main(int argc, char **argv) {
    has_committee = argc > 1 && strcmp(argv[1], "committee") == 0;
    argc -= has_committee;
    argv += has_committee;
    if (argc < 5 || argc > 4 + 64) return 2;
    first = strtoull(argv[1], NULL, 10);
    last = strtoull(argv[2], NULL, 10);
    hours = strtod(argv[3], NULL);
    for (int i = 4; i < argc; i++) {
        const unsigned long size = strtoul(argv[i], NULL, 10);
        if (size < 1 || size > TW_MEMBERS_MAX) return 2;
        sizes[sizes_count++] = (uint32_t)size;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traitors_break_nothing_and_stop_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
