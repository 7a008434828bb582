/* plan.c - `thinwire plan`: the cost of a run, before it starts. */
#include <stdlib.h>
#include <string.h>

#include "base/page.h"
#include "base/units.h"
#include "compress/codec.h"
#include "daemon/cli/common/cli.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/run/run_memory.h"
#include "daemon/cli/run/run_traffic.h"
#include "daemon/cli/run/ways.h"
#include "proto/run/layout.h"
#include "proto/run/run_key.h"

struct plan {
    struct cli_wish wish;
    const char *file;    /* manifest of the run; NULL: the options describe it */
    double tokens_per_s; /* tokens per second of a node; 0: not given */
    struct tw_run run;
    struct tw_layout layout;
    unsigned count, chosen; /* chosen: index of the recommended row; count: none */
    struct way rows[WAYS_MAX];
};

/* ---- options --------------------------------------------------------------------------------- */

static enum tw_exit read_tokens(struct cli *cli, struct plan *plan) {
    const char *text;
    char *end;
    if (!cli_option(cli, "--tokens-per-s", &text)) return TW_EXIT_OK;
    plan->tokens_per_s = strtod(text, &end);
    if (plan->wish.speed.steps_per_s > 0)
        return cli_fail(TW_EXIT_USAGE, "--tokens-per-s and --step-time both give the speed: use "
                                       "one of them");
    if (*end == '\0' && plan->tokens_per_s > 1e-3 && plan->tokens_per_s < 1e12) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "--tokens-per-s %s: a number above 0, such as 1200", text);
}

static enum tw_exit read_options(struct cli *cli, struct plan *plan) {
    plan->wish.keeps_way = true;
    enum tw_exit rc = cli_wish_read(cli, &plan->wish);
    if (rc == TW_EXIT_OK) rc = read_tokens(cli, plan);
    plan->file = cli_operand(cli);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "plan");
    if (rc != TW_EXIT_OK || plan->file == NULL) return rc;
    if (plan->wish.model == NULL && plan->wish.pick.path == NULL && plan->wish.data == NULL &&
        plan->wish.sets.count == 0)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "plan: %s has the model, the data and the keys of the run; "
                    "leave it out to plan a new run",
                    plan->file);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static enum tw_exit make_run(struct plan *plan) {
    struct tw_error err;
    if (plan->file == NULL) {
        (void)cli_wish_lacks_owner(&plan->wish); /* a plan needs no owner's key */
        return cli_wish_make(&plan->wish, &plan->run);
    }
    if (cli_manifest_load(plan->file, &plan->run, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
}

/* Asks the engine for the speed, and for the memory if it knows that. */
static enum tw_exit ask_engine(struct plan *plan) {
    struct cli_speed *const speed = &plan->wish.speed;
    const struct tw_run *const run = &plan->run;
    if (plan->tokens_per_s > 0)
        speed->steps_per_s = plan->tokens_per_s / run->train.batch / run->model.context;
    const enum tw_exit rc = cli_wish_measure(&plan->wish, run);
    if (rc == TW_EXIT_OK && speed->training_bytes == 0 && run->model.family != TW_FAMILY_TENSORS)
        (void)cli_speed_plan(run, NULL, speed);
    return rc;
}

static enum tw_exit make_plan(struct plan *plan) {
    struct tw_error err;
    enum tw_exit rc = make_run(plan);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_layout_init(&plan->layout, &plan->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (plan->run.sync.nodes < 2)
        return cli_fail(TW_EXIT_USAGE, "plan: one node sends nothing; say how many there will be, "
                                       "such as --nodes 4");
    rc = ask_engine(plan);
    if (rc != TW_EXIT_OK) return rc;
    const struct way_nodes nodes = {.params = (double)plan->layout.params,
                                    .steps_per_s = plan->wish.speed.steps_per_s,
                                    .line = plan->wish.line,
                                    .budget = &plan->wish.budget};
    plan->count = ways_list(&plan->run, &plan->wish, &nodes, plan->rows, &plan->chosen);
    return TW_EXIT_OK;
}

/* ---- the screen ------------------------------------------------------------------------------ */

static void print_nodes(FILE *to, const struct plan *plan) {
    char params[TW_UNITS_BYTES], step[TW_UNITS_BYTES], tokens[TW_UNITS_BYTES],
        steps[TW_UNITS_BYTES], time[TW_UNITS_BYTES];
    const struct tw_run *const run = &plan->run;
    const struct cli_speed *const speed = &plan->wish.speed;
    const double each =
        (double)run->train.tokens / run->train.batch / run->model.context / run->sync.nodes;
    (void)fprintf(
        to, "  Nodes     %u, for a model of %s parameters; a step of %u x %u tokens takes %s\n",
        run->sync.nodes, tw_units_count(params, (double)plan->layout.params), run->train.batch,
        run->model.context, tw_units_duration(step, 1 / speed->steps_per_s));
    if (speed->is_measured)
        (void)fprintf(to,
                      "            here, measured (%s); give --step-time if that of "
                      "the nodes differs\n",
                      speed->engine);
    (void)fprintf(to, "  Run       %s tokens: %s steps of each node, about %s\n",
                  tw_units_short(tokens, (double)run->train.tokens), tw_units_count(steps, each),
                  tw_units_duration(time, each / speed->steps_per_s / plan->rows[0].busy));
}

static void print_line(FILE *to, const struct plan *plan) {
    char rtt[TW_UNITS_BYTES];
    const struct cli_line *const line = &plan->wish.line;
    (void)fprintf(to, "  Line      ");
    if (line->upload_s > 0) (void)fprintf(to, "%.3g Mbit/s up, ", line->upload_s * 8 / 1e6);
    if (line->download_s > 0) (void)fprintf(to, "%.3g Mbit/s down, ", line->download_s * 8 / 1e6);
    if (line->upload_s <= 0 && line->download_s <= 0)
        (void)fprintf(to, "not given, taken to be fast (such as --upload 20mbit); ");
    (void)fprintf(to, "%s there and back\n", tw_units_duration(rtt, line->rtt_s));
}

static void print_memory(FILE *to, const struct plan *plan) {
    char training[TW_UNITS_BYTES], snapshots[TW_UNITS_BYTES], least[TW_UNITS_BYTES],
        limit[TW_UNITS_BYTES];
    const struct cli_speed *const speed = &plan->wish.speed;
    (void)fprintf(to, "  Memory    %s for anchor%s and payloads, %s more for full snapshots",
                  tw_units_bytes(least, (double)run_memory_least(&plan->run, &plan->layout)),
                  plan->layout.momentum == TW_MOMENTUM_NONE ? "" : ", momentum",
                  tw_units_bytes(snapshots, (double)run_memory_snapshots(&plan->layout)));
    if (speed->training_bytes == 0) {
        (void)fprintf(to, "; the trainer's own comes on top\n");
        return;
    }
    (void)fprintf(to, ", %s for training; this machine has %s%s\n",
                  tw_units_bytes(training, (double)speed->training_bytes),
                  tw_units_bytes(limit, (double)speed->limit_bytes),
                  speed->does_fit ? "" : ": TOO LITTLE");
}

static void print_row(FILE *to, const struct plan *plan, unsigned i, const struct cli *cli) {
    const struct way *const row = &plan->rows[i];
    char preset[TW_RUN_VALUE_BYTES], day[TW_UNITS_BYTES], round[TW_UNITS_BYTES],
        merges[TW_UNITS_BYTES], used[16] = "";
    const bool is_chosen = i == plan->chosen, is_bad = row->is_line_full || row->is_over;
    const char *const paint = !cli->has_colour ? ""
                              : is_chosen      ? "\033[1m"
                              : is_bad         ? "\033[2m"
                                               : "";
    if (row->run.sync.topology == TW_TOPOLOGY_SOLO) {
        (void)fprintf(to, "  %-52s %6.1f %%  %+5.1f %%\n", "a node alone", 100 * row->busy,
                      100 * row->loss);
        return;
    }
    if (row->used > 0) (void)snprintf(used, sizeof(used), "%.2g %%", 100 * row->used);
    (void)fprintf(to, "%s%c %-10s %-7s %6.0f %7s %9s %6s %7s %5.1f %%  %+5.1f %%%s\n", paint,
                  is_chosen ? '*'
                  : is_bad  ? '!'
                            : ' ',
                  cli_run_word(&row->run, "sync.preset", preset),
                  tw_codec_get(row->run.sync.codec)->name, row->period,
                  tw_units_short(merges, row->merges), tw_units_bytes(day, row->day_bytes), used,
                  tw_units_duration(round, row->round_s), 100 * row->busy, 100 * row->loss,
                  *paint != '\0' ? "\033[0m" : "");
}

/* Returns whether the recommended row has a loss clearly below that of a node alone. */
static bool has_gain(const struct plan *plan) {
    const double gain = 0.005;
    for (unsigned i = 0; i < plan->count && plan->chosen < plan->count; i++) {
        const struct way *const row = &plan->rows[i];
        if (row->run.sync.topology == TW_TOPOLOGY_SOLO)
            return plan->rows[plan->chosen].loss < row->loss - gain;
    }
    return true;
}

static void print_notes(FILE *to, const struct plan *plan) {
    bool has_full = false, has_over = false;
    for (unsigned i = 0; i < plan->count; i++) {
        has_full = has_full || plan->rows[i].is_line_full;
        has_over = has_over || plan->rows[i].is_over;
    }
    (void)fprintf(
        to,
        "\nA day: sent, and as much received. Round: from sending to merging. Busy: time "
        "spent in steps. Loss: above one machine with the batch of all nodes and the same "
        "optimizer, by runs of 2 to 16 nodes and a model of 0.12M parameters; nine of ten of them "
        "had between 1/%.1f and %.1f times as much. It follows merges, codecs, nodes and delay; "
        "it does not know the effect of the model's size.\n",
        WAY_LOSS_SPREAD, WAY_LOSS_SPREAD);
    if (cli_checks_time(&plan->run) > 0)
        (void)fprintf(to,
                      "Checks of training (sync.jury) are in `a day` and `busy`: %.3g %% of the "
                      "contributions, about %.2g %% of the time.\n",
                      plan->run.sync.jury_millionths / 1e4, 100 * cli_checks_time(&plan->run));
    if (has_full)
        (void)fprintf(to,
                      "! rounds take longer than the preset leaves them: merges come as seldom as "
                      "`period` says\n");
    if (has_over) (void)fprintf(to, "! exceeds the budget\n");
    if (!has_gain(plan))
        (void)fprintf(to,
                      "\nNo row gains over a node alone: the run has too few merges. A longer run "
                      "(--set train.tokens=), a faster line or a smaller model has more.\n");
}

/* Prints one word of a shell command, quoted if necessary. */
static void print_word(FILE *to, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    if (text[0] != '\0' && text[strspn(text, plain)] == '\0') {
        (void)fprintf(to, " %s", text);
        return;
    }
    (void)fprintf(to, " '");
    for (; *text != '\0'; text++) {
        if (*text == '\'') (void)fprintf(to, "'\\'");
        (void)fputc(*text, to);
    }
    (void)fputc('\'', to);
}

static void print_option(FILE *to, const char *option, const char *value) {
    if (value == NULL) return;
    (void)fprintf(to, " %s", option);
    print_word(to, value);
}

/* Prints the user's options, except the keys that the recommended row sets. */
static void print_wish(FILE *to, const struct cli_wish *wish) {
    static const char *const ROW[] = {"sync.preset", "sync.period", "sync.codec", "sync.result"};
    print_option(to, "--model", wish->model);
    print_option(to, "--data", wish->data);
    print_option(to, "--tensors", wish->pick.path);
    print_option(to, "--base", wish->pick.base);
    for (uint32_t i = 0; i < wish->pick.train_count; i++)
        print_option(to, "--train", wish->pick.train[i]);
    for (uint32_t i = 0; i < wish->pick.frozen_count; i++)
        print_option(to, "--frozen", wish->pick.frozen[i]);
    for (unsigned i = 0; i < wish->sets.count; i++) {
        char pair[256];
        bool is_of_row = false;
        for (unsigned k = 0; k < sizeof(ROW) / sizeof(ROW[0]); k++)
            is_of_row = is_of_row || strcmp(ROW[k], wish->sets.keys[i]) == 0;
        if (is_of_row) continue;
        (void)snprintf(pair, sizeof(pair), "%s=%s", wish->sets.keys[i], wish->sets.values[i]);
        print_option(to, "--set", pair);
    }
}

static void print_choice(FILE *to, const struct plan *plan) {
    char preset[TW_RUN_VALUE_BYTES], codec[TW_RUN_VALUE_BYTES], result[TW_RUN_VALUE_BYTES];
    if (plan->chosen == plan->count) {
        (void)fprintf(
            to, "\nNone of these fits. Smaller are: a smaller model, fewer nodes, a longer "
                "--set sync.period=, --preset sparseloco; `run new --budget` picks period and "
                "codec for a budget.\n");
        return;
    }
    static struct tw_run defaults;
    char usual[TW_RUN_VALUE_BYTES];
    tw_run_defaults(&defaults);
    const struct tw_run *const run = &plan->rows[plan->chosen].run;
    defaults.sync.preset = cli_preset_of(run->sync.nodes);
    (void)cli_run_word(&defaults, "sync.preset", usual);
    (void)cli_run_word(run, "sync.preset", preset);
    (void)cli_run_word(run, "sync.codec", codec);
    (void)cli_run_word(run, "sync.result", result);
    if (plan->file != NULL) {
        (void)fprintf(to,
                      "\n* sync.preset = %s, sync.period = %u, sync.codec = %s, "
                      "sync.result = %s\n",
                      preset, run->sync.period, codec, result);
        return;
    }
    (void)fprintf(
        to,
        "\n* is recommended: of the rows that line and budget carry, with a loss within "
        "0.5 %% of the least, it sends the fewest bytes. Without a line or budget, run new takes "
        "preset %s. To make *:\n\n    thinwire run new NAME",
        usual);
    print_wish(to, &plan->wish);
    (void)fprintf(to, " --preset %s --set sync.period=%u", preset, run->sync.period);
    (void)fprintf(to, " --set sync.codec=%s", codec);
    if (run->sync.topology == TW_TOPOLOGY_GROUP) (void)fprintf(to, " --set sync.result=%s", result);
    (void)fputc('\n', to);
}

static void print_plan(FILE *to, const struct plan *plan, const struct cli *cli) {
    print_nodes(to, plan);
    print_line(to, plan);
    print_memory(to, plan);
    const bool has_line = plan->wish.line.upload_s > 0 || plan->wish.line.download_s > 0;
    (void)fprintf(to, "\n  %-10s %-7s %6s %7s %9s %6s %7s %7s %8s\n", "preset", "codec", "period",
                  "merges", "a day", has_line ? "line" : "", "round", "busy", "loss");
    for (unsigned i = 0; i < plan->count; i++) print_row(to, plan, i, cli);
    print_notes(to, plan);
    print_choice(to, plan);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *row_json(const struct way *row) {
    char preset[TW_RUN_VALUE_BYTES], topology[TW_RUN_VALUE_BYTES];
    return json_pack("{s:s,s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:b,s:b}",
                     "preset", cli_run_word(&row->run, "sync.preset", preset), "topology",
                     cli_run_word(&row->run, "sync.topology", topology), "codec",
                     tw_codec_get(row->run.sync.codec)->name, "result",
                     tw_codec_get(row->run.sync.result)->name, "bits_per_parameter", row->bits,
                     "period_steps", row->period, "merges", row->merges, "round_s", row->round_s,
                     "interval_s", row->interval_s, "day_up_bytes", row->day_bytes, "line_ratio",
                     row->used, "utilisation_ratio", row->busy, "loss_ratio", row->loss,
                     "loss_low_ratio", row->loss / WAY_LOSS_SPREAD, "loss_high_ratio",
                     row->loss * WAY_LOSS_SPREAD, "checks_ratio", cli_checks_time(&row->run),
                     "line_full", row->is_line_full, "over_budget", row->is_over);
}

static enum tw_exit print_json(const struct plan *plan) {
    const struct cli_speed *const speed = &plan->wish.speed;
    json_t *const rows = json_array();
    for (unsigned i = 0; i < plan->count; i++)
        json_array_append_new(rows, row_json(&plan->rows[i]));
    json_t *const json = json_pack(
        "{s:I,s:I,s:f,s:b,s:I,s:I,s:I,s:I,s:b,s:o,s:o}", "parameters",
        (json_int_t)plan->layout.params, "nodes", (json_int_t)plan->run.sync.nodes, "step_s",
        1 / speed->steps_per_s, "step_measured", (int)speed->is_measured, "anchor_bytes",
        (json_int_t)run_memory_least(&plan->run, &plan->layout), "snapshot_bytes",
        (json_int_t)run_memory_snapshots(&plan->layout), "training_bytes",
        (json_int_t)speed->training_bytes, "memory_bytes", (json_int_t)speed->limit_bytes, "fits",
        (int)(speed->training_bytes == 0 || speed->does_fit), "recommended",
        plan->chosen < plan->count ? json_integer(plan->chosen) : json_null(), "rows", rows);
    return json_print(json);
}

enum tw_exit cli_plan(struct cli *cli) {
    static struct plan plan;
    enum tw_exit rc = read_options(cli, &plan);
    if (rc == TW_EXIT_OK) rc = make_plan(&plan);
    if (rc != TW_EXIT_OK) return rc;
    if (cli->json) return print_json(&plan);
    struct tw_page page;
    print_plan(tw_page_begin(&page, stdout), &plan, cli);
    tw_page_end(&page);
    return TW_EXIT_OK;
}
