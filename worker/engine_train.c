/* thinwire-engine train: ordinary training of one model, no daemon. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/engine_verb.h"
#include "worker/eval.h"
#include "worker/interrupt.h"
#include "worker/weights.h"

enum { EVAL_WINDOWS = 64 };

/* Where the training is. */
struct progress {
    uint64_t step, steps, tokens, measured_step;
    double loss, validation; /* loss: moving average over about 20 steps */
    double start_s, shown_s;
    bool is_terminal;
};

static void show(const struct progress *progress, bool is_last) {
    const double elapsed_s = engine_now_s() - progress->start_s;
    const double tokens_s = (double)progress->tokens / fmax(elapsed_s, 1e-9);
    const double left_s =
        elapsed_s / (double)progress->step * (double)(progress->steps - progress->step);
    (void)fprintf(stderr,
                  "%sstep %llu of %llu (%.0f %%), loss %.3f, validation %.3f nats/token, "
                  "%.0f tokens/s, %.0f s left%s",
                  progress->is_terminal ? "\r\033[K" : "", (unsigned long long)progress->step,
                  (unsigned long long)progress->steps,
                  100.0 * (double)progress->step / (double)progress->steps, progress->loss,
                  progress->validation, tokens_s, left_s,
                  progress->is_terminal && !is_last ? "" : "\n");
}

static void print_json(const struct progress *progress, const char *event) {
    (void)printf("{\"event\": \"%s\", \"steps\": %llu, \"tokens\": %llu, \"loss_nats\": %.6f, "
                 "\"elapsed_s\": %.3f",
                 event, (unsigned long long)progress->step, (unsigned long long)progress->tokens,
                 progress->loss, engine_now_s() - progress->start_s);
    if (isfinite(progress->validation)) {
        (void)printf(", \"validation_nats\": %.6f", progress->validation);
    }
    (void)printf("}\n");
    (void)fflush(stdout);
}

static enum tw_status measure(struct engine_bench *bench, struct progress *progress,
                              struct tw_error *err) {
    TW_TRY(tw_eval_heldout(bench->engine, &bench->data, bench->engine->theta, EVAL_WINDOWS,
                           &progress->validation, err));
    progress->measured_step = progress->step;
    if (bench->options->json) {
        print_json(progress, "validation");
    } else if (!progress->is_terminal && progress->step > 0) {
        show(progress, false);
    }
    return TW_OK;
}

static enum tw_status train(struct engine_bench *bench, uint32_t *tokens, struct progress *progress,
                            struct tw_error *err) {
    const struct tw_run *const run = &bench->run;
    uint64_t cursor = 0;
    for (; progress->step < progress->steps && !tw_interrupt_wanted();) {
        struct tw_step_result result;
        tw_data_draw(&bench->data, bench->options->seed, &cursor, run->train.batch, tokens);
        TW_TRY(tw_engine_step(bench->engine, tokens, tw_schedule_lr(run, progress->tokens), &result,
                              err));
        const double weight = progress->step == 0 ? 1 : 0.05;
        progress->step++;
        progress->tokens += (uint64_t)run->train.batch * run->model.context;
        if (!result.is_skipped) {
            progress->loss += weight * ((double)result.loss - progress->loss);
        }
        const uint64_t every = bench->options->eval_steps;
        if (every > 0 && progress->step % every == 0) TW_TRY(measure(bench, progress, err));
        const double now_s = engine_now_s();
        if (progress->is_terminal && !bench->options->json && now_s - progress->shown_s > 0.25) {
            show(progress, false);
            progress->shown_s = now_s;
        }
    }
    return TW_OK;
}

static enum tw_status start(struct engine_bench *bench, struct tw_error *err) {
    const struct engine_options *const options = bench->options;
    if (options->out != NULL && access(options->out, F_OK) == 0) {
        return tw_fail(err, TW_CONFIG, "%s exists and is not overwritten; choose another --out",
                       options->out);
    }
    if (options->out != NULL) { /* better now than after the last step */
        char folder[PATH_MAX];
        (void)snprintf(folder, sizeof(folder), "%s", options->out);
        const char *const dir = dirname(folder);
        if (access(dir, W_OK) != 0) {
            return tw_fail(err, TW_IO, "cannot write in %s: %s; choose another --out", dir,
                           strerror(errno));
        }
    }
    if (options->from != NULL) {
        return tw_weights_load(options->from, &bench->layout, options->part, bench->engine->theta,
                               err);
    }
    tw_engine_init_params(&bench->run, &bench->layout, bench->engine->theta);
    return TW_OK;
}

enum tw_exit engine_train(struct engine_bench *bench) {
    const struct engine_options *const options = bench->options;
    const uint64_t step_tokens = (uint64_t)bench->run.train.batch * bench->run.model.context;
    struct tw_error err;
    struct progress progress = {.steps = options->steps > 0
                                             ? options->steps
                                             : 1 + (bench->run.train.tokens - 1) / step_tokens,
                                .validation = (double)NAN,
                                .start_s = engine_now_s(),
                                .is_terminal = isatty(STDERR_FILENO) == 1};
    tw_interrupt_catch(true);
    uint32_t *const tokens =
        calloc((size_t)bench->run.train.batch * (bench->run.model.context + 1), sizeof(*tokens));
    if (tokens == NULL) {
        (void)tw_fail(&err, TW_NOMEM, "no memory for a batch of tokens");
        return engine_fail(&err);
    }
    enum tw_status status = start(bench, &err);
    if (status == TW_OK) status = train(bench, tokens, &progress, &err);
    if (status == TW_OK && progress.measured_step < progress.step) {
        status = measure(bench, &progress, &err);
    }
    if (status == TW_OK && options->out != NULL) {
        status = tw_weights_save(options->out, &bench->layout, bench->engine->theta, &err);
    }
    free(tokens);
    if (status != TW_OK) return engine_fail(&err);
    if (options->json) {
        print_json(&progress, tw_interrupt_wanted() ? "interrupted" : "done");
    } else {
        if (progress.is_terminal) show(&progress, true);
        if (options->out != NULL) (void)printf("written to %s\n", options->out);
    }
    return TW_EXIT_OK;
}
