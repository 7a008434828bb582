/* test_heads.c - one group of heads, which many other nodes follow over a few links each. */
#include <stdlib.h>

#include "tests/sim/sim.h"
#include "tests/test.h"

enum { SECOND_US = 1000 * 1000 };

static uint32_t heads_count, nodes_count;

/* A home network without faults, and a round a minute. */
static void draw_options(struct tw_sim_options *options, double hours) {
    tw_sim_options_draw(options, 1, nodes_count, hours);
    options->faults = 0;
    options->loss = 0;
    options->latency_us = SECOND_US / 20;
    options->jitter_us = SECOND_US / 200;
    options->upload_bytes_per_s = 10 * 1000 * 1000;
    options->fragments_count = 4;
    options->dims_per_fragment = 8;
    options->bytes_per_dim = 1000;
    options->step_us = 2 * SECOND_US;
    options->speed_spread = 0;
    options->period_steps = 30;
    options->overlap_steps = 2;
    options->pace_us = 0;
    options->quorum = 1;
    options->grace_us = 2 * SECOND_US;
    options->orphan_us = 120 * SECOND_US;
    options->checkpoint_us = 60 * SECOND_US;
    options->budget_tokens = options->together_tokens = UINT64_MAX / 4;
    options->is_wire_checked = false;
    tw_sim_options_draw_heads(options, heads_count);
}

static double bytes_per_s(const struct tw_sim_use *use) {
    return (double)(use->sent_bytes + use->received_bytes) / (use->node_hours * 3600);
}

/* All nodes have one history, and a node that only follows pays for its own links alone. */
static void all_follow_the_heads(void **state) {
    (void)state;
    static struct tw_sim_options options;
    static struct tw_sim_result result;
    draw_options(&options, 1.0 / 6);
    tw_sim_run(&options, &result, NULL);
    if (result.is_failed) tw_sim_result_print(&options, &result, stdout);
    assert_false(result.is_failed);
    assert_int_equal(result.lineages_end, 1);
    assert_int_equal(result.running_end, nodes_count);
    assert_int_equal(result.members_end, heads_count);
    assert_true(result.group_rounds >= 7);
    assert_true(bytes_per_s(&result.use[1]) < 1500);
    assert_true(bytes_per_s(&result.use[0]) < 40 * 1000);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    heads_count = (uint32_t)strtoul(argv[1], NULL, 10);
    nodes_count = (uint32_t)strtoul(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_follow_the_heads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
