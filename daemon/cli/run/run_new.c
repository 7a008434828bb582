#include "daemon/cli/run/run_new.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/units.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/run/data_path.h"
#include "daemon/cli/run/manifest_text.h"
#include "daemon/cli/run/run_budget.h"
#include "daemon/cli/run/run_speed.h"
#include "daemon/cli/run/tensor_pick.h"
#include "proto/dataset_run.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

enum { SETS_MAX = 64 };

/* `--set key=value`, in the given order. */
struct sets {
    unsigned count;
    char keys[SETS_MAX][48];
    const char *values[SETS_MAX];
};

static enum tw_exit read_sets(struct cli *cli, struct sets *sets) {
    const char *text;
    while (cli_option(cli, "--set", &text)) {
        const char *const equals = strchr(text, '=');
        if (equals == NULL || equals - text >= 48) {
            return cli_fail(TW_EXIT_USAGE,
                            "--set %s: write --set key=value, such as "
                            "--set sync.period=30",
                            text);
        }
        if (sets->count == SETS_MAX) return cli_fail(TW_EXIT_USAGE, "too many --set");
        (void)snprintf(sets->keys[sets->count], 48, "%.*s", (int)(equals - text), text);
        sets->values[sets->count++] = equals + 1;
    }
    return TW_EXIT_OK;
}

static bool is_set(const struct sets *sets, const char *key) {
    for (unsigned i = 0; i < sets->count; i++) {
        if (strcmp(sets->keys[i], key) == 0) return true;
    }
    return false;
}

static enum tw_exit add_set(struct sets *sets, const char *key, const char *value) {
    if (sets->count == SETS_MAX) return cli_fail(TW_EXIT_USAGE, "too many --set");
    (void)snprintf(sets->keys[sets->count], sizeof(sets->keys[0]), "%s", key);
    sets->values[sets->count++] = value;
    return TW_EXIT_OK;
}

/* Reads options that stand for a --set, such as --preset. */
static enum tw_exit read_short_sets(struct cli *cli, struct sets *sets) {
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

/* Training keys for a named model, because the defaults are for a tiny one.
 *
 *     rate    0.512 / width: within a fifth of table 2.1 of arXiv 2005.14165 from 125M to 6.7B
 *     budget  20 tokens per parameter: arXiv 2203.15556
 *     batch   8192 tokens per step for models from 30M, 1024 below
 *
 * The warm-up follows from the user's budget. */
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

/* Keys of a run of any model. The trainer takes the learning rate from the run or has its own. */
static enum tw_exit fit_tensors(struct tw_run *run, const struct cli_pick *pick,
                                const struct sets *sets) {
    enum { LR_MILLIONTHS = 300 };
    struct tw_error err;
    if (!is_set(sets, "train.batch") || !is_set(sets, "model.context") ||
        !is_set(sets, "train.tokens"))
        return cli_fail(TW_EXIT_USAGE,
                        "run new --tensors: say how your trainer counts: --batch SEQUENCES and "
                        "--context TOKENS of a step of one node, and --tokens of the whole run, "
                        "such as --batch 16 --context 1024 --tokens 200m");
    if (tw_run_apply_tensors(run, pick->text, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    run->model.base = pick->base_digest;
    run->train.lr_millionths = LR_MILLIONTHS;
    return TW_EXIT_OK;
}

/* Keys that follow from the data: name, split, tokenizer and vocabulary. */
static void fit_data(struct tw_run *run, const struct cli_data *data) {
    if (data->is_dataset) {
        tw_dataset_set_run(&data->about, &data->digest, run);
    } else {
        run->data.sha256 = data->digest;
    }
}

static enum tw_exit apply_sets(struct tw_run *run, const struct sets *sets) {
    struct tw_error err;
    for (unsigned i = 0; i < sets->count; i++) {
        if (tw_run_set(run, sets->keys[i], sets->values[i], &err) != TW_OK)
            return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    return TW_EXIT_OK;
}

/* Options about cost and pace, from which keys follow with the nodes' speed. */
struct cost {
    struct cli_budget budget; /* limit.bytes 0: no limit */
    struct cli_speed speed;
};

static bool is_by_clock(const struct tw_run *run) {
    return run->sync.pace == TW_PACE_CLOCK;
}

/* A run that sends nothing stays within any budget. */
static bool has_budget(const struct tw_run *run, const struct cli_budget *budget) {
    return budget->limit.bytes > 0 && run->sync.topology != TW_TOPOLOGY_SOLO;
}

/* With clock pace, a missing interval or period is computed from the other, for which the time of a
 * step must be known. */
static bool wants_speed(const struct tw_run *run, const struct cost *cost,
                        const struct sets *sets) {
    const bool is_planned = is_set(sets, "sync.interval") && is_set(sets, "sync.period");
    return has_budget(run, &cost->budget) || (is_by_clock(run) && !is_planned);
}

static enum tw_exit fit_clock(struct tw_run *run, const struct cost *cost,
                              const struct sets *sets) {
    const bool has_interval = is_set(sets, "sync.interval");
    const double step_us = 1e6 / cost->speed.steps_per_s;
    if (!is_by_clock(run)) return TW_EXIT_OK;
    /* The interval is so short that its period would round to 0 steps. */
    if (has_interval && run->sync.pace_ms * 1e3 < step_us / 2) {
        char interval[TW_UNITS_BYTES], step[TW_UNITS_BYTES];
        return cli_fail(TW_EXIT_MANIFEST,
                        "sync.interval = %s is shorter than a step, which takes %s: there is "
                        "nothing new to merge so often; set sync.interval to a few steps",
                        tw_units_duration(interval, run->sync.pace_ms / 1e3),
                        tw_units_duration(step, step_us / 1e6));
    }
    if (has_interval && is_set(sets, "sync.period")) return TW_EXIT_OK;
    tw_run_fit_clock(run, step_us < 1 ? 1 : (uint64_t)(step_us + 0.5), has_interval);
    return apply_sets(run, sets);
}

/* Fits period and codecs to the budget, then the keys that depend on them. */
static enum tw_exit fit_budget(struct tw_run *run, struct cli_budget *budget,
                               const struct sets *sets) {
    struct tw_error err;
    if (!has_budget(run, budget)) return TW_EXIT_OK;
    budget->has_period =
        is_set(sets, "sync.period") || (is_by_clock(run) && is_set(sets, "sync.interval"));
    budget->has_codec = is_set(sets, "sync.codec") || is_set(sets, "sync.result");
    if (tw_run_check(run, &err) != TW_OK || cli_budget_fit(run, budget, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    tw_run_refit(run);
    return apply_sets(run, sets);
}

/* Fits keys that depend on the time of a step, which is measured if not given. */
static enum tw_exit fit_cost(struct tw_run *run, struct cost *cost, const struct sets *sets) {
    struct tw_error err;
    enum tw_exit rc = TW_EXIT_OK;
    if (!wants_speed(run, cost, sets)) return TW_EXIT_OK;
    if (tw_run_check(run, &err) != TW_OK) return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (cost->speed.steps_per_s <= 0 && run->model.family == TW_FAMILY_TENSORS)
        return cli_fail(TW_EXIT_USAGE, "the time of a step of your trainer must be known: give it, "
                                       "such as --step-time 250ms");
    if (cost->speed.steps_per_s <= 0) rc = cli_speed_measure(run, &cost->speed);
    if (rc != TW_EXIT_OK) return rc;
    cost->budget.steps_per_s = cost->speed.steps_per_s;
    rc = fit_clock(run, cost, sets);
    return rc == TW_EXIT_OK ? fit_budget(run, &cost->budget, sets) : rc;
}

/* Checks that the keys fit together, and that every --set has an effect. */
static enum tw_exit check_all(const struct tw_run *run, const struct sets *sets) {
    struct tw_error err;
    enum tw_status status = tw_run_check(run, &err);
    for (unsigned i = 0; status == TW_OK && i < sets->count; i++)
        status = tw_run_check_written(tw_run_key_find(sets->keys[i]), run, &err);
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
}

/* The sources of a run's keys. */
struct sources {
    const char *model;           /* NULL: the small default model */
    struct cli_pick pick;        /* tensors of a run of any model; without a path: none */
    const struct cli_data *data; /* NULL: any data */
};

/* Sets model, data, budget and nodes first, then the preset fitted to these, then the user's
 * values. */
static enum tw_exit build_run(struct tw_run *run, const char *name, const struct sources *from,
                              const struct sets *sets, struct cost *cost) {
    struct tw_error err;
    enum tw_exit rc = TW_EXIT_OK;
    tw_run_defaults(run);
    if (from->model != NULL && tw_run_apply_model(run, from->model, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    if (from->pick.path != NULL) rc = fit_tensors(run, &from->pick, sets);
    if (rc != TW_EXIT_OK) return rc;
    if (from->data != NULL) fit_data(run, from->data);
    if (from->model != NULL) {
        tw_run_apply_preset(run, run->sync.preset); /* number of fragments for the model's layers */
        rc = fit_training(run);
    }
    if (rc != TW_EXIT_OK) return rc;
    if (tw_run_set(run, "run.name", name, &err) != TW_OK) {
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    }
    for (unsigned pass = 0; pass < 3; pass++) {
        rc = apply_sets(run, sets);
        if (rc != TW_EXIT_OK) return rc;
        if (pass == 0) tw_run_fit_warmup(run);
        if (pass == 0) tw_run_apply_preset(run, run->sync.preset);
        if (pass == 1) tw_run_refit(run);
    }
    rc = fit_cost(run, cost, sets);
    return rc == TW_EXIT_OK ? check_all(run, sets) : rc;
}

static enum tw_exit write_new(const char *path, const char *text, size_t size) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) {
        return cli_fail(TW_EXIT_MANIFEST,
                        "%s exists; a manifest is never overwritten, since every "
                        "node must have the same: choose another --out",
                        path);
    }
    if (fd < 0) return cli_fail(TW_EXIT_MANIFEST, "%s: %s", path, strerror(errno));
    const bool is_written = write(fd, text, size) == (ssize_t)size && fsync(fd) == 0;
    const int why = errno;
    if (close(fd) == 0 && is_written) return TW_EXIT_OK;
    (void)unlink(path);
    return cli_fail(TW_EXIT_MANIFEST, "%s: %s", path, strerror(why));
}

static enum tw_exit print_json(const struct tw_run *run, const char *path,
                               const struct cost *cost) {
    json_t *const json = cli_manifest_json(run, path);
    if (has_budget(run, &cost->budget))
        (void)json_object_set_new(json, "budget", cli_budget_json(run, &cost->budget));
    if (cost->speed.is_measured)
        (void)json_object_set_new(json, "measured_step_s", json_real(1 / cost->speed.steps_per_s));
    const int rc = json_dumpf(json, stdout, JSON_INDENT(1));
    (void)fputc('\n', stdout);
    json_decref(json);
    return rc == 0 ? TW_EXIT_OK : TW_EXIT_FAILURE;
}

static enum tw_exit read_budget(struct cli *cli, struct cli_budget *budget) {
    const char *text = "0";
    struct tw_error err;
    (void)cli_option(cli, "--budget", &text);
    if (tw_budget_parse(text, &budget->limit, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "--budget %s: %s", text, err.message);
}

static void explain_data(const struct tw_run *run, const struct cli_data *data, const char *path) {
    char bytes[TW_UNITS_BYTES], tokens[TW_UNITS_BYTES];
    const uint64_t each = data->is_dataset ? data->train_tokens : data->bytes;
    const double times = (double)run->train.tokens / (double)each;
    char passes[TW_UNITS_BYTES];
    (void)snprintf(passes, sizeof(passes), times < 0.95 ? "%.1g" : "%.1f", times);
    if (times >= 1000) (void)tw_units_short(passes, times);
    if (!data->is_dataset) {
        (void)printf("            %s is %s, read %s times over by all nodes together\n", path,
                     tw_units_bytes(bytes, (double)data->bytes), passes);
        return;
    }
    (void)printf("            %s has %s tokens for training, read %s times over by all nodes "
                 "together;\n"
                 "            it sets data.tokenizer = %s, data.heldout = %.6g,\n"
                 "            data.separator = %u, model.vocab = %u\n",
                 path, tw_units_count(tokens, (double)data->train_tokens), passes,
                 run->data.tokenizer == TW_TOKENIZER_BYTES ? "bytes" : "ids",
                 run->data.heldout_millionths / 1e6, run->data.separator, run->model.vocab);
}

/* Explains which keys were fitted to which, and why. */
static void explain_fit(const struct tw_run *run, const struct sets *sets,
                        const struct cost *cost) {
    static struct tw_run row;
    char time[TW_UNITS_BYTES];
    row = *run;
    tw_run_apply_preset(&row, run->sync.preset);
    if (run->sync.fragments < row.sync.fragments && !is_set(sets, "sync.fragments"))
        (void)printf("  Fit       %u fragment%s: the %u of the preset do not divide sync.period = "
                     "%u\n",
                     run->sync.fragments, tw_units_s(run->sync.fragments), row.sync.fragments,
                     run->sync.period);
    if (cost->speed.is_measured)
        (void)printf("  Speed     a step takes %s here, measured (%s)%s;\n            give "
                     "--step-time if that of the nodes differs\n",
                     tw_units_duration(time, 1 / cost->speed.steps_per_s), cost->speed.engine,
                     cost->speed.sequences < cost->speed.batch ? " in part" : "");
    if (has_budget(run, &cost->budget)) {
        cli_budget_explain(stdout, run, &cost->budget);
    } else if (cost->budget.limit.bytes > 0) {
        (void)printf("  Budget    any will do: nothing is sent while training\n");
    }
}

/* The speed from which bytes are computed. With a budget, also the bits per parameter that it
 * leaves, which nodes will use. */
static struct cli_pace pace_of(const struct tw_run *run, const struct cost *cost) {
    struct cli_pace pace = cli_speed_pace(&cost->speed, run);
    if (has_budget(run, &cost->budget) && run->sync.codec == TW_CODEC_AUTO)
        pace.bits = cli_budget_bits(run, &cost->budget);
    return pace;
}

/* The words of a `run new`. */
struct wish {
    const char *name, *out, *data;
    struct sources from;
    struct sets sets;
    struct cost cost;
    bool wants_models; /* `--model list` */
};

static enum tw_exit read_wish(struct cli *cli, struct wish *wish) {
    static const char *const OPTIONS[] = {
        "--set",   "--out",     "--data",   "--preset", "--json", "--steps-per-s", "--config",
        "--model", "--tensors", "--train",  "--frozen", "--base", "--step-time",   "--budget",
        "--batch", "--context", "--tokens", "--nodes",  NULL};
    enum tw_exit rc = read_sets(cli, &wish->sets);
    if (rc == TW_EXIT_OK) rc = cli_speed_read(cli, &wish->cost.speed);
    if (rc == TW_EXIT_OK) rc = read_budget(cli, &wish->cost.budget);
    if (rc == TW_EXIT_OK) rc = cli_pick_read(cli, &wish->from.pick);
    if (rc == TW_EXIT_OK) rc = read_short_sets(cli, &wish->sets);
    (void)cli_option(cli, "--out", &wish->out);
    (void)cli_option(cli, "--data", &wish->data);
    const char *model = NULL;
    (void)cli_option(cli, "--model", &model);
    wish->wants_models =
        model != NULL && (strcmp(model, "help") == 0 || strcmp(model, "list") == 0);
    if (wish->wants_models) return rc;
    wish->from.model = model;
    wish->name = cli_operand(cli);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "run new", OPTIONS);
    if (rc != TW_EXIT_OK) return rc;
    if (wish->name == NULL)
        return cli_fail(TW_EXIT_USAGE, "run new: name the run: `thinwire run new bible`");
    if (model != NULL && wish->from.pick.path != NULL)
        return cli_fail(TW_EXIT_USAGE, "--model names a shape of the engine, and --tensors a "
                                       "model of your own: use one of them");
    return TW_EXIT_OK;
}

/* Makes the run, and checks it with its data. */
static enum tw_exit make_run(struct wish *wish, struct cli_data *found, struct tw_run *run) {
    struct tw_error err;
    if (wish->data != NULL && cli_data_read(wish->data, found, &err) != TW_OK)
        return cli_fail(TW_EXIT_DATA, "%s", err.message);
    wish->from.data = wish->data != NULL ? found : NULL;
    if (wish->from.pick.path != NULL) {
        const enum tw_status status = cli_pick_tensors(&wish->from.pick, &err);
        if (status != TW_OK)
            return cli_fail(status == TW_CONFIG ? TW_EXIT_MANIFEST : TW_EXIT_DATA, "%s",
                            err.message);
    }
    const enum tw_exit rc = build_run(run, wish->name, &wish->from, &wish->sets, &wish->cost);
    if (rc != TW_EXIT_OK) return rc;
    /* The user may have set keys that the data do not allow. */
    if (wish->data != NULL && cli_data_check(found, wish->data, run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    return TW_EXIT_OK;
}

static void explain_pick(const struct cli_pick *pick) {
    char all[TW_UNITS_BYTES];
    (void)printf("  Tensors   %u of the %u of %s", pick->tensors, pick->seen, pick->path);
    (void)printf(", which have %s parameters", tw_units_count(all, (double)pick->elements_seen));
    if (pick->no_floats > 0)
        (void)printf(";\n            without the %u of whole numbers", pick->no_floats);
    (void)printf("\n");
}

enum tw_exit cli_run_new(struct cli *cli) {
    static struct tw_run run;
    static struct wish wish;
    static struct cli_data found;
    char text[TW_MANIFEST_BYTES_MAX], path[TW_PATH_BYTES];
    enum tw_exit rc = read_wish(cli, &wish);
    if (rc != TW_EXIT_OK) return rc;
    if (wish.wants_models) return cli_run_models(cli);
    rc = make_run(&wish, &found, &run);
    if (rc != TW_EXIT_OK) return rc;
    size_t size;
    tw_run_encode(&run, text, &size);
    (void)snprintf(path, sizeof(path), "%s%s", wish.out != NULL ? wish.out : run.name,
                   wish.out != NULL ? "" : ".manifest");
    rc = write_new(path, text, size);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) return print_json(&run, path, &wish.cost);
    const struct cli_pace pace = pace_of(&run, &wish.cost);
    cli_manifest_explain(stdout, &run, &pace);
    if (wish.data != NULL) explain_data(&run, &found, wish.data);
    if (wish.from.pick.path != NULL) explain_pick(&wish.from.pick);
    explain_fit(&run, &wish.sets, &wish.cost);
    (void)printf("\nWritten to %s. Give the same file to every node, and name it with `run = ` in "
                 "its\nconfiguration. `thinwire run show %s` explains it again.\n",
                 path, path);
    return TW_EXIT_OK;
}
