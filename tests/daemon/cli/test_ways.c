/* Tests of daemon/cli/run/ways.c: expected loss, cost of a way, and the best one. */
#include "tests/test.h"

#include "daemon/cli/run/ways.h"

static struct tw_run run;
static struct tw_budget_config no_budget;
static struct way_nodes nodes = {
    .params = 10 * 1000 * 1000, .steps_per_s = 4, .line.rtt_s = 0.05, .budget = &no_budget};

static bool is_near(double a, double b) {
    return a > b - 1e-3 && a < b + 1e-3;
}

/* The setting of the recorded measurements: eight nodes, and a merge of each fragment every ten
 * steps of a second. Returns the expected loss. */
static double recorded(enum tw_preset preset, double merges) {
    static struct way way;
    static const struct way_nodes bench = {
        .params = 120576, .steps_per_s = 1, .budget = &no_budget};
    tw_run_defaults(&run);
    run.sync.nodes = 8;
    run.sync.topology = TW_TOPOLOGY_GROUP;
    tw_run_apply_preset(&run, preset);
    run.sync.period = 10 / run.sync.fragments * run.sync.fragments;
    run.sync.overlap = 0;
    run.train.tokens =
        (uint64_t)(merges * run.sync.period * run.sync.nodes * run.train.batch * run.model.context);
    way = (struct way){.run = run};
    way_fill(&way, &bench);
    return way.loss;
}

TEST(recorded_losses_are_expected) {
    assert_true(is_near(recorded(TW_PRESET_STREAMING, 40), 0.078));
    assert_true(is_near(recorded(TW_PRESET_STREAMING, 160), 0.023));
    /* muon.plan and verdict.plan: 13.6, 12.9, 14.8, 14.5 % at 40 merges; 2.9 % at 160. */
    const double sparse = recorded(TW_PRESET_SPARSELOCO, 40);
    assert_true(sparse > .139 / WAY_LOSS_SPREAD && sparse < .139 * WAY_LOSS_SPREAD);
    const double longer = recorded(TW_PRESET_SPARSELOCO, 160);
    assert_true(longer > .029 / WAY_LOSS_SPREAD && longer < .029 * WAY_LOSS_SPREAD);
    assert_true(is_near(way_loss_alone(1600, 8), 0.152));
}

TEST(more_merges_never_cost_loss) {
    for (unsigned preset = TW_PRESET_DILOCO; preset <= TW_PRESET_BTM; preset++) {
        double last = 1;
        for (double merges = 2; merges < 2000; merges = merges * 1.3 + 1) {
            const double loss = recorded(preset, merges);
            assert_true(loss <= last + 1e-3);
            assert_true(loss > 0 && loss <= way_loss_alone(10, 8));
            last = loss;
        }
    }
}

static struct way row_at(double upload_s) {
    struct way way = {.run = run};
    nodes.line.upload_s = upload_s;
    way_fill(&way, &nodes);
    return way;
}

static int set_up(void **state) {
    tw_run_defaults(&run);
    run.train.tokens = 400000000;
    run.sync.nodes = 4;
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    return 0;
}

#define FACT(name) TEST_IN(set_up, NULL, name)

FACT(a_fast_line_keeps_the_period) {
    const struct way row = row_at(0);
    assert_false(row.is_line_full);
    assert_true(is_near(row.period, run.sync.period));
    /* In each period of 7.5 s, 8.5 bits per parameter go to three of four nodes. */
    const double payload = 0.75 * nodes.params * 8.5 / 8 * 86400 / (run.sync.period / 4.0);
    assert_true(row.day_bytes > payload && row.day_bytes < 1.05 * payload);
    assert_true(row.busy > 0.9 && row.busy < 1);
}

/* A check fetches the parts of a contribution that the juror lacks, and takes two thirds of a
 * round. */
FACT(checks_of_training_cost_bytes_and_time) {
    const struct way without = row_at(0);
    run.sync.jury_millionths = 250000;
    const struct way with = row_at(0);
    const double bytes =
        .25 * .75 * nodes.params * without.bits / 8 * 86400 / (run.sync.period / 4.0);
    const double more = with.day_bytes - without.day_bytes;
    assert_true(more > bytes && more < 1.05 * bytes);
    assert_true(is_near(1 / with.busy - 1 / without.busy, .25 * 2 / 3));
}

FACT(a_slow_line_stretches_the_period) {
    const struct way fast = row_at(0), slow = row_at(125000);
    assert_true(slow.is_line_full);
    assert_true(slow.period > 2 * run.sync.period);
    assert_true(slow.used > 0.85 && slow.used < 1);
    assert_true(slow.merges < fast.merges);
    assert_true(slow.loss > fast.loss);
    assert_true(slow.day_bytes <= 86400 * 125000.0);
}

/* The values of GET /v1/status that say how the run goes. */
static json_t *status_of(unsigned members, double tokens_per_s, double round_s) {
    return json_pack("{s:{s:i},s:{s:f},s:{s:f}}", "sync", "roster_members", (int)members, "train",
                     "tokens_per_s", tokens_per_s, "run", "round_period_s", round_s);
}

static double expected(const char *key, json_t *status) {
    json_t *const json = ways_expected_json(&run, status);
    json_t *const value = json_object_get(json, key);
    const double loss = json_is_number(value) ? json_number_value(value) : -1;
    json_decref(json);
    json_decref(status);
    return loss;
}

FACT(a_run_that_goes_as_planned_keeps_the_expected_loss) {
    nodes.params = 841984;
    const double step_tokens = (double)run.train.batch * run.model.context;
    const double stride_s = run.sync.period / run.sync.fragments / 4.0;
    const double loss = expected("loss_ratio", status_of(4, 4 * step_tokens, stride_s));
    assert_true(is_near(loss, row_at(0).loss));
    assert_true(is_near(loss, expected("now_loss_ratio", status_of(4, 4 * step_tokens, stride_s))));
    assert_true(is_near(expected("loss_low_ratio", status_of(4, 4 * step_tokens, stride_s)),
                        loss / WAY_LOSS_SPREAD));
    /* fewer merges */
    run.train.tokens /= 50;
    const double often = expected("now_loss_ratio", status_of(4, 4 * step_tokens, stride_s)),
                 seldom = expected("now_loss_ratio", status_of(4, 4 * step_tokens, 4 * stride_s));
    assert_true(often < seldom);
    /* more nodes have more to lose against one machine with the batch of all */
    assert_true(often < expected("now_loss_ratio", status_of(8, 4 * step_tokens, stride_s)));
}

FACT(a_run_whose_rounds_are_not_known_has_no_present_loss) {
    assert_true(expected("loss_ratio", json_object()) > 0);
    assert_true(expected("now_loss_ratio", json_object()) < 0);
    assert_true(expected("now_loss_ratio", status_of(4, 0, 2)) < 0);
    assert_true(expected("now_loss_ratio", status_of(4, 4096, 0)) < 0);
    assert_true(expected("now_loss_ratio", status_of(1, 4096, 2)) < 0); /* merges with no other */
}

/* ---- the best way ---------------------------------------------------------------------------- */

static struct cli_wish wish;
static struct way ways[WAYS_MAX];

static void wish_for(const char *key, const char *value) {
    (void)snprintf(wish.sets.keys[wish.sets.count], sizeof(wish.sets.keys[0]), "%s", key);
    wish.sets.values[wish.sets.count++] = value;
    assert_int_equal(cli_wish_apply(&wish, &run), 0);
}

static int set_up_wish(void **state) {
    wish = (struct cli_wish){.speed.steps_per_s = 4, .line.rtt_s = 0.05};
    return set_up(state);
}

/* Of all listed ways that the line carries, none has clearly less loss, and none of as little loss
 * sends fewer bytes. */
TEST_IN(set_up_wish, NULL, the_best_way_is_on_the_frontier) {
    unsigned best = 0;
    nodes.line.upload_s = 2.5e6;
    const unsigned count = ways_list(&run, &wish, &nodes, ways, &best);
    assert_true(best < count - 1);
    for (unsigned i = 0; i + 1 < count; i++) {
        if (ways[i].is_line_full) continue;
        assert_true(ways[i].loss > ways[best].loss - 0.005 - 1e-9);
        assert_true(ways[i].loss > ways[best].loss + 1e-9 || i == best ||
                    ways[i].day_bytes >= ways[best].day_bytes);
    }
    assert_false(ways[best].is_line_full);
    /* The last row is a node alone. */
    assert_int_equal(ways[count - 1].run.sync.topology, TW_TOPOLOGY_SOLO);
    assert_true(ways[best].loss < ways[count - 1].loss);
}

TEST_IN(set_up_wish, NULL, a_line_chooses_how_a_run_merges) {
    struct tw_error err;
    double last = 1e18;
    for (double upload = 1e7; upload > 1e4; upload /= 10) {
        struct tw_run fitted = run;
        wish.line.upload_s = upload;
        assert_int_equal(ways_fit(&fitted, &wish, &err), TW_OK);
        assert_int_equal(tw_run_check(&fitted, &err), TW_OK);
        struct way way = {.run = fitted};
        nodes.line = wish.line;
        way_fill(&way, &nodes);
        assert_false(way.is_line_full);
        assert_true(way.day_bytes <= 86400 * upload && way.day_bytes <= last);
        last = way.day_bytes;
    }
}

TEST_IN(set_up_wish, NULL, keys_of_the_user_stay) {
    struct tw_error err;
    wish.line.upload_s = 1e6;
    wish_for("sync.preset", "diloco");
    wish_for("sync.codec", "int8");
    struct tw_run fitted = run;
    assert_int_equal(ways_fit(&fitted, &wish, &err), TW_OK);
    assert_int_equal(fitted.sync.preset, TW_PRESET_DILOCO);
    assert_int_equal(fitted.sync.codec, TW_CODEC_INT8);
    wish_for("sync.period", "60");
    fitted = run;
    assert_int_equal(ways_fit(&fitted, &wish, &err), TW_OK);
    assert_int_equal(fitted.sync.period, 60);
}

TEST_IN(set_up_wish, NULL, a_budget_that_nothing_fits_is_refused_whole) {
    struct tw_error err;
    struct tw_run fitted = run;
    wish.budget = (struct tw_budget_config){.bytes = 100};
    assert_int_equal(ways_fit(&fitted, &wish, &err), TW_CONFIG);
    assert_memory_equal(&fitted, &run, sizeof(run));
    assert_non_null(strstr(err.message, "nothing fits"));
}

FACT(budgets_count_both_ways_of_a_month) {
    const struct way free = row_at(0);
    struct tw_budget_config budget = {.bytes = (uint64_t)(59 * free.day_bytes), .is_month = true};
    nodes.budget = &budget;
    assert_true(row_at(0).is_over);
    budget.bytes = (uint64_t)(61 * free.day_bytes);
    assert_false(row_at(0).is_over);
    budget = (struct tw_budget_config){.bytes = (uint64_t)(free.day_bytes / 86400 * 0.9)};
    assert_true(row_at(0).is_over);
    nodes.budget = &no_budget;
}
