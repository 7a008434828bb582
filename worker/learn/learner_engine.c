#include "worker/learn/learner_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/learn/eval.h"
#include "worker/merge/merge_memory.h"

static void init(void *self, float *params) {
    const struct tw_learner_engine *real = self;
    tw_engine_init_params(real->run, real->engine->layout, params);
}

/* Looks for new shards, at most once a second: they may arrive during training. */
static void refresh(struct tw_learner_engine *real) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec == real->refreshed_s) return;
    real->refreshed_s = now.tv_sec;
    tw_data_refresh(&real->data);
}

static enum tw_status step(void *self, uint64_t *cursor, float lr, struct tw_step_result *result,
                           struct tw_error *err) {
    struct tw_learner_engine *real = self;
    const uint64_t begin = *cursor;
    refresh(real);
    TW_TRY(tw_batches_draw(&real->batches, cursor, err));
    const enum tw_status status =
        tw_engine_step(real->engine, real->batches.tokens, lr, result, err);
    if (status == TW_AGAIN) *cursor = begin; /* the same batch is drawn again later */
    return status;
}

static void watch(void *self, const _Atomic bool *stop) {
    struct tw_learner_engine *real = self;
    tw_engine_watch(real->engine, stop);
}

static enum tw_status heldout(void *self, const float *params, double *loss, struct tw_error *err) {
    struct tw_learner_engine *real = self;
    struct tw_eval eval;
    if (real->data_path[0] == '\0') return tw_fail(err, TW_AGAIN, "this worker reads no data");
    if (tw_data_heldout_count(&real->data) == 0) {
        return tw_fail(err, TW_AGAIN, "no held-out shard has arrived yet");
    }
    TW_TRY(
        tw_eval_heldout(real->engine, &real->data, params, tw_eval_windows(real->run), &eval, err));
    *loss = eval.nats;
    return TW_OK;
}

static uint64_t epoch_windows(void *self) {
    const struct tw_learner_engine *real = self;
    return real->data.train_count / real->run->model.context;
}

/* With a shard missing, this node would draw other windows than the node that has it. */
static bool has_all_data(void *self) {
    const struct tw_learner_engine *real = self;
    return real->data_path[0] != '\0' && real->data.files_here == real->data.files_count;
}

static enum tw_status drawn_losses(void *self, const float *params, uint64_t seed,
                                   const uint64_t *cursors, uint32_t count, double *losses,
                                   struct tw_error *err) {
    struct tw_learner_engine *real = self;
    if (!has_all_data(real)) return tw_fail(err, TW_AGAIN, "some of the data are not here");
    uint32_t *tokens = malloc(((size_t)real->run->model.context + 1) * sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a window");
    enum tw_status status = TW_OK;
    tw_engine_hold(real->engine, params);
    for (uint32_t i = 0; i < count && status == TW_OK; i++) {
        uint64_t cursor = cursors[i];
        status = tw_data_draw(&real->data, seed, &cursor, 1, tokens, err);
        if (status == TW_OK)
            status = tw_engine_loss(real->engine, params, tokens, 1, &losses[i], err);
    }
    tw_engine_hold(real->engine, NULL);
    free(tokens);
    return status;
}

static enum tw_status sample(void *self, uint32_t bytes, struct tw_wmsg_sample *sample,
                             struct tw_error *err) {
    struct tw_learner_engine *real = self;
    const struct tw_text_sampler_source source = {
        .engine = real->engine, .data = &real->data, .data_path = real->data_path};
    return tw_text_sampler_take(&real->sampler, &source, bytes, sample, err);
}

static float lr(void *self, uint64_t clock_tokens) {
    const struct tw_learner_engine *real = self;
    return tw_schedule_lr(real->run, clock_tokens, real->engine->updates);
}

static enum tw_status pull(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    const struct tw_learner_engine *real = self;
    return tw_engine_pull(real->engine, arrays, begin, n, err);
}

static enum tw_status push(void *self, uint32_t arrays, uint64_t begin, uint64_t n,
                           struct tw_error *err) {
    const struct tw_learner_engine *real = self;
    return tw_engine_push(real->engine, arrays, begin, n, err);
}

/* Fills the figures that users see. A GEMM rate that cannot be measured stays 0. */
static void fill_about(const struct tw_learner_engine *real, struct tw_wmsg_about *about) {
    const struct tw_engine_plan *const plan = &real->engine->plan;
    double peak = 0;
    tw_engine_describe(real->engine, about->engine, sizeof(about->engine));
    about->flops_token = tw_engine_flops_token(real->run);
    about->memory_bytes = plan->total;
    if (tw_engine_peak(plan, &peak, NULL) == TW_OK) about->peak_flops_s = (uint64_t)peak;
}

static enum tw_status create_engine(struct tw_learner_engine *real, struct tw_learner *learner,
                                    const struct tw_learner_config *config, struct tw_error *err) {
    const struct tw_run *run = config->run;
    const struct tw_engine_config engine = {
        .run = run,
        .layout = config->layout,
        .compute = config->compute,
        .sync_bytes = tw_merge_live_bytes(run, config->layout),
    };
    TW_TRY(tw_engine_create(&real->engine, &engine, err));
    TW_TRY(tw_batches_open(&real->batches, real->engine, &real->data, config->data_seed, err));
    *learner = (struct tw_learner){
        .self = real,
        .theta = real->engine->theta,
        .m = real->engine->m,
        .v = real->engine->v,
        .is_host_idle = real->engine->plan.is_on_gpu,
        .updates = &real->engine->updates,
        .tokens_per_step = (uint64_t)run->train.batch * run->model.context,
        .init = init,
        .step = step,
        .heldout = heldout,
        .sample = sample,
        .watch = watch,
        .drawn_losses = drawn_losses,
        .epoch_windows = epoch_windows,
        .has_all_data = has_all_data,
        .lr = lr,
        .pull = pull,
        .push = push,
    };
    fill_about(real, &learner->about);
    if (real->engine->plan.is_on_gpu)
        return tw_engine_vectors(real->engine, &learner->vectors, err);
    learner->vectors = tw_vectors_host(learner->theta, learner->m, learner->v);
    return TW_OK;
}

enum tw_status tw_learner_engine_open(struct tw_learner_engine *real, struct tw_learner *learner,
                                      const struct tw_learner_config *config,
                                      struct tw_error *err) {
    TW_TRY(tw_run_check_engine(config->run, err));
    memset(real, 0, sizeof(*real));
    real->run = config->run;
    real->data_path = config->data_path;
    if (config->data_path[0] != '\0')
        TW_TRY(tw_data_open(&real->data, config->data_path, config->run, err));
    const enum tw_status status = create_engine(real, learner, config, err);
    if (status != TW_OK) tw_learner_engine_close(real);
    return status;
}

void tw_learner_engine_close(struct tw_learner_engine *real) {
    tw_text_sampler_close(&real->sampler);
    tw_engine_destroy(real->engine);
    tw_batches_close(&real->batches);
    tw_data_close(&real->data);
    memset(real, 0, sizeof(*real));
}
