/* test_traitors.c - a third of the members run no honest core (treason.c). No invariant is broken
 * for the others, and they keep deciding rounds. Without faults, their pace is at least four fifths
 * of the pace without traitors, once the traitors are known. Arguments: first and last seed, hours
 * of each world, and the numbers of nodes, used in turn. With "committee" before these, only some
 * nodes vote. A third of the voters lie, and any number of the others.
 *
 * With "sybils" and then first and last seed and hours: one holder of the run secret brings 8 and
 * 24 ids to old groups of 3 and 8 members, silent ones and ones that forge records. No invariant is
 * broken for the others, none of the ids gets a vote, and rounds keep their pace.
 *
 * With "donors" before the arguments: the traitors give false states to nodes that lost theirs. No
 * honest node loads one, and the donors are named. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "tests/sim/sim.h"
#include "tests/test.h"

static uint64_t first, last; /* seeds */
static bool has_committee, has_donors;
static double hours;
static uint32_t sizes[64], sizes_count;
static struct tw_sim_result result, without;

struct sums {
    uint64_t failed, worlds, overrun, false_states, false_donors, bases, group_rounds;
    /* rounds of worlds without faults, with traitors and without, indexed by number of nodes */
    uint64_t rounds[TW_MEMBERS_MAX + 1], without[TW_MEMBERS_MAX + 1];
    double node_hours, hours_of[TW_MEMBERS_MAX + 1];
};

static void run_world(uint64_t seed, uint32_t nodes_count, struct sums *sums) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, nodes_count, hours);
    tw_sim_options_draw_traitors(&options, 0);
    if (has_committee) tw_sim_options_draw_committee(&options);
    if (has_donors) tw_sim_options_draw_donors(&options);
    tw_sim_run(&options, &result, NULL);
    sums->worlds++;
    sums->bases += result.bases;
    sums->group_rounds += result.group_rounds;
    sums->false_states += result.false_states;
    sums->false_donors += result.false_donors;
    sums->node_hours += result.node_hours;
    sums->hours_of[nodes_count] += result.node_hours;
    sums->overrun += result.is_overrun;
    if (result.is_failed) {
        sums->failed++;
        tw_sim_options_print(&options, stdout);
        tw_sim_result_print(&options, &result, stdout);
        printf("repeat with: thinwire-sim --seed %" PRIu64
               " --nodes %u --hours %g --traitors 0%s\n",
               seed, nodes_count, hours,
               has_committee ? " --committee"
               : has_donors  ? " --donors"
                             : "");
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

static void false_states_are_not_loaded_and_their_donors_named(void **state) {
    static struct sums sums;
    for (uint64_t seed = first; seed <= last; seed++)
        run_world(seed, sizes[seed % sizes_count], &sums);
    printf("%" PRIu64 " worlds, %" PRIu64 " failed, %" PRIu64 " overrun by faults; %" PRIu64
           " false states offered, donors named %" PRIu64 " times\n",
           sums.worlds, sums.failed, sums.overrun, sums.false_states, sums.false_donors);
    assert_int_equal(sums.failed, 0);
    assert_true(2 * sums.overrun <= sums.worlds);
    assert_true(sums.false_donors >= sums.worlds);
    printf("%" PRIu64 " of %" PRIu64 " merged rounds name the state before them\n", sums.bases,
           sums.group_rounds);
    assert_true(4 * sums.bases >= 3 * sums.group_rounds);
}

/* ---- sybils --------------------------------------------------------------------------------- */

struct sybil_sums {
    uint64_t worlds, failed, met; /* met: worlds in which all sybils had a seat */
    uint64_t rounds, without;     /* rounds of the slowest honest node, with sybils and without */
};

static void meet_sybils(uint64_t seed, uint32_t honest, uint32_t sybils, bool are_silent,
                        struct sybil_sums *sums) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, honest, hours);
    tw_sim_options_draw_sybils(&options, 0, are_silent);
    tw_sim_run(&options, &without, NULL);
    tw_sim_options_draw_sybils(&options, sybils, are_silent);
    tw_sim_run(&options, &result, NULL);
    sums->worlds++;
    sums->met += result.sybils_seated == sybils;
    sums->rounds += result.calm_paced;
    sums->without += without.calm_paced;
    printf("seed %" PRIu64 ", %u members, %u %s ids: %" PRIu64 " rounds, %" PRIu64
           " without; %u had a seat\n",
           seed, honest, sybils, are_silent ? "silent" : "forging", result.calm_paced,
           without.calm_paced, result.sybils_seated);
    if (!result.is_failed && !without.is_failed) return;
    sums->failed++;
    tw_sim_options_print(&options, stdout);
    tw_sim_result_print(&options, result.is_failed ? &result : &without, stdout);
    printf("repeat with: thinwire-sim --seed %" PRIu64 " --nodes %u --hours %g --sybils %u%s\n",
           seed, honest, hours, sybils, are_silent ? " --silent" : "");
}

static void ids_without_work_decide_nothing_and_stop_nobody(void **state) {
    static const uint32_t honest[] = {3, 8}, sybils[] = {8, 24};
    struct sybil_sums sums = {0};
    for (uint64_t seed = first; seed <= last; seed++) {
        for (uint32_t i = 0; i < 4; i++)
            meet_sybils(seed, honest[i % 2], sybils[i / 2], (seed + i / 2 + i) % 2 == 0, &sums);
    }
    printf("%" PRIu64 " worlds, %" PRIu64 " failed, in %" PRIu64 " all ids had a seat; %" PRIu64
           " rounds, %" PRIu64 " without sybils\n",
           sums.worlds, sums.failed, sums.met, sums.rounds, sums.without);
    assert_int_equal(sums.failed, 0);
    assert_true(2 * sums.met >= sums.worlds);
    assert_true(10 * sums.rounds >= 8 * sums.without);
}

int main(int argc, char **argv) {
    const bool has_sybils = argc > 1 && strcmp(argv[1], "sybils") == 0;
    has_committee = argc > 1 && strcmp(argv[1], "committee") == 0;
    has_donors = argc > 1 && strcmp(argv[1], "donors") == 0;
    argc -= has_committee || has_sybils || has_donors;
    argv += has_committee || has_sybils || has_donors;
    if (argc < (has_sybils ? 4 : 5) || argc > 4 + 64) return 2;
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
    const struct CMUnitTest of_sybils[] = {
        cmocka_unit_test(ids_without_work_decide_nothing_and_stop_nobody),
    };
    const struct CMUnitTest of_donors[] = {
        cmocka_unit_test(false_states_are_not_loaded_and_their_donors_named),
    };
    if (has_donors) return cmocka_run_group_tests(of_donors, NULL, NULL);
    return has_sybils ? cmocka_run_group_tests(of_sybils, NULL, NULL)
                      : cmocka_run_group_tests(tests, NULL, NULL);
}
