/* thinwire-engine eval: held-out loss of a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/units.h"
#include "worker/cli/engine_verb.h"
#include "worker/learn/learner_engine.h"
#include "worker/support/progress.h"

static void show_progress(void *user, uint64_t done, uint64_t all) {
    struct tw_progress *const progress = user;
    progress->all = all;
    tw_progress_show(progress, done, engine_now_s());
}

enum tw_status engine_measure(struct engine_bench *bench, const float *params, const char *what,
                              struct tw_eval *eval, struct tw_error *err) {
    const char *const slash = strrchr(what, '/');
    struct tw_progress progress = {.is_shown = isatty(STDERR_FILENO) == 1 && !bench->options->json,
                                   .unit = "windows",
                                   .what = slash != NULL ? slash + 1 : what,
                                   .begin_s = engine_now_s()};
    const struct tw_eval_wish wish = {
        .windows = bench->options->windows, .progress = show_progress, .user = &progress};
    const enum tw_status status =
        tw_eval_heldout_shown(bench->engine, &bench->data, params, &wish, eval, err);
    tw_progress_end(&progress);
    return status;
}

static void print_json(const struct engine_bench *bench, const struct tw_eval *eval,
                       double tokens_s) {
    const bool is_bytes = bench->run.data.tokenizer == TW_TOKENIZER_BYTES;
    (void)printf("{\"validation_nats\": %.6f", eval->nats);
    /* omitted if infinite, because JSON has no infinity */
    if (isfinite(exp(eval->nats))) (void)printf(", \"perplexity\": %.6g", exp(eval->nats));
    if (isfinite(eval->standard_error)) {
        (void)printf(", \"standard_error_nats\": %.6f", eval->standard_error);
    }
    if (is_bytes) (void)printf(", \"bits_per_byte\": %.6f", eval->nats / log(2));
    (void)printf(", \"windows\": %llu, \"tokens\": %llu, \"tokens_per_s\": %.6g, \"part\": "
                 "\"%s\"}\n",
                 (unsigned long long)eval->windows, (unsigned long long)eval->tokens, tokens_s,
                 bench->options->part);
}

static void print(const struct engine_bench *bench, const struct tw_eval *eval, double tokens_s) {
    char tokens[TW_UNITS_BYTES], windows[TW_UNITS_BYTES], speed[TW_UNITS_BYTES], engine[128];
    (void)printf("%.4f", eval->nats);
    if (isfinite(eval->standard_error)) (void)printf(" +- %.4f", eval->standard_error);
    (void)printf(" nats/token, perplexity %.2f", exp(eval->nats));
    if (bench->run.data.tokenizer == TW_TOKENIZER_BYTES) {
        (void)printf(", %.4f bits per byte", eval->nats / log(2));
    }
    tw_engine_describe(bench->engine, engine, sizeof(engine));
    (void)printf("\non %s%s tokens in %s window%s of %u; %s tokens/s, %s\n",
                 tw_units_count(tokens, (double)eval->tokens),
                 bench->options->is_whole ? "" : " held-out",
                 tw_units_count(windows, (double)eval->windows), tw_units_s((double)eval->windows),
                 bench->run.model.context, tw_units_short(speed, tokens_s), engine);
}

enum tw_exit engine_eval(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    struct tw_error err;
    struct tw_eval eval;
    enum tw_status status = engine_open(bench, ENGINE_EVAL, &err);
    if (status == TW_OK) status = engine_load(bench, options->file, &err);
    const double begin_s = engine_now_s();
    if (status == TW_OK) {
        status = engine_measure(bench, bench->engine->theta, options->file, &eval, &err);
    }
    if (status == TW_OK && !isfinite(eval.nats)) {
        status = tw_fail(&err, TW_CORRUPT,
                         "%s: the loss of this model is not finite: its parameters are damaged, "
                         "load another checkpoint",
                         options->file);
    }
    if (status != TW_OK) return engine_fail(&err);
    const double tokens_s = (double)eval.tokens / fmax(engine_now_s() - begin_s, 1e-9);
    if (options->json) {
        print_json(bench, &eval, tokens_s);
    } else {
        print(bench, &eval, tokens_s);
    }
    return TW_EXIT_OK;
}
