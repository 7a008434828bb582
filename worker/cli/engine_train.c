/* thinwire-engine train: trains one model without a daemon. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/page.h"
#include "base/units.h"
#include "proto/run/run_key.h"
#include "worker/cli/engine_verb.h"
#include "worker/cli/train_report.h"
#include "worker/files/train_file.h"
#include "worker/learn/learner_engine.h"
#include "worker/support/signals.h"

enum { EVAL_WINDOWS = 64, SKIPS_MAX = 16 };
static const double SAVE_PAUSE_S = 600; /* seconds between saves without --save-every */
static const double AGAIN_PAUSE_S = 60; /* seconds until a failed save is retried, at most */

struct training {
    struct engine_bench *bench;
    struct tw_train_file file; /* its state's theta, m and v are the engine's arrays */
    struct tw_train_report report;
    const struct tw_profile *profile; /* NULL: times by operator are not measured */
    char out[PATH_MAX];
    struct tw_out_file held; /* the file `out`, locked for the whole training */
    bool is_resumed;         /* whether this continues the training in --from */
    /* size and type of passes recorded in --from, if it is resumed */
    struct tw_train_pass recorded;
    /* first key whose value differs from the run in --from, or NULL */
    const struct tw_run_key *differing;
    uint64_t steps, measured_step, saved_step;
    double saved_s, again_s; /* times in seconds of the last save, and of the next try of a failed
                                one */
    struct tw_batches batches;
};

/* ---- input and output files ---------------------------------------------------------------------
 */

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Explains why an existing file is not overwritten: only the training that continues it may replace
 * it. */
static enum tw_status refuse_out(const struct training *training, struct tw_error *err) {
    struct tw_run other;
    bool can_go_on = false;
    if (training->differing != NULL &&
        is_same_file(training->out, training->bench->options->from)) {
        return tw_fail(err, TW_CONFIG,
                       "%s was trained with another %s, so this training starts anew and must not "
                       "overwrite it; leave out --run to continue it, or choose another --out",
                       training->out, training->differing->name);
    }
    (void)tw_train_file_peek(training->out, &can_go_on, &other, NULL, NULL);
    return tw_fail(err, TW_CONFIG, "%s exists and is not overwritten; %schoose another --out",
                   training->out, can_go_on ? "continue it with --from, or " : "");
}

/* Checks the free space of the disk. The old file stays until the rename, so the disk must hold
 * both: parameters and two moments each. */
static enum tw_status check_room(const struct training *training, struct tw_error *err) {
    const uint64_t wanted = training->bench->layout.params * 3 * sizeof(float);
    char wanted_text[TW_UNITS_BYTES], free_text[TW_UNITS_BYTES];
    struct statvfs disk;
    /* The free space is not known: a save will report a full disk. */
    if (fstatvfs(training->held.fd, &disk) != 0) return TW_OK;
    const uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (free_bytes >= wanted) return TW_OK;
    return tw_fail(err, TW_IO,
                   "%s will take %s, and its disk has %s left: free some, or choose another --out",
                   training->out, tw_units_bytes(wanted_text, (double)wanted),
                   tw_units_bytes(free_text, (double)free_bytes));
}

/* Checks the output path now, so that a bad one does not fail after the last step. */
static enum tw_status check_out(struct training *training, struct tw_error *err) {
    const char *const from = training->bench->options->from;
    char copy[PATH_MAX];
    if (access(training->out, F_OK) == 0 &&
        !(training->is_resumed && is_same_file(training->out, from))) {
        return refuse_out(training, err);
    }
    (void)snprintf(copy, sizeof(copy), "%s", training->out);
    const char *const folder = dirname(copy);
    if (access(folder, W_OK | X_OK) != 0) {
        return tw_fail(err, TW_IO, "cannot write in %s: %s; choose another --out", folder,
                       strerror(errno));
    }
    TW_TRY(tw_out_hold(&training->held, training->out, err));
    return check_room(training, err);
}

/* Decides whether --from is resumed: only if it is a training file and every key of its run is the
 * same. */
static enum tw_status plan_start(struct training *training, struct tw_error *err) {
    const char *const from = training->bench->options->from;
    const struct tw_run *const run = &training->bench->run;
    char here[TW_RUN_VALUE_BYTES], there[TW_RUN_VALUE_BYTES];
    static struct tw_run found;
    bool is_training = false;
    if (from == NULL) return TW_OK;
    TW_TRY(tw_train_file_peek(from, &is_training, &found, &training->recorded, err));
    training->differing = is_training ? tw_run_key_differing(&found, run) : NULL;
    training->is_resumed = is_training && training->differing == NULL;
    if (training->is_resumed) return TW_OK;
    if (training->differing == NULL) {
        tw_page_say("starts anew from the parameters of %s", from);
        return TW_OK;
    }
    tw_run_key_format(training->differing, run, here);
    tw_run_key_format(training->differing, &found, there);
    tw_page_say("starts anew from the parameters of %s: %s is %s here and %s there", from,
                training->differing->name, here, there);
    return TW_OK;
}

static enum tw_status plan_files(struct training *training, struct tw_error *err) {
    const struct engine_options *const options = training->bench->options;
    const struct tw_run *const run = &training->bench->run;
    TW_TRY(plan_start(training, err));
    int n;
    if (options->out != NULL) {
        n = snprintf(training->out, sizeof(training->out), "%s", options->out);
    } else if (training->is_resumed) {
        n = snprintf(training->out, sizeof(training->out), "%s", options->from);
    } else {
        n = snprintf(training->out, sizeof(training->out), "%s.safetensors", run->name);
    }
    if (n >= (int)sizeof(training->out) - 8) return tw_fail(err, TW_CONFIG, "--out is too long");
    return options->is_plan ? TW_OK : check_out(training, err);
}

/* ---- resuming ----------------------------------------------------------------------------------
 */

static struct tw_train_pass pass_of(const struct tw_engine_plan *plan) {
    return (struct tw_train_pass){.micro_batch = plan->micro_batch,
                                  .compute =
                                      plan->type == TW_BF16 ? TW_COMPUTE_BF16 : TW_COMPUTE_FP32};
}

/* Warns if the loss curve may differ from that of an uninterrupted training. */
static void warn_difference(const struct tw_train_pass *was, const struct tw_engine_plan *plan) {
    const struct tw_train_pass now = pass_of(plan);
    if (was->micro_batch == 0) {
        tw_page_say("the file does not record the size and type of its passes: "
                    "the curve may differ in rounding");
    } else if (now.micro_batch != was->micro_batch || now.compute != was->compute) {
        tw_page_say("passes of %" PRIu32 " sequence%s in %s, and of %" PRIu32
                    " in %s before: the curve may differ in rounding",
                    now.micro_batch, now.micro_batch == 1 ? "" : "s",
                    now.compute == TW_COMPUTE_BF16 ? "bf16" : "fp32", was->micro_batch,
                    was->compute == TW_COMPUTE_BF16 ? "bf16" : "fp32");
    }
}

/* Uses the size and type of passes recorded in --from, unless the command line overrides them or
 * this machine does not support them. */
static enum tw_status plan_passes(struct training *training, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    const struct tw_train_pass *const was = &training->recorded;
    struct tw_compute_config *const compute = &bench->compute;
    const bool is_size_ours = compute->micro_batch == 0, is_type_ours = compute->compute == 0;
    struct tw_engine_config config = {.run = &bench->run, .layout = &bench->layout};
    struct tw_engine_plan plan;
    if (is_size_ours) compute->micro_batch = was->micro_batch;
    if (is_type_ours) compute->compute = was->compute;
    config.compute = *compute;
    enum tw_status status = tw_engine_plan_make(&plan, &config, err);
    if (status == TW_CONFIG && is_type_ours) {
        config.compute.compute = compute->compute = TW_COMPUTE_AUTO;
        status = tw_engine_plan_make(&plan, &config, err);
    }
    if (status == TW_NOMEM && is_size_ours) {
        config.compute.micro_batch = compute->micro_batch = 0;
        status = tw_engine_plan_make(&plan, &config, err);
    }
    if (status == TW_OK) warn_difference(was, &plan);
    return status == TW_NOMEM ? TW_OK : status; /* with TW_NOMEM, the plan is shown first; creating
                                                   the engine then fails */
}

/* Sets parameters, moments and counters for step 0, or for the step at which --from was saved. */
static enum tw_status init_state(struct training *training, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    const struct engine_options *const options = bench->options;
    struct tw_train_file *const file = &training->file;
    file->run = bench->run;
    file->data_seed = options->seed;
    file->state.theta = bench->engine->theta;
    file->state.m = bench->engine->m;
    file->state.v = bench->engine->v;
    if (!training->is_resumed) {
        if (options->from != NULL) return engine_load(bench, options->from, err);
        tw_engine_init_params(&bench->run, &bench->layout, bench->engine->theta);
        return tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err);
    }
    TW_TRY(tw_train_file_load(options->from, &bench->layout, file, err));
    TW_TRY(tw_engine_push(bench->engine, TW_ENGINE_STATE, 0, bench->layout.elements, err));
    if (options->has_seed && options->seed != file->data_seed) {
        return tw_fail(
            err, TW_CONFIG,
            "--seed %llu, but %s was trained with %llu: leave it out to continue exactly",
            (unsigned long long)options->seed, options->from, (unsigned long long)file->data_seed);
    }
    bench->engine->updates = file->state.updates;
    bench->engine->skipped = file->skipped;
    return TW_OK;
}

static enum tw_status save(struct training *training, struct tw_error *err) {
    struct tw_train_file *const file = &training->file;
    file->state.updates = training->bench->engine->updates;
    file->skipped = training->bench->engine->skipped;
    file->pass = pass_of(&training->bench->engine->plan);
    TW_TRY(tw_engine_pull(training->bench->engine, TW_ENGINE_STATE, 0,
                          training->bench->layout.elements, err));
    TW_TRY(tw_train_file_save(&training->held, &training->bench->layout, file, err));
    training->saved_step = file->state.step;
    training->saved_s = engine_now_s();
    tw_train_report_saved(&training->report, training->out);
    return TW_OK;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static enum tw_status measure(struct training *training, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    struct tw_eval eval;
    tw_data_refresh(&bench->data);
    /* no held-out text has arrived yet */
    if (tw_data_heldout_count(&bench->data) == 0) return TW_OK;
    TW_TRY(tw_eval_heldout(bench->engine, &bench->data, bench->engine->theta, EVAL_WINDOWS, &eval,
                           err));
    training->measured_step = training->file.state.step;
    tw_train_report_validation(&training->report, eval.nats);
    return TW_OK;
}

static enum tw_status take_step(struct training *training, bool *is_skipped, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    struct tw_train_state *const state = &training->file.state;
    struct tw_step_result result;
    const double begin_s = engine_now_s();
    const float lr = tw_schedule_lr(&bench->run, state->tokens, bench->engine->updates);
    uint64_t cursor = state->cursor;
    TW_TRY(tw_batches_draw(&training->batches, &cursor, err));
    TW_TRY(tw_engine_step(bench->engine, training->batches.tokens, lr, &result, err));
    state->cursor = cursor;
    state->step++;
    state->tokens += (uint64_t)bench->run.train.batch * bench->run.model.context;
    *is_skipped = result.is_skipped;
    tw_train_report_step(&training->report, &result, lr, engine_now_s() - begin_s);
    return TW_OK;
}

static bool is_time_to_save(const struct training *training) {
    const uint64_t every = training->bench->options->save_steps;
    if (engine_now_s() > training->again_s) return true;
    if (every > 0) return training->file.state.step % every == 0;
    return engine_now_s() - training->saved_s > SAVE_PAUSE_S;
}

/* Saves the state. A full disk or a file in the way is reported and the save retried later, because
 * a person may remove the cause meanwhile. */
static enum tw_status try_save(struct training *training, struct tw_error *err) {
    struct tw_error why;
    const enum tw_status status = save(training, &why);
    training->again_s = (double)INFINITY;
    if (status == TW_OK) return TW_OK;
    if (status != TW_IO && status != TW_CONFIG) return tw_fail(err, status, "%s", why.message);
    tw_train_report_unsaved(&training->report, training->out, why.message);
    training->saved_s = engine_now_s();
    training->again_s = training->saved_s + AGAIN_PAUSE_S;
    return TW_OK;
}

static enum tw_status run_steps(struct training *training, struct tw_error *err) {
    const uint64_t eval_steps = training->bench->options->eval_steps;
    uint32_t skips = 0;
    while (training->file.state.step < training->steps && !tw_signals_wanted()) {
        bool is_skipped = false;
        TW_TRY(take_step(training, &is_skipped, err));
        skips = is_skipped ? skips + 1 : 0;
        if (skips == SKIPS_MAX) {
            return tw_fail(err, TW_CORRUPT,
                           "gradients of %d steps in a row are not finite: lower train.lr, or look "
                           "at the text near token %llu of the sampling order",
                           SKIPS_MAX, (unsigned long long)training->file.state.cursor);
        }
        if (eval_steps > 0 && training->file.state.step % eval_steps == 0) {
            TW_TRY(measure(training, err));
        }
        if (is_time_to_save(training)) TW_TRY(try_save(training, err));
    }
    return TW_OK;
}

/* ---- entry point -------------------------------------------------------------------------------
 */

static enum tw_status show_plan(struct training *training, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    struct tw_train_report *const report = &training->report;
    struct tw_engine_plan plan;
    const struct tw_engine_config config = {
        .run = &bench->run, .layout = &bench->layout, .compute = bench->compute};
    char engine[128];
    if (!report->json) {
        tw_train_report_run(&bench->run, &bench->layout, bench->options->data, &bench->data,
                            training->steps);
    }
    const enum tw_status status = tw_engine_plan_make(&plan, &config, err);
    if (status != TW_OK && status != TW_NOMEM) return status;
    tw_engine_plan_describe(&plan, engine, sizeof(engine));
    if (status == TW_OK) {
        TW_TRY(tw_engine_peak(&plan, &report->peak_flops_s, err));
    }
    if (report->json) {
        tw_train_report_plan_json(&bench->run, &bench->layout, &plan, engine, report->peak_flops_s);
    } else {
        tw_train_report_plan(&plan, engine, report->peak_flops_s);
    }
    return status;
}

static enum tw_status prepare(struct training *training, struct tw_error *err) {
    struct engine_bench *const bench = training->bench;
    const struct tw_run *const run = &bench->run;
    const uint64_t step_tokens = (uint64_t)run->train.batch * run->model.context;
    const uint64_t asked = bench->options->steps;
    training->steps = asked > 0 ? asked : 1 + (run->train.tokens - 1) / step_tokens;
    training->report = (struct tw_train_report){
        .is_terminal = isatty(STDERR_FILENO) == 1,
        .json = bench->options->json,
        .steps = training->steps,
        .step_tokens = step_tokens,
        .flops_token = tw_engine_flops_token(run),
        .loss = (double)NAN,
        .validation = (double)NAN,
    };
    TW_TRY(plan_files(training, err));
    if (training->is_resumed) TW_TRY(plan_passes(training, err));
    TW_TRY(show_plan(training, err));
    if (bench->options->is_plan) return TW_OK;
    TW_TRY(engine_open(bench, ENGINE_TRAIN, err));
    if (bench->options->is_profiled)
        TW_TRY(tw_engine_profile(bench->engine, &training->profile, err));
    TW_TRY(init_state(training, err));
    TW_TRY(tw_batches_open(&training->batches, bench->engine, &bench->data,
                           training->file.data_seed, err));
    const uint64_t step = training->file.state.step;
    training->report.step = training->report.first_step = step;
    training->report.tokens = training->file.state.tokens;
    training->report.skipped = training->file.skipped;
    training->saved_step = training->measured_step = step;
    training->again_s = (double)INFINITY;
    training->saved_s = training->report.start_s = training->report.shown_s = engine_now_s();
    if (training->is_resumed && step >= training->steps) {
        if (bench->options->steps > 0)
            return tw_fail(err, TW_CONFIG,
                           "%s is at step %llu already: --steps counts all steps of the run, not "
                           "those of this command; ask for more than %llu",
                           bench->options->from, (unsigned long long)step,
                           (unsigned long long)step);
        return tw_fail(err, TW_CONFIG,
                       "%s is at step %llu, where this run ends: nothing is left to train; --steps "
                       "asks for more",
                       bench->options->from, (unsigned long long)step);
    }
    if (training->is_resumed && !training->report.json) {
        (void)fprintf(stderr, "  Continues   at step %llu of %s\n", (unsigned long long)step,
                      bench->options->from);
    }
    return TW_OK;
}

/* Saves the state even after a failure, because a failed step changes nothing. */
static enum tw_status finish(struct training *training, enum tw_status status,
                             struct tw_error *err) {
    const uint64_t step = training->file.state.step;
    struct tw_error later;
    struct stat info = {.st_size = 0};
    if (status == TW_OK && training->measured_step < step) status = measure(training, err);
    if (step > training->saved_step || access(training->out, F_OK) != 0) {
        const enum tw_status saved = save(training, status == TW_OK ? err : &later);
        if (status != TW_OK && saved != TW_OK) {
            tw_train_report_unsaved(&training->report, training->out, later.message);
        }
        if (status == TW_OK) status = saved;
    }
    if (status != TW_OK) return status;
    if (training->profile != NULL) tw_train_report_profile(&training->report, training->profile);
    (void)stat(training->out, &info);
    tw_train_report_end(&training->report, step < training->steps ? "interrupted" : "done",
                        training->out, (uint64_t)info.st_size, training->bench->options->data);
    return TW_OK;
}

enum tw_exit engine_train(struct engine_bench *bench) {
    static struct training training; /* contains paths, so it is too large for the stack */
    struct tw_error err;
    training.bench = bench;
    training.held.fd = training.held.seen_fd = -1;
    tw_signals_catch(true);
    enum tw_status status = prepare(&training, &err);
    if (status == TW_OK && !bench->options->is_plan) {
        status = run_steps(&training, &err);
        status = finish(&training, status, &err);
    }
    tw_out_abort(&training.held);
    tw_batches_close(&training.batches);
    return status == TW_OK ? TW_EXIT_OK : engine_fail(&err);
}
