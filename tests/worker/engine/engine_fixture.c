#include "tests/worker/engine/engine_fixture.h"
#include "tests/test.h"

#include <pthread.h>
#include <stdatomic.h>

static void shape_fast(struct tw_run *run, enum engine_variant variant) {
    run->model.heads = 2;
    run->model.width = 128;
    if (variant != ENGINE_LLAMA_128) return;
    run->model.family = TW_FAMILY_LLAMA;
    run->model.norm_eps_millionths = 1;
    run->model.width = 256;
    run->model.kv_heads = 1;
    run->model.qk_norm = TW_YES;
}

static void shape(struct tw_run *run, enum engine_variant variant) {
    run->model.layers = 2;
    run->model.width = 24;
    run->model.heads = 3;
    run->model.vocab = ENGINE_VOCAB;
    if (variant >= ENGINE_VARIANTS) {
        shape_fast(run, variant);
        return;
    }
    if (variant == ENGINE_GPT2_UNTIED) run->model.is_tied = TW_NO;
    if (variant == ENGINE_GPT2_UNTIED) run->model.ffn = 40;
    if (variant < ENGINE_LLAMA) return;
    run->model.family = TW_FAMILY_LLAMA;
    run->model.norm_eps_millionths = 1;
    if (variant == ENGINE_LLAMA) {
        run->model.kv_heads = 1;
        return;
    }
    run->model.heads = 4;
    run->model.kv_heads = 2;
    run->model.head_size = 10;
    run->model.ffn = 36;
    run->model.is_tied = TW_NO;
    run->model.qk_norm = TW_YES;
    run->model.qkv_bias = TW_YES;
    run->model.rope_theta = 50;
    /* frequencies below, in and above the scaled range */
    run->model.rope_factor_millionths = 8000000;
    run->model.rope_original = 20;
    run->train.z_loss_millionths = 1000;
}

static int set_up(void **state, enum engine_variant variant, uint32_t batch, uint32_t context) {
    struct engine_fixture *f = calloc(1, sizeof(*f));
    struct tw_error err;
    assert_non_null(f);
    tw_run_defaults(&f->run);
    shape(&f->run, variant);
    f->run.train.batch = batch;
    f->run.model.context = context;
    tw_run_apply_preset(&f->run, TW_PRESET_STREAMING);
    if (tw_layout_init(&f->layout, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    tw_rng_seed(&f->rng, ENGINE_SEED);
    for (size_t i = 0; i < ENGINE_LONG_TOKENS; i++)
        f->tokens[i] = (uint32_t)tw_rng_below(&f->rng, ENGINE_VOCAB);
    f->engine = engine_make(f);
    *state = f;
    return 0;
}

int engine_set_up(void **state, enum engine_variant variant) {
    return set_up(state, variant, ENGINE_BATCH, ENGINE_CONTEXT);
}

int engine_set_up_long(void **state, enum engine_variant variant) {
    return set_up(state, variant, ENGINE_LONG_BATCH, ENGINE_LONG_CONTEXT);
}

int engine_set_up_many(void **state, enum engine_variant variant) {
    (void)set_up(state, variant, ENGINE_MANY_BATCH, ENGINE_LONG_CONTEXT);
    struct engine_fixture *f = *state;
    for (size_t i = ENGINE_LONG_TOKENS; i < ENGINE_MANY_TOKENS; i++)
        f->tokens[i] = (uint32_t)tw_rng_below(&f->rng, ENGINE_VOCAB);
    return 0;
}

int engine_set_up_fast(void **state, enum engine_variant variant) {
    return set_up(state, variant, ENGINE_FAST_BATCH, ENGINE_FAST_CONTEXT);
}

int engine_tear_down(void **state) {
    struct engine_fixture *f = *state;
    tw_engine_destroy(f->engine);
    free(f);
    return 0;
}

struct tw_engine *engine_make(const struct engine_fixture *f) {
    const struct tw_engine_config config = {.run = &f->run,
                                            .layout = &f->layout,
                                            .compute = {.device = {.kind = TW_DEVICE_CPU},
                                                        .compute = TW_COMPUTE_FP32,
                                                        .threads = 1,
                                                        .micro_batch = 3}};
    struct tw_engine *engine;
    struct tw_error err;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    tw_engine_init_params(&f->run, &f->layout, engine->theta);
    return engine;
}

struct tw_engine *engine_with(const struct engine_fixture *f,
                              const struct tw_compute_config *compute,
                              enum tw_matmul_backend matmul) {
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = *compute, .matmul = matmul};
    struct tw_engine *engine;
    struct tw_error err;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    return engine;
}

void engine_mask(struct engine_fixture *f, uint32_t length) {
    f->run.data.documents = TW_DOCUMENTS_MASKED;
    f->run.data.separator = 7;
    for (size_t i = 0; i < ENGINE_LONG_TOKENS; i++)
        if (tw_rng_below(&f->rng, length) == 0) f->tokens[i] = f->run.data.separator;
}

void engine_shake(struct engine_fixture *f) {
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        for (uint64_t j = 0; j < (uint64_t)tensor->rows * tensor->cols; j++)
            f->engine->theta[tensor->offset + j] += (float)(0.4 * (tw_rng_unit(&f->rng) - 0.5));
    }
}

/* ---- steps that are given up -------------------------------------------------------------------
 */

struct stopper {
    _Atomic bool stop, is_begun;
    uint32_t turns; /* iterations of an empty loop before the stop */
};

static void *stop_later(void *argument) {
    struct stopper *stopper = argument;
    while (!atomic_load(&stopper->is_begun)) continue;
    for (volatile uint32_t i = 0; i < stopper->turns; i++) continue;
    atomic_store(&stopper->stop, true);
    return NULL;
}

/* Runs a step that another thread stops after `turns` empty iterations. Returns TW_AGAIN if the
 * step was abandoned. */
static enum tw_status step_stopped(const struct engine_fixture *f, struct tw_engine *engine,
                                   uint32_t turns) {
    struct stopper stopper = {.turns = turns};
    struct tw_step_result result;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, stop_later, &stopper), 0);
    tw_engine_watch(engine, &stopper.stop);
    atomic_store(&stopper.is_begun, true);
    const enum tw_status status = tw_engine_step(engine, f->tokens, 0.01f, &result, NULL);
    assert_int_equal(pthread_join(thread, NULL), 0);
    double loss = 0;
    assert_int_equal(tw_engine_loss(engine, engine->theta, f->tokens, ENGINE_BATCH, &loss, NULL),
                     TW_AGAIN);
    tw_engine_watch(engine, NULL);
    return status;
}

static void assert_same(struct tw_engine *a, struct tw_engine *b) {
    const size_t bytes = (size_t)a->layout->elements * sizeof(float);
    assert_int_equal(tw_engine_pull(a, TW_ENGINE_STATE, 0, a->layout->elements, NULL), TW_OK);
    assert_int_equal(tw_engine_pull(b, TW_ENGINE_STATE, 0, b->layout->elements, NULL), TW_OK);
    assert_int_equal(a->updates, b->updates);
    assert_memory_equal(a->theta, b->theta, bytes);
    assert_memory_equal(a->m, b->m, bytes);
    assert_memory_equal(a->v, b->v, bytes);
}

void engine_stop_often(const struct engine_fixture *f, struct tw_engine *engine,
                       struct tw_engine *twin, uint32_t count) {
    enum { COMPLETED = 2 };
    uint32_t given_up = 0, completed = 0, turns = 0; /* the stop is later each time */
    while (given_up < count || completed < COMPLETED) {
        struct tw_step_result result;
        const enum tw_status status = step_stopped(f, engine, turns);
        turns += (uint32_t)(4 * (uint64_t)turns / count) + 1000;
        if (status == TW_AGAIN) {
            given_up++;
        } else {
            assert_int_equal(status, TW_OK);
            assert_int_equal(tw_engine_step(twin, f->tokens, 0.01f, &result, NULL), TW_OK);
            completed++;
            if (completed >= COMPLETED) turns = 0;
        }
        assert_same(engine, twin);
    }
}
