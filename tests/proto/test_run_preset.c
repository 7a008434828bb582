/* test_run_preset.c - keys that a preset sets, alone and together with keys set explicitly. */
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/run/layout.h"
#include "proto/run/run.h"
#include "proto/run/run_key.h"

static struct tw_run run;
static struct tw_error err;

static enum tw_status read_text(const char *file) {
    return tw_run_read(file, strlen(file), &run, &err);
}

/* A preset's own values never contradict a topology, rule or codec that the file sets. */
TEST(a_row_yields_to_keys_that_were_set) {
    static const char *const lines[] = {"sync.topology = solo",
                                        "sync.topology = pair",
                                        "sync.topology = group",
                                        "sync.codec = topk64",
                                        "sync.codec = auto",
                                        "sync.outer = heavyball",
                                        "sync.merge = mean",
                                        "sync.nodes = 1",
                                        "sync.pace = clock",
                                        "sync.codec = ecsq2",
                                        "sync.nodes = 8\nsync.merge = median"};
    for (unsigned preset = 0; preset <= TW_PRESET_BTM; preset++) {
        char name[TW_RUN_VALUE_BYTES], file[TW_RUN_VALUE_BYTES + 256];
        tw_run_defaults(&run);
        tw_run_apply_preset(&run, (enum tw_preset)preset);
        tw_run_key_format(tw_run_key_find("sync.preset"), &run, name);
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
            const bool is_robust = strstr(lines[i], "median") != NULL;
            if (preset == TW_PRESET_NOLOCO && is_robust)
                continue; /* with pairs there is no choice of merge */
            if (preset == TW_PRESET_SPARSELOCO && is_robust)
                continue; /* nor with this preset's sparse codec */
            (void)snprintf(file, sizeof(file), "thinwire-run 1\nsync.preset = %s\n%s\n", name,
                           lines[i]);
            if (read_text(file) != TW_OK) fail_msg("%s, %s: %s", name, lines[i], err.message);
        }
    }
    /* With pair topology, a group preset merges like NoLoCo, with NoLoCo's gain. */
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = co2\nsync.topology = pair\n"
                               "train.tokens = 1g\n"),
                     TW_OK);
    assert_int_equal(run.sync.consensus_millionths, 700000);
    assert_int_equal(run.sync.outer_lr_millionths, 700000);
    assert_int_equal(run.sync.gap_penalty_millionths, 0);
    assert_int_equal(run.sync.sent, TW_SENT_KEEP);
    /* Keys set explicitly are not adjusted. */
    assert_int_equal(read_text("thinwire-run 1\nsync.topology = pair\nsync.lead = 0.5\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "set sync.lead = 0"));
    assert_int_equal(read_text("thinwire-run 1\nsync.codec = sign\nsync.feedback = 0\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "set sync.feedback"));
    assert_int_equal(read_text("thinwire-run 1\nsync.topology = pair\nsync.outer = nesterov\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "needs sync.outer = heavyball"));
}

/* Every preset of a group merges robustly, unless the file gives nodes other weights. Weights of
 * the preset yield to a robust merge of the file, weights of the file do not. */
TEST(merges_withstand_liars_by_default) {
    const struct {
        const char *lines;
        enum tw_merge merge;
        enum tw_weights weights;
    } rows[] = {
        {"", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.nodes = 2\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = diloco\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = eager\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = co2\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = sparseloco\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = local-sgd\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = btm\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.preset = noloco\n", TW_MERGE_MEAN, TW_WEIGHTS_EQUAL},
        {"sync.topology = pair\n", TW_MERGE_MEAN, TW_WEIGHTS_EQUAL},
        {"sync.preset = decoupled\n", TW_MERGE_RDA, TW_WEIGHTS_TOKENS_RATE},
        {"sync.preset = decoupled\nsync.merge = clipped\n", TW_MERGE_CLIPPED, TW_WEIGHTS_EQUAL},
        {"sync.merge = mean\n", TW_MERGE_MEAN, TW_WEIGHTS_EQUAL},
        {"sync.weights = tokens\n", TW_MERGE_MEAN, TW_WEIGHTS_TOKENS},
    };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[160];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s", rows[i].lines);
        assert_int_equal(read_text(file), TW_OK);
        assert_int_equal(run.sync.merge, rows[i].merge);
        assert_int_equal(run.sync.weights, rows[i].weights);
    }
    assert_int_equal(read_text("thinwire-run 1\nsync.weights = tokens\nsync.merge = clipped\n"),
                     TW_CONFIG);
    assert_non_null(strstr(err.message, "counts every node as one"));
}

/* In a median or trimmed mean by parameter, the zeros of other nodes' sparse payloads would outvote
 * a node's values. */
TEST(merges_by_parameter_take_no_sparse_codec) {
    static const char *const merges[] = {"mean", "clipped", "median", "trimmed"};
    static const char *const codecs[] = {"int8", "int4",  "ecsq2",   "sign",
                                         "auto", "ecsq1", "topk256", "topk32"};
    for (unsigned m = 0; m < 4; m++) {
        for (unsigned c = 0; c < 8; c++) {
            char file[160];
            (void)snprintf(file, sizeof(file),
                           "thinwire-run 1\nsync.nodes = 8\nsync.merge = %s\nsync.codec = %s\n",
                           merges[m], codecs[c]);
            assert_int_equal(read_text(file), m >= 2 && c >= 4 ? TW_CONFIG : TW_OK);
            if (m >= 2 && c >= 4) assert_non_null(strstr(err.message, "set sync.merge = clipped"));
        }
    }
}

/* If the preset or the file turns error feedback on, a fraction of the residual stays in theta,
 * unless the file sets otherwise. */
TEST(a_share_of_the_residual_stays_in_theta) {
    const struct {
        const char *lines;
        uint32_t feedback, local;
    } rows[] = {
        {"", 0, 0},
        {"sync.preset = sparseloco\n", 950000, 600000},
        {"sync.codec = ecsq1\n", 950000, 600000},
        {"sync.preset = sparseloco\nsync.codec = topk32\n", 950000, 300000},
        {"sync.codec = auto\n", 950000, 300000},
        {"sync.topology = pair\nsync.codec = sign\n", 950000, 600000},
        {"sync.codec = int4\nsync.feedback = 0.5\n", 500000, 600000},
        {"sync.codec = ecsq1\nsync.sent = mix\nsync.mix = 0.5\n", 950000, 0},
        {"sync.codec = ecsq1\nsync.feedback_local = 0\n", 950000, 0},
        {"sync.preset = sparseloco\nsync.codec = int8\nsync.feedback = 0\n", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[256];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\n%s", rows[i].lines);
        if (read_text(file) != TW_OK) fail_msg("%s: %s", rows[i].lines, err.message);
        assert_int_equal(run.sync.feedback_millionths, rows[i].feedback);
        assert_int_equal(run.sync.feedback_local_millionths, rows[i].local);
    }
    assert_int_equal(read_text("thinwire-run 1\nsync.feedback_local = 0.5\n"), TW_CONFIG);
    assert_non_null(strstr(err.message, "or sync.feedback_local = 0"));
}

static void set_tokens_for(uint64_t outer_steps) {
    run.train.tokens =
        outer_steps * run.train.batch * run.model.context * run.sync.nodes * run.sync.period;
}

TEST(outer_constants_fit_the_length_of_the_run) {
    const struct {
        uint64_t outer_steps;
        enum tw_preset preset;
        uint32_t lr, momentum, ramp;
    } rows[] = {
        {0, TW_PRESET_STREAMING, 1000000, 0, 0},
        {10, TW_PRESET_STREAMING, 1000000, 0, 0},
        {20, TW_PRESET_STREAMING, 800200, 449550, 2},
        {20, TW_PRESET_DILOCO, 800200, 449550, 2},
        {40, TW_PRESET_STREAMING, 700000, 675000, 4},
        {70, TW_PRESET_STREAMING, 700000, 712500, 7},
        {100, TW_PRESET_EAGER, 854800, 326700, 10}, /* outer gradients arrive late */
        {550, TW_PRESET_EAGER, 910000, 202500, 10},
        {1000, TW_PRESET_EAGER, 910000, 202500, 10},
        {1000, TW_PRESET_CO2, 1000000, 112500, 10},
        {100, TW_PRESET_CO2, 1000000, 181500, 10},
        {100, TW_PRESET_DILOCO, 700000, 750000, 10},
        {550, TW_PRESET_DILOCO, 700000, 825000, 10},
        {120, TW_PRESET_STREAMING, 693400, 753300, 10},
        {1000, TW_PRESET_STREAMING, 400000, 900000, 10},
        {1000, TW_PRESET_DILOCO, 700000, 900000, 10},
        {100000, TW_PRESET_DILOCO, 700000, 900000, 10},
        {40, TW_PRESET_LOCAL_SGD, 1000000, 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        if (rows[i].preset == TW_PRESET_LOCAL_SGD) run.sync.period = 10;
        if (rows[i].preset == TW_PRESET_CO2) run.sync.period = 48;
        set_tokens_for(rows[i].outer_steps);
        assert_int_equal(tw_run_outer_steps(&run), rows[i].outer_steps);
        const uint32_t period = run.sync.period;
        tw_run_apply_preset(&run, rows[i].preset);
        run.sync.period = period;
        tw_run_refit(&run);
        assert_int_equal(run.sync.outer_lr_millionths, rows[i].lr);
        assert_int_equal(run.sync.outer_momentum_millionths, rows[i].momentum);
        assert_int_equal(run.sync.outer_ramp, rows[i].ramp);
    }
}

/* Similar runs get similar constants: a slightly longer run, or one that merges slightly less
 * often. */
TEST(outer_constants_have_no_cliffs) {
    enum { NEAR = 60000 };
    static const uint32_t periods[] = {10, 30, 33, 34, 48, 50, 51};
    for (unsigned preset = 0; preset <= TW_PRESET_BTM; preset++) {
        for (size_t i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
            int64_t lr = 0, momentum = 0;
            for (uint64_t steps = periods[i]; steps < 100000; steps += 1 + steps / 50) {
                tw_run_defaults(&run);
                const uint64_t each =
                    (uint64_t)run.train.batch * run.model.context * run.sync.nodes;
                run.train.tokens = steps * each;
                tw_run_fit_warmup(&run);
                tw_run_apply_preset(&run, (enum tw_preset)preset);
                run.sync.fragments = 1;
                run.sync.period = periods[i];
                tw_run_refit(&run);
                const int64_t lr_now = run.sync.outer_lr_millionths,
                              momentum_now = run.sync.outer_momentum_millionths;
                if (lr > 0) assert_in_range(lr_now - lr + NEAR, 0, 2 * NEAR);
                if (lr > 0) assert_in_range(momentum_now - momentum + NEAR, 0, 2 * NEAR);
                lr = lr_now;
                momentum = momentum_now;
            }
        }
    }
}

TEST(outer_constants_fit_the_codec) {
    static const enum tw_codec_id coarse[] = {TW_CODEC_SIGN,    TW_CODEC_ECSQ1,  TW_CODEC_ECSQ05,
                                              TW_CODEC_TOPK256, TW_CODEC_TOPK64, TW_CODEC_TOPK32};
    static const enum tw_codec_id fine[] = {TW_CODEC_BF16, TW_CODEC_INT4, TW_CODEC_ECSQ2};
    tw_run_defaults(&run);
    set_tokens_for(160);
    run.train.warmup_tokens = run.train.tokens / 10;
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        run.sync.codec = fine[i];
        tw_run_refit(&run);
        assert_int_equal(run.sync.outer_lr_millionths, 680200);
        assert_int_equal(run.sync.outer_momentum_millionths, 759900);
    }
    for (size_t i = 0; i < sizeof(coarse) / sizeof(coarse[0]); i++) {
        run.sync.codec = coarse[i];
        tw_run_refit(&run);
        assert_int_equal(run.sync.outer_lr_millionths, 1000000);
        assert_int_equal(run.sync.outer_momentum_millionths, 600000);
    }
    run.sync.codec = TW_CODEC_AUTO; /* as coarse as upload budgets require: between both rules */
    tw_run_refit(&run);
    assert_int_equal(run.sync.outer_lr_millionths, 840100);
    assert_int_equal(run.sync.outer_momentum_millionths, 679950);
    run.sync.codec = TW_CODEC_TOPK32;
    run.sync.merge = TW_MERGE_RDA; /* restores the norm that averaging reduces */
    tw_run_refit(&run);
    assert_int_equal(run.sync.outer_lr_millionths, 600000);
}

/* Coarse codecs send much of a merge later: momentum helps from the first merges on. Two nodes
 * leave less for Muon to amplify. */
TEST(coarse_codecs_have_momentum_in_short_runs) {
    static const struct {
        uint64_t outer_steps;
        enum tw_optimizer optimizer;
        uint32_t nodes, momentum;
    } rows[] = {
        {5, TW_OPTIMIZER_ADAMW, 4, 300000},  {10, TW_OPTIMIZER_ADAMW, 4, 600000},
        {40, TW_OPTIMIZER_ADAMW, 2, 600000}, {13, TW_OPTIMIZER_MUON, 8, 600000},
        {40, TW_OPTIMIZER_MUON, 4, 600000},  {40, TW_OPTIMIZER_MUON, 3, 450000},
        {13, TW_OPTIMIZER_MUON, 2, 300000},  {40, TW_OPTIMIZER_MUON, 2, 300000},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        run.sync.nodes = rows[i].nodes;
        run.train.optimizer = rows[i].optimizer;
        tw_run_apply_preset(&run, TW_PRESET_SPARSELOCO);
        run.sync.period = 10 * run.sync.fragments;
        set_tokens_for(rows[i].outer_steps);
        tw_run_refit(&run);
        assert_int_equal(run.sync.outer_lr_millionths, 1000000);
        assert_int_equal(run.sync.outer_momentum_millionths, rows[i].momentum);
    }
}

/* If the file sets another rule or topology, the preset's constants do not apply. */
TEST(outer_constants_are_those_of_the_rule_that_was_set) {
    const struct {
        const char *lines;
        uint32_t lr, momentum, overlap;
    } rows[] = {
        {"sync.preset = diloco\n", 700000, 900000, 1},
        {"sync.preset = diloco\nsync.outer = heavyball\n", 1000000, 500000, 1},
        {"sync.preset = noloco\n", 700000, 500000, 1},
        {"sync.preset = diloco\nsync.topology = pair\n", 700000, 500000, 1},
        {"sync.preset = eager\nsync.topology = pair\n", 700000, 500000, 1},
        {"sync.preset = co2\nsync.outer = nesterov\n", 910000, 202500, 47},
        {"sync.preset = local-sgd\nsync.outer = heavyball\n", 1000000, 0, 1},
        {"sync.preset = eager\n", 910000, 202500, 29},
        {"sync.preset = eager\nsync.sent = mix\n", 700000, 900000, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char file[160];
        (void)snprintf(file, sizeof(file), "thinwire-run 1\ntrain.tokens = 1g\n%s", rows[i].lines);
        if (read_text(file) != TW_OK) fail_msg("%s: %s", rows[i].lines, err.message);
        assert_int_equal(run.sync.outer_lr_millionths, rows[i].lr);
        assert_int_equal(run.sync.outer_momentum_millionths, rows[i].momentum);
        assert_int_equal(run.sync.overlap, rows[i].overlap);
    }
    assert_int_equal(run.sync.mix_millionths, 500000);
}

/* Pairs spread training slowly, so the preset's period is shortened with any preset. The period
 * still counts as the preset's if the file sets sync.together. */
TEST(a_period_follows_keys_that_were_set) {
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = diloco\nsync.topology = pair\n"),
                     TW_OK);
    assert_int_equal(run.sync.period, 10);
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = btm\ntrain.tokens = 10m\n"
                               "sync.codec = topk64\nsync.together = 1\nsync.fragments = 5\n"),
                     TW_OK);
    assert_int_equal(run.sync.period % 5, 0);
    assert_int_equal(read_text("thinwire-run 1\nsync.preset = sparseloco\ntrain.tokens = 40m\n"
                               "sync.topology = solo\nsync.fragments = 4\n"),
                     TW_OK);
}

TEST(short_runs_merge_often_where_nodes_are_slow_to_learn) {
    const struct {
        uint64_t steps;
        uint32_t period;
    } rows[] = {{100, 10}, {1000, 10}, {2000, 20}, {3000, 30}, {1000000, 30}};
    tw_run_defaults(&run);
    const uint64_t step_tokens = (uint64_t)run.train.batch * run.model.context * run.sync.nodes;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        run.train.tokens = rows[i].steps * step_tokens;
        tw_run_apply_preset(&run, TW_PRESET_SPARSELOCO);
        assert_int_equal(run.sync.period, rows[i].period);
        tw_run_apply_preset(&run, TW_PRESET_EAGER);
        assert_int_equal(run.sync.period, rows[i].period);
        assert_int_equal(run.sync.overlap, rows[i].period - 1);
        tw_run_apply_preset(&run, TW_PRESET_NOLOCO);
        assert_in_range(run.sync.period, rows[i].period, 50);
        tw_run_apply_preset(&run, TW_PRESET_DILOCO); /* the first call keeps sparseloco's codec */
        tw_run_apply_preset(&run, TW_PRESET_DILOCO);
        assert_int_equal(run.sync.period, 30);
        run.sync.codec = TW_CODEC_ECSQ05; /* set explicitly */
        tw_run_apply_preset(&run, TW_PRESET_DILOCO);
        assert_int_equal(run.sync.period, rows[i].period);
    }
}

TEST(overlap_fits_between_two_rounds) {
    const struct {
        uint32_t period, fragments, overlap;
    } rows[] = {{30, 3, 2}, {10, 2, 1}, {4, 2, 1},  {2, 2, 0},
                {1, 1, 0},  {9, 1, 1},  {10, 1, 2}, {200, 2, 2}};
    tw_run_defaults(&run);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        run.sync.period = rows[i].period;
        run.sync.fragments = rows[i].fragments;
        tw_run_refit(&run);
        assert_int_equal(run.sync.overlap, rows[i].overlap);
    }
}

/* Muon's arithmetic is that of a batch of about five times the width, whatever the batch. */
TEST(muon_is_taken_where_it_costs_little) {
    static struct tw_layout layout;
    static const struct {
        const char *model;
        uint32_t batch, context;
        double cost;
        bool is_muon;
    } rows[] = {
        {NULL, 8, 128, 0.40, true},
        {NULL, 1, 128, 3.2, false},
        {"gpt2-124m", 8, 1024, 0.22, true},
        {"gpt2-124m", 1, 1024, 1.74, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tw_run_defaults(&run);
        if (rows[i].model != NULL)
            assert_int_equal(tw_run_apply_model(&run, rows[i].model, &err), TW_OK);
        run.train.batch = rows[i].batch;
        run.model.context = rows[i].context;
        run.train.tokens = 1000000000;
        tw_run_apply_preset(&run, TW_PRESET_STREAMING);
        assert_true(run.sync.lead_millionths > 0);
        assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
        const double cost = tw_run_muon_cost(&run, &layout);
        if (fabs(cost - rows[i].cost) > 0.03 * rows[i].cost) fail_msg("row %zu: %.3f", i, cost);
        assert_int_equal(tw_run_fit_optimizer(&run, &layout), rows[i].is_muon);
        assert_int_equal(run.train.optimizer == TW_OPTIMIZER_MUON, rows[i].is_muon);
        tw_run_refit(&run);
        assert_int_equal(run.sync.lead_millionths == 0, rows[i].is_muon);
    }
}
