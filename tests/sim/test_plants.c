/* test_plants.c - each bug of sync/plant.h, switched on alone, is found by the first seeds of the
 * swarm; prints which invariant found it, where. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/plant.h"
#include "tests/sim/sim.h"
#include "tests/test.h"

enum { SEEDS = 128 }; /* one finds borrowed-clock in about fifty */

static void every_planted_bug_is_found(void **state) {
    (void)state;
    int missed = 0;
    printf("%-22s %-10s %6s  %s\n", "planted bug", "invariant", "seed", "what was seen");
    for (int plant = 1; plant < tw_sim_plants_count(); plant++) {
        static struct tw_sim_result result;
        uint64_t seed = 1;
        for (; seed <= SEEDS; seed++) {
            struct tw_sim_options options;
            tw_sim_options_draw(&options, seed, 0, 1);
            options.plant = plant;
            options.is_pair = tw_sim_plant_is_pair(plant);
            if (seed % 2 == 0 && !options.is_pair) options.liars_count = options.nodes_count / 4;
            tw_sim_run(&options, &result, NULL);
            if (result.is_failed) break;
        }
        if (result.is_failed) {
            printf("%-22s %-10s %6" PRIu64 "  node %d at %.1f s: %s\n", tw_sim_plant_name(plant),
                   result.invariant, seed, result.failed_node, (double)result.failed_us / 1e6,
                   result.message);
        } else {
            missed++;
            printf("%-22s %-10s %6s  %s\n", tw_sim_plant_name(plant), "MISSED", "",
                   tw_sim_plant_text(plant));
        }
        fflush(stdout);
    }
    assert_int_equal(missed, 0);
}

static void without_a_bug_the_same_seed_passes(void **state) {
    (void)state;
    struct tw_sim_options options;
    static struct tw_sim_result result;
    tw_sim_options_draw(&options, 1, 0, 1);
    tw_sim_run(&options, &result, NULL);
    assert_false(result.is_failed);
    options.is_pair = true;
    tw_sim_run(&options, &result, NULL);
    assert_false(result.is_failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_bug_is_found),
        cmocka_unit_test(without_a_bug_the_same_seed_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
