/* test_mutants.c - the first seeds find each mutant of sync/mutants.h, switched on alone. Prints
 * the invariant that each mutant breaks. Argument: mutants.txt, which names a seed that finds each
 * mutant. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/mutants.h"
#include "tests/sim/sim.h"
#include "tests/test.h"
#include "tests/traitor/traitor.h"

enum { SEEDS = 64 };

static const char *known_path;
static struct tw_sim_result result;

/* Returns the lies that find a mutant which drawn lies rarely find, or 0: the lies are drawn. */
static uint32_t lies_of(const char *mutant) {
    if (strcmp(mutant, "row-unsigned") == 0) return UINT32_C(1) << TW_LIE_SPLIT;
    if (strcmp(mutant, "phase-ignored") == 0)
        return UINT32_C(1) << TW_LIE_PROPOSE | UINT32_C(1) << TW_LIE_CRUDE;
    return 0;
}

/* True if the bug matters only where some members have no vote. */
static bool is_of_committees(const char *mutant) {
    return strcmp(mutant, "all-vote") == 0;
}

/* True if the bug matters only where many ids come to an old group. */
static bool is_of_sybils(const char *mutant) {
    return strcmp(mutant, "votes-at-once") == 0;
}

/* True if the bug matters only where traitors give false states. */
static bool is_of_donors(const char *mutant) {
    return strcmp(mutant, "donor-believed") == 0 || strcmp(mutant, "any-end") == 0;
}

/* True if the bug matters only where heads contribute the work of others. */
static bool is_of_crews(const char *mutant) {
    return strncmp(mutant, "crew-", 5) == 0;
}

/* True if the bug matters only where members check each other's training. */
static bool is_of_jury(const char *mutant) {
    return strcmp(mutant, "one-doubt") == 0;
}

/* True if the bug matters only where all voters come back at once. */
static bool is_of_power(const char *mutant) {
    return strcmp(mutant, "behind-decides") == 0;
}

/* Cuts the power of the voters again and again. */
static void cut_power(int mutant, uint64_t seed) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, seed, 7, 1);
    tw_sim_options_draw_power(&options);
    options.mutant = mutant;
    options.voters_count = 4;
    tw_sim_run(&options, &result, NULL);
}

/* The bug breaks no invariant. It is found if the group is whole in time less than half as often
 * as without it. */
static bool is_found_by_power(int mutant, uint64_t seed) {
    cut_power(0, seed);
    if (result.is_failed) return false;
    const uint64_t cuts = result.faults[TW_SIM_POWER], whole = result.power_recovered;
    cut_power(mutant, seed);
    if (result.is_failed) return true;
    if (2 * result.power_recovered * cuts >= whole * result.faults[TW_SIM_POWER]) return false;
    (void)snprintf(result.invariant, sizeof(result.invariant), "power-cut");
    (void)snprintf(result.message, sizeof(result.message),
                   "whole in time after %" PRIu64 " of %" PRIu64 " cuts", result.power_recovered,
                   result.faults[TW_SIM_POWER]);
    return true;
}

static bool is_found(int mutant, uint64_t seed) {
    struct tw_sim_options options;
    if (is_of_power(tw_sim_mutant_name(mutant))) return is_found_by_power(mutant, seed);
    tw_sim_options_draw(&options, seed, 0, 1);
    options.mutant = mutant;
    options.is_pair = tw_sim_mutant_is_pair(mutant);
    if (is_of_sybils(tw_sim_mutant_name(mutant))) {
        tw_sim_options_draw(&options, seed, seed % 2 == 0 ? 3 : 8, 1);
        options.mutant = mutant;
        tw_sim_options_draw_sybils(&options, 8, seed % 4 < 2);
    } else if (is_of_donors(tw_sim_mutant_name(mutant))) {
        tw_sim_options_draw(&options, seed, 7, 1);
        options.mutant = mutant;
        tw_sim_options_draw_donors(&options);
    } else if (is_of_crews(tw_sim_mutant_name(mutant))) {
        tw_sim_options_draw(&options, seed, 16, 0.2);
        options.mutant = mutant;
        tw_sim_options_draw_heads(&options, 4);
        tw_sim_options_draw_crews(&options);
    } else if (is_of_jury(tw_sim_mutant_name(mutant))) {
        tw_sim_options_draw(&options, seed, 5 + (uint32_t)(seed % 7), 1);
        options.mutant = mutant;
        options.jury_millionths = 500000;
    } else if (tw_sim_mutant_is_of_traitors(mutant)) {
        const bool has_committee = is_of_committees(tw_sim_mutant_name(mutant));
        tw_sim_options_draw(&options, seed, seed % 2 == 0 && !has_committee ? 4 : 7, 1);
        options.mutant = mutant;
        tw_sim_options_draw_traitors(&options, 0);
        options.lies = lies_of(tw_sim_mutant_name(mutant));
        if (has_committee) tw_sim_options_draw_committee(&options);
    } else if (tw_sim_mutant_is_of_homes(mutant)) {
        tw_sim_options_draw_homes(&options);
    } else if (seed % 2 == 0 && !options.is_pair) {
        options.liars_count = options.nodes_count / 4;
    }
    tw_sim_run(&options, &result, NULL);
    return result.is_failed;
}

/* Returns the seed to try first, or 0 if none is known. */
static uint64_t known_seed(const char *mutant) {
    FILE *file = fopen(known_path, "r");
    assert_non_null(file);
    char line[256], name[64];
    uint64_t seed = 0, found = 0;
    while (found == 0 && fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%63s %" SCNu64, name, &seed), 2);
        assert_int_not_equal(tw_sim_mutant_find(name), 0);
        if (strcmp(name, mutant) == 0) found = seed;
    }
    fclose(file);
    return found;
}

/* Tries the known seed first. If that seed no longer finds the mutant, all seeds are tried, which
 * only takes longer. */
static uint64_t seed_that_finds(int mutant) {
    const uint64_t known = known_seed(tw_sim_mutant_name(mutant));
    if (known != 0 && is_found(mutant, known)) return known;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        if (!is_found(mutant, seed)) continue;
        printf("for mutants.txt: %s %" PRIu64 "\n", tw_sim_mutant_name(mutant), seed);
        return seed;
    }
    return 0;
}

/* Few worlds find these bugs, but test_lock, test_traitor, test_veto and test_vote_rights find
 * them.
 */
static bool is_left_to_unit_tests(const char *mutant) {
    static const char *const LEFT[] = {"lock-ignored",       "strangers-known", "any-base",
                                       "promises-unchecked", "vote-given",      "second-vote"};
    for (size_t i = 0; i < sizeof(LEFT) / sizeof(LEFT[0]); i++)
        if (strcmp(mutant, LEFT[i]) == 0) return true;
    return false;
}

TEST(every_mutant_is_found) {
    int missed = 0;
    printf("%-22s %-10s %6s  %s\n", "mutant", "invariant", "seed", "violation");
    for (int mutant = 1; mutant < tw_sim_mutants_count(); mutant++) {
        if (is_left_to_unit_tests(tw_sim_mutant_name(mutant))) continue;
        const uint64_t seed = seed_that_finds(mutant);
        if (seed != 0) {
            printf("%-22s %-10s %6" PRIu64 "  node %d at %.1f s: %s\n", tw_sim_mutant_name(mutant),
                   result.invariant, seed, result.failed_node, (double)result.failed_us / 1e6,
                   result.message);
        } else {
            missed++;
            printf("%-22s %-10s %6s  %s\n", tw_sim_mutant_name(mutant), "MISSED", "",
                   tw_sim_mutant_text(mutant));
        }
        fflush(stdout);
    }
    assert_int_equal(missed, 0);
}

TEST(without_a_bug_the_same_seed_passes) {
    struct tw_sim_options options;
    tw_sim_options_draw(&options, 1, 0, 1);
    tw_sim_run(&options, &result, NULL);
    assert_false(result.is_failed);
    options.is_pair = true;
    tw_sim_run(&options, &result, NULL);
    assert_false(result.is_failed);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    known_path = argv[1];
    return test_run(NULL, NULL);
}
