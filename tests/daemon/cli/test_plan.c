/* Tests of daemon/cli/plan/: expected loss, cost of a row, the recommended row. */
#include "tests/test.h"

#include "daemon/cli/plan/penalty.h"
#include "daemon/cli/plan/plan_row.h"

/* The setting of the recorded measurements: eight nodes, 400 or 1600 steps, and a merge every
 * ten. */
static struct penalty_case record(enum tw_preset preset, double merges) {
    return (struct penalty_case){.preset = preset,
                                 .codec = TW_CODEC_INT4,
                                 .result = TW_CODEC_INT4,
                                 .nodes = 8,
                                 .bits = 4.25,
                                 .merges = merges,
                                 .steps = 10 * merges,
                                 .late = 0};
}

static bool is_near(double a, double b) {
    return a > b - 1e-3 && a < b + 1e-3;
}

static void recorded_losses_are_expected(void **state) {
    (void)state;
    struct penalty_case run = record(TW_PRESET_STREAMING, 40);
    assert_true(is_near(penalty_expect(&run), 0.078));
    run = record(TW_PRESET_STREAMING, 160);
    assert_true(is_near(penalty_expect(&run), 0.023));
    run = record(TW_PRESET_SPARSELOCO, 160);
    run.codec = TW_CODEC_TOPK256;
    run.result = TW_CODEC_ECSQ2;
    assert_true(is_near(penalty_expect(&run), 0.034));
    assert_true(is_near(penalty_alone(1600, 8), 0.152));
    /* Muon: 2, 4 and 16 nodes lose 2.8, 5.4 and 11.7 % at 40 merges. */
    static const double measured[][2] = {{2, .028}, {4, .054}, {16, .117}};
    for (unsigned i = 0; i < 3; i++) {
        run = record(TW_PRESET_STREAMING, 40);
        run.nodes = measured[i][0];
        const double loss = penalty_expect(&run);
        assert_true(loss > 0.9 * measured[i][1] && loss < 1.1 * measured[i][1]);
    }
}

static void more_merges_and_more_bits_never_cost_loss(void **state) {
    (void)state;
    for (unsigned preset = TW_PRESET_DILOCO; preset <= TW_PRESET_BTM; preset++) {
        double last = 1;
        for (double merges = 0; merges < 2000; merges = merges * 1.3 + 1) {
            struct penalty_case run = record(preset, merges);
            run.steps = 1600;
            const double loss = penalty_expect(&run);
            assert_true(loss <= last + 1e-12);
            assert_true(loss > 0 && loss <= penalty_alone(1600, 8));
            run.codec = TW_CODEC_ECSQ05;
            run.bits = 0.5;
            assert_true(penalty_expect(&run) >= loss);
            last = loss;
        }
    }
}

static void late_work_costs_loss(void **state) {
    (void)state;
    double last = 0;
    for (double late = 0; late <= 1; late += 0.05) {
        struct penalty_case run = record(TW_PRESET_STREAMING, 100);
        run.late = late;
        assert_true(penalty_expect(&run) >= last);
        last = penalty_expect(&run);
    }
    assert_true(last > 0.1);
    /* Preset `eager` applies results late by design, so its curve already contains this penalty. */
    struct penalty_case run = record(TW_PRESET_EAGER, 40);
    run.late = 0.9;
    assert_true(is_near(penalty_expect(&run), 0.179));
}

static struct tw_run run;
static struct cli_budget no_budget;
static struct plan_nodes nodes = {.steps_per_s = 4, .rtt_s = 0.05, .budget = &no_budget};
enum { PARAMS = 10 * 1000 * 1000 };

static struct plan_row row_at(double upload_s) {
    struct plan_row row = {.run = run};
    nodes.upload_s = upload_s;
    plan_row_fill(&row, PARAMS, &nodes);
    return row;
}

static int set_up(void **state) {
    (void)state;
    tw_run_defaults(&run);
    run.train.tokens = 400000000;
    run.sync.nodes = 4;
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    return 0;
}

static void a_fast_line_keeps_the_period(void **state) {
    (void)state;
    const struct plan_row row = row_at(0);
    assert_false(row.is_line_full);
    assert_true(is_near(row.period, run.sync.period));
    /* In each period of 7.5 s, 8.5 bits per parameter go to three of four nodes. */
    const double payload = 0.75 * PARAMS * 8.5 / 8 * 86400 / (run.sync.period / 4.0);
    assert_true(row.day_bytes > payload && row.day_bytes < 1.05 * payload);
    assert_true(row.busy > 0.9 && row.busy < 1);
}

/* A check fetches the parts of a contribution that the juror lacks, and takes two thirds of a
 * round. */
static void checks_of_training_cost_bytes_and_time(void **state) {
    (void)state;
    const struct plan_row without = row_at(0);
    run.sync.jury_millionths = 250000;
    const struct plan_row with = row_at(0);
    const double bytes = .25 * .75 * PARAMS * without.bits / 8 * 86400 / (run.sync.period / 4.0);
    const double more = with.day_bytes - without.day_bytes;
    assert_true(more > bytes && more < 1.05 * bytes);
    assert_true(is_near(1 / with.busy - 1 / without.busy, .25 * 2 / 3));
}

static void a_slow_line_stretches_the_period(void **state) {
    (void)state;
    const struct plan_row fast = row_at(0), slow = row_at(125000);
    assert_true(slow.is_line_full);
    assert_true(slow.period > 2 * run.sync.period);
    assert_true(slow.used > 0.85 && slow.used < 1);
    assert_true(slow.merges < fast.merges);
    assert_true(slow.loss > fast.loss);
    assert_true(slow.day_bytes <= 86400 * 125000.0);
}

static void few_bytes_are_chosen_among_equal_losses(void **state) {
    (void)state;
    struct plan_row rows[] = {
        {.run = run, .loss = .020, .day_bytes = 100},
        {.run = run, .loss = .025, .day_bytes = 40},
        {.run = run, .loss = .040, .day_bytes = 10},
        {.run = run, .loss = .010, .day_bytes = 5, .is_line_full = true},
        {.run = run, .loss = .010, .day_bytes = 5, .is_over = true},
    };
    assert_int_equal(plan_row_choose(rows, 5), 1);
    assert_int_equal(plan_row_choose(rows + 3, 2), 2); /* neither row is eligible */
}

static void budgets_count_both_ways_of_a_month(void **state) {
    (void)state;
    const struct plan_row free = row_at(0);
    struct cli_budget budget = {
        .limit = {.bytes = (uint64_t)(59 * free.day_bytes), .is_month = true}};
    nodes.budget = &budget;
    assert_true(row_at(0).is_over);
    budget.limit.bytes = (uint64_t)(61 * free.day_bytes);
    assert_false(row_at(0).is_over);
    budget.limit = (struct tw_budget_config){.bytes = (uint64_t)(free.day_bytes / 86400 * 0.9)};
    assert_true(row_at(0).is_over);
    nodes.budget = &no_budget;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_losses_are_expected),
        cmocka_unit_test(more_merges_and_more_bits_never_cost_loss),
        cmocka_unit_test(late_work_costs_loss),
        cmocka_unit_test_setup(a_fast_line_keeps_the_period, set_up),
        cmocka_unit_test_setup(checks_of_training_cost_bytes_and_time, set_up),
        cmocka_unit_test_setup(a_slow_line_stretches_the_period, set_up),
        cmocka_unit_test_setup(few_bytes_are_chosen_among_equal_losses, set_up),
        cmocka_unit_test_setup(budgets_count_both_ways_of_a_month, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
