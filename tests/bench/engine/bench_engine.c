/* bench_engine.c - thinwire-engine-bench: inner steps of a model, against a plain baseline in the
 * same run.
 *
 * The baseline is the same model through the plain reference operations and products of kernels/,
 * measured on one step: it shows the ratio that survives a noisy machine. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "kernels/ops.h"
#include "worker/engine.h"

/* Processor time of the whole process: what a busy machine does to others does not count. */
static double cpu_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int fail(const struct tw_error *err) {
    (void)fprintf(stderr, "thinwire-engine-bench: %s\n", err->message);
    return 1;
}

/* Multiplications and additions of the matrix products of one step, forward and backward. */
static double step_flops(const struct tw_run *run) {
    const double width = run->model.width, context = run->model.context;
    const double tokens = (double)run->train.batch * context;
    const double weights = run->model.layers * 12.0 * width * width + run->model.vocab * width;
    const double attention = run->model.layers * 2.0 * width * context / 2.0; /* causal: half */
    return 6.0 * tokens * (weights + attention);
}

/* Median and best processor seconds per step over `steps` steps after two to warm up. */
static enum tw_status measure(struct tw_engine *engine, const uint32_t *tokens, int steps,
                              double *median_s, double *best_s, struct tw_error *err) {
    double *seconds = calloc((size_t)steps, sizeof(*seconds));
    if (seconds == NULL) return tw_fail(err, TW_NOMEM, "no memory for %d samples", steps);
    enum tw_status status = TW_OK;
    for (int i = -2; i < steps && status == TW_OK; i++) {
        struct tw_step_result result;
        const double start = cpu_s();
        status = tw_engine_step(engine, tokens, 1e-3f, &result, err);
        if (i >= 0) seconds[i] = cpu_s() - start;
    }
    qsort(seconds, (size_t)steps, sizeof(*seconds), compare);
    *median_s = seconds[steps / 2];
    *best_s = seconds[0];
    free(seconds);
    return status;
}

struct options {
    int steps, threads;
    bool has_baseline;
};

static int read_options(int argc, char **argv, struct tw_run *run, struct options *options) {
    static const struct option names[] = {{"layers", required_argument, NULL, 'l'},
                                          {"width", required_argument, NULL, 'w'},
                                          {"heads", required_argument, NULL, 'h'},
                                          {"context", required_argument, NULL, 'c'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"steps", required_argument, NULL, 's'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"no-baseline", no_argument, NULL, 'n'},
                                          {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        const int value = optarg == NULL ? 0 : atoi(optarg);
        if (c != 'n' && value <= 0) return 1;
        switch (c) {
        case 'l': run->model.layers = (uint32_t)value; break;
        case 'w': run->model.width = (uint32_t)value; break;
        case 'h': run->model.heads = (uint32_t)value; break;
        case 'c': run->model.context = (uint32_t)value; break;
        case 'b': run->train.batch = (uint32_t)value; break;
        case 's': options->steps = value; break;
        case 't': options->threads = value; break;
        case 'n': options->has_baseline = false; break;
        default: return 1;
        }
    }
    return 0;
}

static enum tw_status report(const char *what, struct tw_engine *engine, const uint32_t *tokens,
                             int steps, double *median_s, struct tw_error *err) {
    const struct tw_run *run = engine->run;
    double best_s = 0.0;
    TW_TRY(measure(engine, tokens, steps, median_s, &best_s, err));
    (void)printf(
        "%-28s %9.2f CPU ms/step median, %9.2f best, %9.0f tokens/CPU s, %7.1f GFLOP/CPU s\n", what,
        *median_s * 1e3, best_s * 1e3, (double)run->train.batch * run->model.context / *median_s,
        step_flops(run) / *median_s * 1e-9);
    (void)fflush(stdout);
    return TW_OK;
}

static enum tw_status bench(const struct tw_run *run, const struct tw_layout *layout,
                            const struct options *options, struct tw_error *err) {
    const struct tw_engine_config config = {
        .run = run, .layout = layout, .threads = (uint32_t)options->threads};
    const size_t tokens_count = (size_t)run->train.batch * (run->model.context + 1);
    uint32_t *tokens = calloc(tokens_count, sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch");
    struct tw_engine *engine = NULL;
    struct tw_rng rng;
    double fast_s = 0.0, plain_s = 0.0;
    char text[96];
    tw_rng_seed(&rng, 1);
    for (size_t i = 0; i < tokens_count; i++) tokens[i] = (uint32_t)tw_rng_below(&rng, 256);
    enum tw_status status = tw_engine_create(&engine, &config, err);
    if (status == TW_OK) {
        tw_engine_init_params(run, layout, engine->theta);
        tw_engine_describe(engine, text, sizeof(text));
        status = report(text, engine, tokens, options->steps, &fast_s, err);
    }
    if (status == TW_OK && options->has_baseline) {
        tw_engine_use(engine, tw_ops_ref(), tw_matmul_ref);
        status = report("plain reference", engine, tokens, 1, &plain_s, err);
        if (status == TW_OK) (void)printf("ratio: %.1f times the reference\n", plain_s / fast_s);
    }
    tw_engine_destroy(engine);
    free(tokens);
    return status;
}

int main(int argc, char **argv) {
    static struct tw_layout layout;
    struct tw_run run;
    struct tw_error err;
    struct options options = {.steps = 20, .threads = 1, .has_baseline = true};
    tw_run_defaults(&run);
    run.model.layers = 4;
    run.model.width = 128;
    run.model.heads = 4;
    run.model.context = 128;
    run.train.batch = 8;
    if (read_options(argc, argv, &run, &options) != 0) {
        (void)fprintf(stderr, "usage: thinwire-engine-bench [--layers N] [--width N] [--heads N] "
                              "[--context N] [--batch N] [--threads N] [--steps N] "
                              "[--no-baseline]\n");
        return 2;
    }
    tw_run_apply_preset(&run, TW_PRESET_STREAMING);
    if (tw_layout_init(&layout, &run, &err) != TW_OK) return fail(&err);
    (void)printf("%u layers, width %u, %u heads, context %u, batch %u: %.2f M parameters\n",
                 run.model.layers, run.model.width, run.model.heads, run.model.context,
                 run.train.batch, (double)layout.params * 1e-6);
    return bench(&run, &layout, &options, &err) == TW_OK ? 0 : fail(&err);
}
