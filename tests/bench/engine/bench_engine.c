/* bench_engine.c - thinwire-engine-bench: training steps of a model, and the bound set by their
 * matrix products (bound.h). Rounds of the two alternate, so that a change of the machine's speed
 * affects both.
 *
 * With --serve, another program can alternate this bench with others. The bench prints a
 * description line. For each line read from stdin, it takes that number of steps, and prints the
 * seconds and CPU seconds per step and the loss of the last step. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/rng.h"
#include "base/units.h"
#include "tests/bench/engine/bound.h"
#include "worker/engine/engine.h"
#include "worker/engine/profile.h"
#include "worker/support/thread_pool.h"

enum { ROUNDS_MAX = 1000 };

struct options {
    struct tw_run run;
    struct tw_compute_config compute;
    uint32_t rounds;
    uint32_t document; /* tokens per document; 0: separators occur as in random tokens */
    bool has_step, has_bound, is_served, is_detailed, is_profiled;
};

struct bench {
    const struct options *options;
    struct tw_layout layout;
    struct tw_engine *engine;         /* NULL: bound only */
    struct bound *bound;              /* NULL: step only */
    const struct tw_profile *profile; /* NULL: times by operator are not measured */
    uint32_t *tokens;
    double loss; /* loss of the last step */
    double peak; /* highest rate of matrix products on a GPU, or 0 if not measured */
    double step_s[ROUNDS_MAX], bound_s[ROUNDS_MAX];
};

static double now_s(clockid_t clock) {
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, uint32_t n) {
    qsort(seconds, n, sizeof(*seconds), order);
    return seconds[n / 2];
}

static uint64_t rows_of(const struct tw_run *run) {
    return (uint64_t)run->train.batch * run->model.context;
}

/* ---- rounds -------------------------------------------------------------------------------- */

static enum tw_status step(struct bench *bench, struct tw_error *err) {
    struct tw_step_result result;
    TW_TRY(tw_engine_step(bench->engine, bench->tokens, 1e-4f, &result, err));
    if (result.is_skipped) return tw_fail(err, TW_CORRUPT, "the step's gradient is not finite");
    bench->loss = (double)result.loss;
    return TW_OK;
}

/* As a worker, which draws the next batch while the device computes. */
static const uint32_t *next_batch(void *self) {
    const struct bench *bench = self;
    return bench->tokens;
}

static enum tw_status open_step(struct bench *bench, struct tw_error *err) {
    const struct tw_run *run = &bench->options->run;
    const struct tw_engine_config config = {
        .run = run, .layout = &bench->layout, .compute = bench->options->compute};
    const size_t count = (size_t)run->train.batch * (run->model.context + 1);
    const uint32_t document = bench->options->document;
    struct tw_rng rng;
    bench->tokens = calloc(count, sizeof(*bench->tokens));
    if (bench->tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch");
    tw_rng_seed(&rng, 1);
    for (size_t i = 0; i < count; i++) {
        bench->tokens[i] = (uint32_t)tw_rng_below(&rng, run->model.vocab);
        if (document > 0 && i % (run->model.context + 1) % document == 0) {
            bench->tokens[i] = run->data.separator;
        }
    }
    TW_TRY(tw_engine_create(&bench->engine, &config, err));
    tw_engine_look_ahead(bench->engine, next_batch, bench);
    tw_engine_init_params(run, &bench->layout, bench->engine->theta);
    TW_TRY(tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err));
    if (bench->options->is_profiled) TW_TRY(tw_engine_profile(bench->engine, &bench->profile, err));
    if (!bench->engine->plan.is_on_gpu) return TW_OK;
    return tw_engine_peak(&bench->engine->plan, &bench->peak, err);
}

static enum tw_status open_bound(struct bench *bench, struct tw_error *err) {
    const struct tw_run *run = &bench->options->run;
    const struct tw_engine_config config = {
        .run = run, .layout = &bench->layout, .compute = bench->options->compute};
    struct tw_engine_plan plan;
    TW_TRY(tw_engine_plan_make(&plan, &config, err));
    if (plan.is_on_gpu)
        return tw_fail(err, TW_CONFIG, "the bound is the processor's: --only step with a GPU");
    return bound_create(&bench->bound, run, rows_of(run), plan.type, plan.threads, err);
}

static enum tw_status alternate(struct bench *bench, struct tw_error *err) {
    const uint32_t rounds = bench->options->rounds;
    for (uint32_t i = 0; i < rounds + 1; i++) { /* the first round is a warm-up */
        const uint32_t at = i == 0 ? 0 : i - 1;
        if (bench->engine != NULL) {
            const double start = now_s(CLOCK_MONOTONIC);
            TW_TRY(step(bench, err));
            bench->step_s[at] = now_s(CLOCK_MONOTONIC) - start;
        }
        if (bench->bound != NULL) bench->bound_s[at] = bound_round(bench->bound);
    }
    return TW_OK;
}

/* ---- output -------------------------------------------------------------------------------- */

static void print_row(const struct bench *bench, const char *what, double seconds, double flops) {
    char rate[TW_UNITS_BYTES], speed[TW_UNITS_BYTES];
    (void)printf("%-42s %9.1f ms %12s tokens/s %16s\n", what, seconds * 1e3,
                 tw_units_count(rate, (double)rows_of(&bench->options->run) / seconds),
                 tw_units_flops(speed, flops / seconds));
}

static void print_results(struct bench *bench) {
    const struct tw_run *run = &bench->options->run;
    const uint32_t rounds = bench->options->rounds;
    const double flops = (double)tw_engine_flops_token(run) * (double)rows_of(run);
    double step_s = 0.0, bound_s = 0.0;
    char text[96], share[TW_UNITS_BYTES], size[TW_UNITS_BYTES];
    (void)printf("%s, %u layers, width %u, %s parameters; batch %u, context %u; medians of %u\n",
                 run->model.family == TW_FAMILY_LLAMA ? "Llama" : "GPT-2", run->model.layers,
                 run->model.width, tw_units_short(size, (double)bench->layout.params),
                 run->train.batch, run->model.context, rounds);
    if (bench->engine != NULL) {
        tw_engine_describe(bench->engine, text, sizeof(text));
        step_s = median(bench->step_s, rounds);
        print_row(bench, text, step_s, flops);
    }
    if (bench->bound != NULL) {
        bound_s = median(bench->bound_s, rounds);
        print_row(bench, "its matrix products alone", bound_s, bound_flops(bench->bound));
    }
    if (bench->profile != NULL) tw_profile_print(stdout, bench->profile);
    if (bench->engine == NULL || bench->bound == NULL) return;
    (void)printf("of that bound: %s\n", tw_units_percent(share, bound_s / step_s));
    (void)printf("of the fastest product (MFU): %s\n",
                 tw_units_percent(share, flops / step_s / bound_peak(bench->bound)));
}

static void print_served(const struct bench *bench) {
    const struct tw_run *run = &bench->options->run;
    char text[96] = "matrix products alone";
    if (bench->engine != NULL) tw_engine_describe(bench->engine, text, sizeof(text));
    (void)printf("{\"what\":\"%s\",\"tokens\":%llu,\"flops\":%.0f,\"peak\":%.0f}\n", text,
                 (unsigned long long)rows_of(run),
                 bench->bound != NULL ? bound_flops(bench->bound)
                                      : (double)tw_engine_flops_token(run) * (double)rows_of(run),
                 bench->bound != NULL ? bound_peak(bench->bound) : bench->peak);
    (void)fflush(stdout);
}

static enum tw_status serve(struct bench *bench, struct tw_error *err) {
    char line[16];
    print_served(bench);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        const double start = now_s(CLOCK_MONOTONIC), busy = now_s(CLOCK_PROCESS_CPUTIME_ID);
        const unsigned long read = strtoul(line, NULL, 10), steps = read == 0 ? 1 : read;
        for (unsigned long i = 0; i < steps; i++) {
            if (bench->engine != NULL) TW_TRY(step(bench, err));
            if (bench->bound != NULL) (void)bound_round(bench->bound);
        }
        (void)printf("%.6f %.6f %.6f\n", (now_s(CLOCK_MONOTONIC) - start) / (double)steps,
                     (now_s(CLOCK_PROCESS_CPUTIME_ID) - busy) / (double)steps, bench->loss);
        (void)fflush(stdout);
    }
    return TW_OK;
}

/* ---- command line -------------------------------------------------------------------------- */

static const char usage[] =
    "usage: thinwire-engine-bench [--model NAME] [--KEY VALUE ...] [--compute auto|fp32|bf16]\n"
    "           [--device auto|cpu|cuda:N] [--recompute auto|off|on] [--micro-batch N] [--threads "
    "N] [--rounds N]\n"
    "           [--document N] [--only step|bound] [--details] [--profile]\n"
    "           [--serve]\n"
    "NAME as in `thinwire run new --model`; default: the model of the demo. KEY: a key of a run\n"
    "file, for instance --model.layers 4 --train.batch 8. --document: a separator every N tokens,\n"
    "for --data.documents masked.\n";

static enum tw_status read_choice(const char *value, const char *const *names, int *choice,
                                  struct tw_error *err) {
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(value, names[i]) != 0) continue;
        *choice = i;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "%s is none of the choices; see --help", value);
}

static enum tw_status read_number(const char *value, uint32_t max, uint32_t *number,
                                  struct tw_error *err) {
    char *end;
    const unsigned long read = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end != 0 || read > max) {
        return tw_fail(err, TW_CONFIG, "%s is not a number up to %u", value, max);
    }
    *number = (uint32_t)read;
    return TW_OK;
}

static enum tw_status read_option(struct options *options, const char *name, const char *value,
                                  struct tw_error *err) {
    static const char *const computes[] = {"auto", "fp32", "bf16", NULL};
    static const char *const recomputes[] = {"auto", "off", "on", NULL};
    static const char *const only[] = {"step", "bound", NULL};
    int choice = 0;
    if (strcmp(name, "model") == 0) return tw_run_apply_model(&options->run, value, err);
    if (strcmp(name, "device") == 0) return tw_device_parse(value, &options->compute.device, err);
    if (strcmp(name, "threads") == 0) {
        return read_number(value, TW_THREAD_POOL_THREADS_MAX, &options->compute.threads, err);
    }
    if (strcmp(name, "micro-batch") == 0) {
        return read_number(value, 1u << 20, &options->compute.micro_batch, err);
    }
    if (strcmp(name, "document") == 0) {
        return read_number(value, 1u << 20, &options->document, err);
    }
    if (strcmp(name, "rounds") == 0) {
        TW_TRY(read_number(value, ROUNDS_MAX, &options->rounds, err));
        if (options->rounds == 0) return tw_fail(err, TW_CONFIG, "--rounds 0 measures nothing");
        return TW_OK;
    }
    if (strcmp(name, "compute") == 0) {
        TW_TRY(read_choice(value, computes, &choice, err));
        options->compute.compute = (enum tw_compute)choice;
    } else if (strcmp(name, "recompute") == 0) {
        TW_TRY(read_choice(value, recomputes, &choice, err));
        options->compute.recompute = (enum tw_recompute)choice;
    } else if (strcmp(name, "only") == 0) {
        TW_TRY(read_choice(value, only, &choice, err));
        options->has_step = choice == 0;
        options->has_bound = choice == 1;
    } else {
        return tw_run_set(&options->run, name, value, err);
    }
    return TW_OK;
}

static enum tw_status read_options(struct options *options, int argc, char **argv,
                                   struct tw_error *err) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        if (strncmp(name, "--", 2) != 0) {
            return tw_fail(err, TW_CONFIG, "%s is no option; see --help", name);
        }
        if (strcmp(name, "--serve") == 0) {
            options->is_served = true;
        } else if (strcmp(name, "--details") == 0) {
            options->is_detailed = true;
        } else if (strcmp(name, "--profile") == 0) {
            options->is_profiled = true;
        } else if (i + 1 == argc) {
            return tw_fail(err, TW_CONFIG, "%s needs a value; see --help", name);
        } else {
            TW_TRY(read_option(options, name + 2, argv[++i], err));
        }
    }
    return TW_OK;
}

/* Sets the model that the demo trains. */
static void set_demo(struct tw_run *run) {
    tw_run_defaults(run);
    run->model.layers = 4;
    run->model.width = 128;
    run->model.heads = 4;
    run->model.context = 128;
    run->train.batch = 8;
}

static enum tw_status run(struct bench *bench, struct tw_error *err) {
    const struct options *options = bench->options;
    TW_TRY(tw_layout_init(&bench->layout, &options->run, err));
    if (options->has_step) TW_TRY(open_step(bench, err));
    if (options->has_bound) TW_TRY(open_bound(bench, err));
    if (options->is_served) return serve(bench, err);
    if (options->is_detailed && bench->bound != NULL) bound_print(bench->bound);
    TW_TRY(alternate(bench, err));
    print_results(bench);
    return TW_OK;
}

int main(int argc, char **argv) {
    static struct options options;
    static struct bench bench = {.options = &options};
    struct tw_error err;
    options = (struct options){
        .rounds = 10, .compute.device.kind = TW_DEVICE_CPU, .has_step = true, .has_bound = true};
    set_demo(&options.run);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(usage, stdout) < 0;
    enum tw_status status = read_options(&options, argc, argv, &err);
    tw_run_apply_preset(&options.run, TW_PRESET_STREAMING);
    if (status == TW_OK) status = run(&bench, &err);
    if (status != TW_OK) (void)fprintf(stderr, "thinwire-engine-bench: %s\n", err.message);
    tw_engine_destroy(bench.engine);
    bound_destroy(bench.bound);
    free(bench.tokens);
    return status == TW_OK ? 0 : status == TW_CONFIG ? 2 : 1;
}
