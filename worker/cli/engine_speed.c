/* thinwire-engine speed: measures the duration of a run's inner step on this machine, and plans the
 * memory of a worker. With --plan it only plans the memory, also for a run of the family `tensors`
 * (any model). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/cli/engine_verb.h"
#include "worker/learn/worker_weight.h"

enum { STEPS_MAX = 5 };
static const double WHOLE_S = 2; /* in seconds: a longer step is measured on part of the batch */
/* in seconds: limit for one sequence, the smallest batch that can be measured */
static const double LONGEST_S = 10;
static const double ENOUGH_S = 3;

struct speed {
    double step_s; /* duration of a step on the run's whole batch, in seconds */
    uint32_t steps, sequences;
    struct tw_engine_plan plan; /* memory plan for the whole batch */
    bool does_fit;
};

static enum tw_status plan_memory(struct engine_bench *bench, struct speed *speed,
                                  struct tw_error *err) {
    const struct tw_engine_config config = {
        .run = &bench->run,
        .layout = &bench->layout,
        .compute = bench->compute,
        .sync_bytes = tw_worker_sync_bytes(&bench->run, &bench->layout),
    };
    const enum tw_status status = tw_engine_plan_make(&speed->plan, &config, err);
    speed->does_fit = status == TW_OK;
    return status == TW_NOMEM ? TW_OK : status;
}

/* Chooses the number of sequences that a step would train on in WHOLE_S seconds at the measured
 * GEMM rate. */
static enum tw_status plan_batch(struct engine_bench *bench, const struct tw_engine_plan *plan,
                                 uint32_t *sequences, struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch, context = bench->run.model.context;
    double flops_s;
    TW_TRY(tw_engine_peak(plan, &flops_s, err));
    const double one_s = (double)tw_engine_flops_token(&bench->run) * context / flops_s;
    if (one_s > LONGEST_S)
        return tw_fail(err, TW_CONFIG, "one sequence of %" PRIu32 " tokens takes %.0f s and more",
                       context, one_s);
    const double count = WHOLE_S / one_s;
    *sequences = count < 1 ? 1 : count < batch ? (uint32_t)count : batch;
    return TW_OK;
}

/* Times a few steps after a warm-up and takes the fastest, because other processes may use the
 * processor. Each timed step trains on one part of a batch and updates the parameters. A real step
 * updates once for all of its parts, so the estimate is somewhat too slow. */
static enum tw_status time_steps(struct engine_bench *bench, const uint32_t *tokens,
                                 struct speed *speed, struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch;
    double least_s = 1e9;
    const double begin_s = engine_now_s();
    for (uint32_t i = 0; i <= STEPS_MAX; i++) {
        struct tw_step_result result;
        const double from_s = engine_now_s();
        TW_TRY(tw_engine_step(bench->engine, tokens, 0.0f, &result, err));
        const double took_s = engine_now_s() - from_s;
        if (i > 0 || took_s > ENOUGH_S) least_s = took_s < least_s ? took_s : least_s;
        speed->steps = i > 0 ? i : 1;
        if (least_s < 1e9 && engine_now_s() - begin_s > ENOUGH_S) break;
    }
    speed->sequences = batch;
    speed->step_s = least_s;
    return TW_OK;
}

static enum tw_status measure(struct engine_bench *bench, struct speed *speed,
                              struct tw_error *err) {
    const uint32_t batch = bench->run.train.batch;
    uint32_t sequences = 0;
    if (!speed->does_fit) return tw_fail(err, TW_NOMEM, "the model does not fit into the memory");
    TW_TRY(plan_batch(bench, &speed->plan, &sequences, err));
    bench->run.train.batch = sequences;
    const size_t count = (size_t)sequences * (bench->run.model.context + 1);
    uint32_t *const tokens = calloc(count, sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory for a batch of tokens");
    for (size_t i = 0; i < count; i++) tokens[i] = (uint32_t)(i * 7919 % bench->run.model.vocab);
    enum tw_status status = engine_open(bench, ENGINE_TRAIN, err);
    if (status == TW_OK) {
        tw_engine_init_params(&bench->run, &bench->layout, bench->engine->theta);
        status = tw_engine_push(bench->engine, TW_ENGINE_THETA, 0, bench->layout.elements, err);
    }
    if (status == TW_OK) status = time_steps(bench, tokens, speed, err);
    free(tokens);
    speed->step_s *= (double)batch / sequences;
    return status;
}

enum tw_exit engine_speed(struct engine_bench *bench) {
    struct speed speed = {0};
    struct tw_error err;
    char engine[128] = "";
    const uint32_t batch = bench->run.train.batch;
    const bool is_known = bench->run.model.family != TW_FAMILY_TENSORS;
    if (is_known && plan_memory(bench, &speed, &err) != TW_OK) return engine_fail(&err);
    if (!bench->options->is_plan && measure(bench, &speed, &err) != TW_OK) return engine_fail(&err);
    if (is_known) tw_engine_plan_describe(&speed.plan, engine, sizeof(engine));
    const struct tw_worker_weight weight =
        tw_worker_weigh(&bench->run, &bench->layout, is_known ? &speed.plan : NULL);
    (void)printf("{\"host_bytes\": %" PRIu64 ", \"device_bytes\": %" PRIu64
                 ", \"device_limit_bytes\": %" PRIu64 ", \"library_bytes\": %" PRIu64 ", ",
                 weight.host, weight.device, weight.device_limit, weight.library);
    (void)printf("\"step_s\": %.6g, \"steps\": %" PRIu32 ", \"sequences\": %" PRIu32
                 ", \"batch\": %" PRIu32 ", \"engine\": \"%s\", \"training_bytes\": %" PRIu64
                 ", \"limit_bytes\": %" PRIu64 ", \"fits\": %s}\n",
                 speed.step_s, speed.steps, speed.sequences, batch, engine, speed.plan.total,
                 speed.plan.limit, speed.does_fit ? "true" : "false");
    return TW_EXIT_OK;
}
