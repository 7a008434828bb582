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
TEST(all_follow_the_heads) {
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

/* Runs a world with crews, in which each node has one history. */
static void run_crews(const struct tw_sim_options *options, struct tw_sim_result *result) {
    tw_sim_run(options, result, NULL);
    tw_sim_result_print(options, result, stdout);
    assert_false(result->is_failed);
    assert_int_equal(result->lineages_end, 1);
    assert_int_equal(result->running_end, nodes_count);
    assert_int_equal(result->members_end, heads_count);
}

/* Tokens that a node takes in so many rounds. */
static uint64_t tokens_of(const struct tw_sim_options *options, uint32_t rounds) {
    return (uint64_t)rounds * options->period_steps * options->tokens_per_step;
}

/* Each token is listed, soon, at the pace and about the cost of heads alone. */
TEST(heads_contribute_the_work_of_all) {
    static struct tw_sim_options options;
    static struct tw_sim_result result;
    draw_options(&options, 1.0 / 6);
    tw_sim_options_draw_crews(&options);
    run_crews(&options, &result);
    assert_int_equal(result.crew_lost, 0);
    assert_true(result.tokens_due > 0);
    assert_int_equal(result.tokens_listed, result.tokens_due);
    assert_true(result.tokens_open <= tokens_of(&options, 3));
    assert_true(result.group_rounds >= 7);
    assert_true(bytes_per_s(&result.use[1]) < 1500);
    assert_true(bytes_per_s(&result.use[0]) < 40 * 1000);
}

/* Heads die, as many as may lie. Their hands find others at once, and no work of a hand is lost or
 * twice in the anchor. */
TEST(heads_that_die_take_no_work_along) {
    static struct tw_sim_options options;
    static struct tw_sim_result result;
    draw_options(&options, 1.0 / 6);
    tw_sim_options_draw_crews(&options);
    if (nodes_count > 64) skip(); /* one large world takes long enough */
    options.killed_heads = (heads_count - 1) / 3;
    options.kill_us = options.chaos_us / 2;
    run_crews(&options, &result);
    assert_int_equal(result.crew_lost, 0);
    assert_int_equal(result.tokens_listed, result.tokens_due);
    assert_true(result.tokens_open <= tokens_of(&options, 4));
}

/* Some heads hide whose work they contribute, others contribute only their own. Their hands leave
 * them, and most of their work is merged elsewhere. */
TEST(hands_leave_heads_that_lie) {
    static struct tw_sim_options options;
    static struct tw_sim_result result;
    draw_options(&options, 1.0 / 6);
    tw_sim_options_draw_crews(&options);
    if (nodes_count > 64) skip();
    options.false_heads = (heads_count - 1) / 3;
    run_crews(&options, &result);
    assert_true(result.tokens_listed * 100 >= result.tokens_due * 95);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    heads_count = (uint32_t)strtoul(argv[1], NULL, 10);
    nodes_count = (uint32_t)strtoul(argv[2], NULL, 10);
    return test_run(NULL, NULL);
}
