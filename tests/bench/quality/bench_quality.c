/* bench_quality.c - thinwire-quality-bench: the cost of sync strategies and codecs, measured by
 * real training.
 *
 * Runs the cases of a plan (plan.h) one after the other, and appends a line of JSON for each to the
 * results. Finished cases are skipped, and a case that was stopped goes on from its state
 * (state.h), so a plan continues where it stopped. report.py makes tables and pictures. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "tests/bench/quality/plan.h"
#include "tests/bench/quality/results.h"
#include "tests/bench/quality/world.h"

static const char usage[] =
    "usage: thinwire-quality-bench --plan FILE --text FILE... --results FILE\n"
    "           [--slice MINUTES] [--steps N] [--share I/N] [--only WORD] [--list]\n"
    "           [--dump FOLDER]\n"
    "--text     the training text, 4 MB or more (`bible -f gen1:1-rev22:21`); or one for each\n"
    "           kind, if nodes have unlike data (collect.py)\n"
    "--slice    stops after so many minutes (90), also within a case\n"
    "--steps    stops within a case, after so many inner steps of all its nodes\n"
    "--share    every N-th case, from the I-th on, for N programs at a time\n"
    "--only     cases whose name or varied keys hold WORD\n"
    "--list     prints the cases that would run\n"
    "--dump     writes the first node's outer gradients, and its anchor and momentum at the\n"
    "           end, as raw float32\n"
    "The same command goes on after a stop, a kill or SIGTERM: a case that runs is in\n"
    "RESULTS.ID.state, written every five minutes and at a stop.\n";

enum {
    HELDOUT_BYTES_MIN = 200000,
    TINY_WIDTH = 32,        /* width of the model for tests */
    WRITE_EVERY_S = 5 * 60, /* between two writes of a state */
    STATE_PATH_BYTES = 1024,
    STATE_ID_HEX = 16 /* digits of a case's id in the name of its state */
};

struct options {
    const char *plan, *results, *only, *dump;
    struct texts texts;
    double slice_s;
    unsigned long long steps; /* 0: no limit */
    unsigned share, shares;
    bool is_list;
};

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns false for a command line that is not understood. *err then says more, or is TW_OK. */
static bool read_options(struct options *options, int argc, char **argv, struct tw_error *err) {
    err->status = TW_OK;
    *options = (struct options){.only = "", .slice_s = 90 * 60, .shares = 1};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strcmp(name, "--list") == 0) {
            options->is_list = true;
            continue;
        }
        if (i + 1 == argc) return false;
        const char *value = argv[++i];
        if (strcmp(name, "--plan") == 0) {
            options->plan = value;
        } else if (strcmp(name, "--text") == 0) {
            if (texts_add(&options->texts, value, err) != TW_OK) return false;
        } else if (strcmp(name, "--results") == 0) {
            options->results = value;
        } else if (strcmp(name, "--only") == 0) {
            options->only = value;
        } else if (strcmp(name, "--dump") == 0) {
            options->dump = value;
        } else if (strcmp(name, "--steps") == 0) {
            options->steps = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--slice") == 0) {
            options->slice_s = 60 * strtod(value, NULL);
        } else if (strcmp(name, "--share") != 0 ||
                   sscanf(value, "%u/%u", &options->share, &options->shares) != 2 ||
                   options->share >= options->shares) {
            return false;
        }
    }
    return options->plan != NULL && options->texts.count > 0 && options->results != NULL;
}

/* Returns the FLOP of a case (training, then held-out text), to estimate the remaining time. */
static double work_of(const struct setting *setting) {
    const double held = (double)setting->evals * CURVE_TOKENS + 220000;
    return (double)tw_engine_flops_token(&setting->run) *
           ((double)setting->run.train.tokens + held * 2 / 3);
}

static bool is_wanted(const struct options *options, const struct setting *setting, uint32_t i) {
    return i % options->shares == options->share &&
           (strstr(setting->name, options->only) != NULL ||
            strstr(setting->varied, options->only) != NULL) &&
           !results_have(options->results, &setting->id);
}

/* Losses are compared to within one percent, which needs enough held-out text. */
static enum tw_status check_text(const struct options *options, const struct plan *plan,
                                 struct tw_error *err) {
    const struct texts *texts = &options->texts;
    size_t size = 0;
    for (uint32_t i = 0; i < texts->count; i++) size += texts->bytes[i];
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct tw_run *run = &plan->cases[i].run;
        const double heldout = (double)size * run->data.heldout_millionths / 1e6;
        if (!is_wanted(options, &plan->cases[i], i)) continue;
        if (run->model.width <= TINY_WIDTH || heldout >= HELDOUT_BYTES_MIN) continue;
        return tw_fail(err, TW_CONFIG,
                       "case %s holds %.0f bytes of the text out, and %d are wanted: give it more "
                       "text, or a larger data.heldout",
                       plan->cases[i].name, heldout, HELDOUT_BYTES_MIN);
    }
    return TW_OK;
}

struct progress {
    uint32_t cases, done;
    double work, done_work, begin_s;
};

static void say(const struct progress *progress, const struct setting *setting,
                const struct outcome *outcome, double took_s) {
    const double rate = progress->done_work / (now_s() - progress->begin_s);
    const double left_s = (progress->work - progress->done_work) / rate;
    (void)fprintf(
        stderr, "%u/%u %s %s: anchor %.4f, mean %.4f nats, %.1f MB sent, %.0f s; %.0f min left\n",
        progress->done, progress->cases, setting->name, setting->varied, outcome->anchor.nats,
        outcome->mean.nats, (double)traffic_total(&outcome->traffic) * 1e-6, took_s, left_s / 60);
}

/* ---- pauses -------------------------------------------------------------------------------- */

static volatile sig_atomic_t must_end;

static void end(int number) {
    (void)number;
    must_end = 1;
}

struct clock {
    const struct options *options;
    double begin_s, written_s; /* of this program; of the newest state */
};

static enum pause ask(void *self, uint64_t steps) {
    struct clock *clock = self;
    const struct options *options = clock->options;
    const double at_s = now_s();
    if (must_end != 0 || at_s - clock->begin_s > options->slice_s) return PAUSE_STOP;
    if (options->steps > 0 && steps >= options->steps) return PAUSE_STOP;
    if (at_s - clock->written_s < WRITE_EVERY_S) return PAUSE_NONE;
    clock->written_s = at_s;
    return PAUSE_WRITE;
}

/* ---- cases --------------------------------------------------------------------------------- */

/* Runs a case, or goes on with it. Its result takes the place of its state. */
static enum tw_status run_case(const struct options *options, const struct setting *setting,
                               struct pauses *pauses, struct outcome *outcome,
                               struct tw_error *err) {
    char path[STATE_PATH_BYTES], hex[TW_ID_HEX_BYTES];
    struct tw_error why = {.status = TW_OK};
    tw_id_hex(&setting->id, hex);
    (void)snprintf(path, sizeof(path), "%s.%.*s.state", options->results, STATE_ID_HEX, hex);
    pauses->path = path;
    const enum tw_status status =
        world_run(setting, &options->texts, options->dump, pauses, outcome, &why);
    if (status != TW_OK) return tw_fail(err, status, "case %s: %.200s", setting->name, why.message);
    if (pauses->is_stopped) return TW_OK;
    TW_TRY(results_add(options->results, setting, &options->texts, pauses->program, outcome, err));
    (void)remove(path);
    return TW_OK;
}

static enum tw_status run_cases(const struct options *options, const struct plan *plan,
                                const struct tw_id *program, struct outcome *outcome,
                                struct tw_error *err) {
    struct progress progress = {.begin_s = now_s()};
    struct clock clock = {options, progress.begin_s, progress.begin_s};
    struct pauses pauses = {.program = program, .ask = ask, .self = &clock};
    for (uint32_t i = 0; i < plan->count; i++) {
        if (!is_wanted(options, &plan->cases[i], i)) continue;
        progress.cases++;
        progress.work += work_of(&plan->cases[i]);
        if (options->is_list) (void)printf("%s %s\n", plan->cases[i].name, plan->cases[i].varied);
    }
    for (uint32_t i = 0; i < plan->count && !options->is_list; i++) {
        const struct setting *setting = &plan->cases[i];
        const double begin_s = now_s();
        if (!is_wanted(options, setting, i)) continue;
        TW_TRY(run_case(options, setting, &pauses, outcome, err));
        if (pauses.is_stopped) {
            (void)fprintf(stderr, "%s %s is stopped: the same command goes on\n", setting->name,
                          setting->varied);
            return TW_OK;
        }
        progress.done++;
        progress.done_work += work_of(setting);
        say(&progress, setting, outcome, now_s() - begin_s);
    }
    return TW_OK;
}

static enum tw_status run_plan(const struct options *options, const struct plan *plan,
                               struct tw_error *err) {
    struct tw_id program;
    size_t size;
    TW_TRY(texts_hash_file("/proc/self/exe", &program, &size, err));
    const unsigned foreign = results_foreign(options->results, &program);
    if (foreign > 0)
        (void)fprintf(stderr, "%s: %u cases are of another build, which may train differently\n",
                      options->results, foreign);
    struct outcome *outcome = malloc(sizeof(*outcome));
    if (outcome == NULL) return tw_fail(err, TW_NOMEM, "no memory for results");
    const enum tw_status status = run_cases(options, plan, &program, outcome, err);
    free(outcome);
    return status;
}

static enum tw_status run(struct options *options, struct tw_error *err) {
    struct plan plan = {.cases = NULL};
    char *words = NULL;
    size_t size = 0;
    TW_TRY(texts_hash(&options->texts, err));
    enum tw_status status = texts_read_file(options->plan, &words, &size, err);
    if (status == TW_OK) status = plan_parse(&plan, words, &options->texts, err);
    if (status == TW_OK) status = check_text(options, &plan, err);
    if (status == TW_OK) status = run_plan(options, &plan, err);
    plan_free(&plan);
    free(words);
    return status;
}

int main(int argc, char **argv) {
    struct options options;
    struct tw_error err;
    if (!read_options(&options, argc, argv, &err)) {
        if (err.status != TW_OK) (void)fprintf(stderr, "thinwire-quality-bench: %s\n", err.message);
        (void)fputs(usage, stderr);
        return 2;
    }
    (void)signal(SIGTERM, end);
    (void)signal(SIGINT, end);
    if (run(&options, &err) == TW_OK) return 0;
    (void)fprintf(stderr, "thinwire-quality-bench: %s\n", err.message);
    return 1;
}
