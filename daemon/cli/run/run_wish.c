#include "daemon/cli/run/run_wish.h"

#include <string.h>

#include "base/units.h"
#include "daemon/cli/run/ways.h"
#include "proto/dataset.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

static enum tw_exit read_sets(struct cli *cli, struct cli_sets *sets) {
    const char *text;
    while (cli_option(cli, "--set", &text)) {
        const char *const equals = strchr(text, '=');
        if (equals == NULL || equals - text >= 48) {
            return cli_fail(TW_EXIT_USAGE,
                            "--set %s: write --set key=value, such as "
                            "--set sync.period=30",
                            text);
        }
        if (sets->count == CLI_SETS_MAX) return cli_fail(TW_EXIT_USAGE, "too many --set");
        (void)snprintf(sets->keys[sets->count], 48, "%.*s", (int)(equals - text), text);
        sets->values[sets->count++] = equals + 1;
    }
    return TW_EXIT_OK;
}

bool cli_wish_has(const struct cli_wish *wish, const char *key) {
    for (unsigned i = 0; i < wish->sets.count; i++) {
        if (strcmp(wish->sets.keys[i], key) == 0) return true;
    }
    return false;
}

bool cli_wish_lacks_owner(struct cli_wish *wish) {
    struct cli_sets *const sets = &wish->sets;
    unsigned last = sets->count; /* the last --set of a key counts */
    if (cli_wish_has(wish, "security.owner")) return false;
    for (unsigned i = 0; i < sets->count; i++) {
        if (strcmp(sets->keys[i], "security.admission") == 0) last = i;
    }
    if (last == sets->count) return true;
    if (strcmp(sets->values[last], "owner") != 0) return false;
    sets->values[last] = "secret"; /* until the key is there */
    return true;
}

static enum tw_exit add_set(struct cli_sets *sets, const char *key, const char *value) {
    if (sets->count == CLI_SETS_MAX) return cli_fail(TW_EXIT_USAGE, "too many --set");
    (void)snprintf(sets->keys[sets->count], sizeof(sets->keys[0]), "%s", key);
    sets->values[sets->count++] = value;
    return TW_EXIT_OK;
}

/* Reads options that are short for a --set, such as --preset. */
static enum tw_exit read_short_sets(struct cli *cli, struct cli_sets *sets) {
    static const struct {
        const char *option, *key;
    } rows[] = {{"--preset", "sync.preset"},
                {"--batch", "train.batch"},
                {"--context", "model.context"},
                {"--tokens", "train.tokens"},
                {"--nodes", "sync.nodes"}};
    enum tw_exit rc = TW_EXIT_OK;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]) && rc == TW_EXIT_OK; i++) {
        const char *value;
        if (cli_option(cli, rows[i].option, &value)) rc = add_set(sets, rows[i].key, value);
    }
    return rc;
}

/* Sets training keys for a named model, because the defaults are for a tiny one.
 *
 *     rate    0.512 / width: within a fifth of table 2.1 of arXiv 2005.14165 from 125M to 6.7B
 *     budget  20 tokens per parameter: arXiv 2203.15556
 *     batch   8192 tokens per step for models from 30M, 1024 below
 *
 * The warm-up follows from the user's token budget. */
static enum tw_exit fit_training(struct tw_run *run) {
    static struct tw_layout layout;
    struct tw_error err;
    if (tw_layout_init(&layout, run, &err) != TW_OK) {
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    const uint32_t rate = 512000 / run->model.width;
    const uint32_t batch = (layout.params < 30000000 ? 1024 : 8192) / run->model.context;
    run->train.lr_millionths = rate < 4000 ? rate : 4000;
    run->train.batch = batch > 0 ? batch : 1;
    run->train.tokens = 20 * layout.params;
    return TW_EXIT_OK;
}

/* Sets training keys for a run of any model. Its trainer uses the run's learning rate, or its own.
 */
static enum tw_exit fit_tensors(struct tw_run *run, const struct cli_wish *wish) {
    enum { LR_MILLIONTHS = 300 };
    struct tw_error err;
    if (!cli_wish_has(wish, "train.batch") || !cli_wish_has(wish, "model.context") ||
        !cli_wish_has(wish, "train.tokens"))
        return cli_fail(TW_EXIT_USAGE,
                        "--tensors: say how your trainer counts: --batch SEQUENCES and "
                        "--context TOKENS of a step of one node, and --tokens of the whole run, "
                        "such as --batch 16 --context 1024 --tokens 200m");
    if (tw_run_apply_tensors(run, wish->pick.text, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    run->model.base = wish->pick.base_digest;
    run->train.lr_millionths = LR_MILLIONTHS;
    return TW_EXIT_OK;
}

/* Sets the keys that follow from the data: name, split, tokenizer and vocabulary. */
static void fit_data(struct tw_run *run, const struct cli_data *data) {
    if (data->is_dataset) {
        tw_dataset_set_run(&data->about, &data->digest, run);
    } else {
        run->data.sha256 = data->digest;
    }
}

enum tw_exit cli_wish_apply(const struct cli_wish *wish, struct tw_run *run) {
    struct tw_error err;
    for (unsigned i = 0; i < wish->sets.count; i++) {
        if (tw_run_set(run, wish->sets.keys[i], wish->sets.values[i], &err) != TW_OK)
            return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    return TW_EXIT_OK;
}

static bool is_by_clock(const struct tw_run *run) {
    return run->sync.pace == TW_PACE_CLOCK;
}

bool cli_wish_has_budget(const struct cli_wish *wish, const struct tw_run *run) {
    return wish->budget.bytes > 0 && run->sync.topology != TW_TOPOLOGY_SOLO;
}

bool cli_wish_fits_way(const struct cli_wish *wish, const struct tw_run *run) {
    const bool is_given =
        wish->budget.bytes > 0 || wish->line.upload_s > 0 || wish->line.download_s > 0;
    return is_given && !wish->keeps_way && run->sync.topology != TW_TOPOLOGY_SOLO;
}

/* Returns whether the time of an inner step must be known: for line and budget, or with clock pace
 * to compute the interval from the period or vice versa. */
static bool wants_speed(const struct tw_run *run, const struct cli_wish *wish) {
    const bool is_planned =
        cli_wish_has(wish, "sync.interval") && cli_wish_has(wish, "sync.period");
    return cli_wish_fits_way(wish, run) || (is_by_clock(run) && !is_planned);
}

static enum tw_exit fit_clock(struct tw_run *run, const struct cli_wish *wish) {
    const bool has_interval = cli_wish_has(wish, "sync.interval");
    const double step_us = 1e6 / wish->speed.steps_per_s;
    if (!is_by_clock(run)) return TW_EXIT_OK;
    /* Such a short interval would be rounded to a period of 0 steps. */
    if (has_interval && run->sync.pace_ms * 1e3 < step_us / 2) {
        char interval[TW_UNITS_BYTES], step[TW_UNITS_BYTES];
        return cli_fail(TW_EXIT_MANIFEST,
                        "sync.interval = %s is shorter than a step, which takes %s: there is "
                        "nothing new to merge so often; set sync.interval to a few steps",
                        tw_units_duration(interval, run->sync.pace_ms / 1e3),
                        tw_units_duration(step, step_us / 1e6));
    }
    if (has_interval && cli_wish_has(wish, "sync.period")) return TW_EXIT_OK;
    tw_run_fit_clock(run, step_us < 1 ? 1 : (uint64_t)(step_us + 0.5), has_interval);
    return cli_wish_apply(wish, run);
}

enum tw_exit cli_wish_measure(struct cli_wish *wish, const struct tw_run *run) {
    struct tw_error err;
    if (tw_run_check(run, &err) != TW_OK) return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (wish->speed.steps_per_s > 0) return TW_EXIT_OK;
    if (run->model.family == TW_FAMILY_TENSORS)
        return cli_fail(TW_EXIT_USAGE, "the time of a step of your trainer must be known: give it, "
                                       "such as --step-time 250ms");
    return cli_speed_measure(run, &wish->speed);
}

/* Derives the keys that depend on the time of a step, which is measured unless it is given. */
static enum tw_exit fit_cost(struct tw_run *run, struct cli_wish *wish) {
    struct tw_error err;
    if (!wants_speed(run, wish)) return TW_EXIT_OK;
    enum tw_exit rc = cli_wish_measure(wish, run);
    if (rc != TW_EXIT_OK) return rc;
    rc = fit_clock(run, wish);
    if (rc != TW_EXIT_OK || !cli_wish_fits_way(wish, run)) return rc;
    if (tw_run_check(run, &err) == TW_OK && ways_fit(run, wish, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
}

/* Checks that the keys are consistent, and that every --set has an effect. */
static enum tw_exit check_all(const struct tw_run *run, const struct cli_sets *sets) {
    struct tw_error err;
    enum tw_status status = tw_run_check(run, &err);
    for (unsigned i = 0; status == TW_OK && i < sets->count; i++)
        status = tw_run_check_written(tw_run_key_find(sets->keys[i]), run, &err);
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
}

/* Chooses the optimizer, unless the user did, and gives Muon its own peak rate. A run of any model
 * brings its own; one over imported weights has a manifest of `thinwire import`, with AdamW. Keys
 * of the preset depend on the optimizer. */
static enum tw_exit fit_optimizer(struct tw_run *run, const struct cli_wish *wish) {
    enum { RATE_FACTOR = 5, RATE_MAX = 20000 };
    static struct tw_layout layout;
    struct tw_error err;
    if (cli_wish_has(wish, "train.optimizer") || tw_layout_init(&layout, run, &err) != TW_OK)
        return TW_EXIT_OK; /* check_all explains the error */
    if (!tw_run_fit_optimizer(run, &layout)) return TW_EXIT_OK;
    run->train.lr_millionths *= RATE_FACTOR;
    if (run->train.lr_millionths > RATE_MAX) run->train.lr_millionths = RATE_MAX;
    tw_run_refit(run);
    return cli_wish_apply(wish, run);
}

enum tw_preset cli_preset_of(uint32_t nodes) {
    enum { SPARSE_NODES = 4 };
    return nodes >= SPARSE_NODES ? TW_PRESET_SPARSELOCO : TW_PRESET_STREAMING;
}

/* Returns true if the user leaves the way to merge to this program. */
static bool is_preset_free(const struct cli_wish *wish) {
    return !cli_wish_has(wish, "sync.preset") && !cli_wish_has(wish, "sync.topology");
}

/* Merges each fragment more often than the preset where that pays: sparse merges are cheap, and a
 * short run has too few else. With eight nodes and 400 steps, `streaming` ended at 2.417 with a
 * period of 30, above a node alone (2.229), and at 1.93 with 10. */
static void fit_period(struct tw_run *run) {
    enum { ENOUGH = 40, OFTEN = 10 };
    const uint32_t fragments = run->sync.fragments;
    const uint64_t steps = tw_run_together_tokens(run) /
                           ((uint64_t)run->train.batch * run->model.context * run->sync.nodes);
    uint64_t period = run->sync.period / 2;
    if (run->sync.preset != TW_PRESET_SPARSELOCO)
        period = steps / ENOUGH > OFTEN ? steps / ENOUGH : OFTEN;
    period = period / fragments * fragments;
    if (period > 0 && period < run->sync.period) run->sync.period = (uint32_t)period;
}

/* Sets model, data, budget and nodes first, then the preset, which depends on these, then the
 * user's values. */
static enum tw_exit build_run(struct tw_run *run, struct cli_wish *wish) {
    struct tw_error err;
    enum tw_exit rc = TW_EXIT_OK;
    tw_run_defaults(run);
    if (wish->model != NULL && tw_run_apply_model(run, wish->model, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (wish->pick.path != NULL) rc = fit_tensors(run, wish);
    if (rc != TW_EXIT_OK) return rc;
    if (wish->data != NULL) fit_data(run, &wish->found);
    if (wish->model != NULL) {
        tw_run_apply_preset(run, run->sync.preset); /* adjusts the number of fragments to the
                                                       model's layers */
        rc = fit_training(run);
    }
    if (rc != TW_EXIT_OK) return rc;
    if (wish->name != NULL && tw_run_set(run, "run.name", wish->name, &err) != TW_OK) {
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    for (unsigned pass = 0; pass < 3; pass++) {
        rc = cli_wish_apply(wish, run);
        if (rc != TW_EXIT_OK) return rc;
        if (pass == 0 && is_preset_free(wish)) run->sync.preset = cli_preset_of(run->sync.nodes);
        if (pass == 0) tw_run_fit_warmup(run);
        if (pass == 0) tw_run_apply_preset(run, run->sync.preset);
        if (pass == 1 && is_preset_free(wish) && !cli_wish_has(wish, "sync.period"))
            fit_period(run);
        if (pass == 1) tw_run_refit(run);
    }
    rc = fit_optimizer(run, wish);
    if (rc == TW_EXIT_OK) rc = fit_cost(run, wish);
    return rc == TW_EXIT_OK ? check_all(run, &wish->sets) : rc;
}

static enum tw_exit read_budget(struct cli *cli, struct tw_budget_config *budget) {
    const char *text = "0";
    struct tw_error err;
    (void)cli_option(cli, "--budget", &text);
    if (tw_budget_parse(text, budget, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "--budget %s: %s", text, err.message);
}

static enum tw_exit read_rate(struct cli *cli, const char *option, double *bytes_s) {
    const char *text;
    struct tw_error err;
    uint64_t rate = 0;
    if (!cli_option(cli, option, &text)) return TW_EXIT_OK;
    if (tw_rate_parse(text, &rate, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s %s: %s", option, text, err.message);
    *bytes_s = (double)rate;
    return TW_EXIT_OK;
}

static enum tw_exit read_line(struct cli *cli, struct cli_line *line) {
    const char *text = "50ms";
    struct tw_error err;
    uint64_t us = 0;
    enum tw_exit rc = read_rate(cli, "--upload", &line->upload_s);
    if (rc == TW_EXIT_OK) rc = read_rate(cli, "--download", &line->download_s);
    if (rc != TW_EXIT_OK) return rc;
    (void)cli_option(cli, "--rtt", &text);
    if (tw_config_duration_parse(text, &us, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "--rtt %s: %s", text, err.message);
    line->rtt_s = (double)us / 1e6;
    return TW_EXIT_OK;
}

enum tw_exit cli_wish_read(struct cli *cli, struct cli_wish *wish) {
    enum tw_exit rc = read_sets(cli, &wish->sets);
    if (rc == TW_EXIT_OK) rc = cli_speed_read(cli, &wish->speed);
    if (rc == TW_EXIT_OK) rc = read_budget(cli, &wish->budget);
    if (rc == TW_EXIT_OK) rc = read_line(cli, &wish->line);
    if (rc == TW_EXIT_OK) rc = cli_pick_read(cli, &wish->pick);
    if (rc == TW_EXIT_OK) rc = read_short_sets(cli, &wish->sets);
    if (rc == TW_EXIT_OK && cli_wish_has(wish, "security.owner") &&
        !cli_wish_has(wish, "security.admission"))
        rc = add_set(&wish->sets, "security.admission", "owner");
    (void)cli_option(cli, "--data", &wish->data);
    (void)cli_option(cli, "--model", &wish->model);
    if (rc == TW_EXIT_OK && wish->model != NULL && wish->pick.path != NULL)
        return cli_fail(TW_EXIT_USAGE, "--model names a shape of the engine, and --tensors a "
                                       "model of your own: use one of them");
    return rc;
}

enum tw_exit cli_wish_make(struct cli_wish *wish, struct tw_run *run) {
    struct tw_error err;
    if (wish->data != NULL && cli_data_read(wish->data, &wish->found, &err) != TW_OK)
        return cli_fail(TW_EXIT_DATA, "%s", err.message);
    if (wish->pick.path != NULL) {
        const enum tw_status status = cli_pick_tensors(&wish->pick, &err);
        if (status != TW_OK)
            return cli_fail(status == TW_CONFIG ? TW_EXIT_MANIFEST : TW_EXIT_DATA, "%s",
                            err.message);
    }
    const enum tw_exit rc = build_run(run, wish);
    if (rc != TW_EXIT_OK) return rc;
    /* The data may not allow keys that the user set. */
    if (wish->data != NULL && cli_data_check(&wish->found, wish->data, run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    return TW_EXIT_OK;
}

struct cli_pace cli_wish_pace(const struct cli_wish *wish, const struct tw_run *run) {
    struct cli_pace pace = cli_speed_pace(&wish->speed, run);
    if (cli_wish_has_budget(wish, run) && run->sync.codec == TW_CODEC_AUTO)
        pace.bits = ways_budget_bits(run, wish);
    return pace;
}
