/* The engine on a device matches the engine on the CPU: gradients, loss curves, losses and logits
 * of every kind of model; copies of parameters and limits of memory. Built for the emulated device
 * and, with a CUDA toolkit, for a GPU. Skips itself if there is no GPU. */
#include "worker/engine/cuda/gpu.h"

#include <math.h>
#include <unistd.h>

#include "kernels/cuda/runtime.h"
#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"
#include "worker/engine/cuda/gpu_model.h"

static struct tw_error err;

static int set_up_0(void **state) {
    return engine_set_up(state, ENGINE_GPT2);
}
static int set_up_1(void **state) {
    return engine_set_up(state, ENGINE_GPT2_UNTIED);
}
static int set_up_2(void **state) {
    return engine_set_up(state, ENGINE_LLAMA);
}
static int set_up_3(void **state) {
    return engine_set_up(state, ENGINE_LLAMA_FULL);
}
static int set_up_64(void **state) {
    return engine_set_up_fast(state, ENGINE_GPT2_64);
}
static int set_up_128(void **state) {
    return engine_set_up_fast(state, ENGINE_LLAMA_128);
}
static int set_up_long(void **state) {
    return engine_set_up_long(state, ENGINE_LLAMA_FULL);
}

/* Returns an engine on the device with the weights of the fixture's engine. */
static struct tw_engine *on_gpu(const struct engine_fixture *f, struct tw_compute_config compute) {
    compute.device.kind = TW_DEVICE_CUDA;
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = compute};
    struct tw_engine *engine;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    assert_true(engine->plan.is_on_gpu);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, f->layout.elements, &err), TW_OK);
    return engine;
}

static const struct tw_compute_config fp32 = {.compute = TW_COMPUTE_FP32, .micro_batch = 3};

static void pull(struct tw_engine *engine, uint32_t arrays) {
    if (tw_engine_pull(engine, arrays, 0, engine->layout->elements, &err) != TW_OK)
        fail_msg("%s", err.message);
}

static void step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                 struct tw_step_result *result) {
    if (tw_engine_step(engine, tokens, lr, result, &err) != TW_OK) fail_msg("%s", err.message);
}

/* Returns |b - a| / |a|. */
static double apart(const float *a, const float *b, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += pow((double)a[i] - (double)b[i], 2.0);
        size += pow((double)a[i], 2.0);
    }
    return sqrt(difference / (size + 1e-30));
}

static void compare_gradients(struct engine_fixture *f, struct tw_compute_config compute,
                              double tolerance) {
    struct tw_engine *gpu = on_gpu(f, compute);
    struct tw_step_result want, got;
    step(f->engine, f->tokens, 0.0f, &want);
    step(gpu, f->tokens, 0.0f, &got);
    pull(gpu, TW_ENGINE_GRADIENT | TW_ENGINE_THETA);
    assert_true(fabs((double)want.loss - (double)got.loss) < tolerance);
    assert_true(fabs((double)want.grad_norm / (double)got.grad_norm - 1.0) < tolerance);
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        const double off =
            apart(f->engine->gradient + tensor->offset, gpu->gradient + tensor->offset,
                  (size_t)tensor->rows * tensor->cols);
        if (!(off < tolerance)) fail_msg("%s: off by %.3g", tensor->name, off);
    }
    /* A learning rate of 0 leaves theta unchanged, on the device and on the CPU. */
    assert_memory_equal(gpu->theta, f->engine->theta, f->layout.elements * sizeof(float));
    tw_engine_destroy(gpu);
}

static void gradients_are_those_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    struct tw_compute_config compute = fp32;
    engine_shake(f);
    compare_gradients(f, compute, 2e-5);
    compute.recompute = TW_RECOMPUTE_ON;
    compute.micro_batch = 0; /* one pass */
    compare_gradients(f, compute, 2e-5);
}

/* The device's memory is too small to keep the outputs of norms and activations. */
static void gradients_with_little_memory_are_those_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    struct tw_compute_config compute = fp32;
    struct tw_engine *gpu = on_gpu(f, compute);
    assert_true(gpu->plan.keeps_outputs);
    compute.memory_bytes = gpu->plan.total - 1;
    tw_engine_destroy(gpu);
    gpu = on_gpu(f, compute);
    assert_false(gpu->plan.keeps_outputs || gpu->plan.is_recomputed);
    tw_engine_destroy(gpu);
    engine_shake(f);
    compare_gradients(f, compute, 2e-5);
}

static void gradients_of_masked_documents_are_those_of_the_cpu(void **state) {
    engine_mask(*state, 4);
    gradients_are_those_of_the_cpu(state);
}

/* Logits for `rows` rows in float32, twice as many in bf16, are in memory at a time. */
static void hold_logits_of(struct tw_engine *engine, uint32_t rows) {
    struct tw_gpu_arrays *arrays = &engine->memory->gpu->arrays;
    const uint64_t bytes = (uint64_t)rows * arrays->logits_stride * sizeof(float);
    assert_true(bytes < arrays->logits_bytes);
    arrays->logits_bytes = bytes;
}

/* One pass of 360 rows: chunks of 100, 100, 100 and 60 rows; of 130, 130 and 100; of 256 and 104.
 */
static void logits_in_chunks_have_the_gradients_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    static const uint32_t rows[] = {100, 130, 300};
    struct tw_compute_config compute = fp32;
    compute.micro_batch = 0;
    engine_shake(f);
    struct tw_step_result want, got;
    double want_loss, got_loss;
    step(f->engine, f->tokens, 0.0f, &want);
    assert_int_equal(
        tw_engine_loss(f->engine, f->engine->theta, f->tokens, ENGINE_LONG_BATCH, &want_loss, &err),
        TW_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct tw_engine *gpu = on_gpu(f, compute);
        assert_int_equal(gpu->plan.micro_batch, ENGINE_LONG_BATCH);
        hold_logits_of(gpu, rows[i]);
        step(gpu, f->tokens, 0.0f, &got);
        pull(gpu, TW_ENGINE_GRADIENT);
        assert_true(apart(f->engine->gradient, gpu->gradient, f->layout.elements) < 2e-5);
        assert_true(fabs((double)want.loss - (double)got.loss) < 1e-5);
        assert_int_equal(
            tw_engine_loss(gpu, gpu->theta, f->tokens, ENGINE_LONG_BATCH, &got_loss, &err), TW_OK);
        assert_true(fabs(want_loss - got_loss) < 1e-5);
        tw_engine_destroy(gpu);
    }
}

/* The head of GPT-2 124M, 32768 rows in bf16: two chunks where there are 2 GiB for logits. */
static void chunks_of_logits_are_even_and_whole_tiles(void **state) {
    struct tw_gpu gpu = {.arrays = {.logits_stride = 50304}};
    gpu.arrays.logits_bytes = (uint64_t)2 << 30;
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_BF16, 32768), 16384);
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_F32, 32768), 8192);
    gpu.arrays.logits_bytes = (uint64_t)512 << 20;
    assert_int_equal(tw_gpu_head_rows(&gpu, TW_BF16), 5336);
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_BF16, 32768), 4864);
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_BF16, 5336), 5336); /* one chunk needs no tiles */
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_BF16, 5337), 2816);
    gpu.arrays.logits_bytes = (uint64_t)130 * 50304 * 2;
    assert_int_equal(tw_gpu_head_chunk(&gpu, TW_BF16, 360), 130); /* less than a whole tile */
}

/* A device of 80 GB has 2 GiB of logits, one of 8 GB the least share. */
static void large_devices_have_large_chunks_of_logits(void **state) {
    const struct engine_fixture *f = *state;
    struct tw_run run = f->run;
    struct tw_layout layout;
    run.data.tokenizer = TW_TOKENIZER_IDS;
    run.model.vocab = 50304;
    run.model.context = 1024;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    static const struct {
        uint64_t limit, logits;
    } devices[] = {{(uint64_t)8 << 30, (uint64_t)512 << 20},
                   {(uint64_t)48 << 30, (uint64_t)1536 << 20},
                   {(uint64_t)80 << 30, (uint64_t)2 << 30}};
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        const struct tw_engine_config config = {.run = &run, .layout = &layout};
        const struct tw_engine_plan plan = {
            .limit = devices[i].limit, .micro_batch = 32, .type = TW_BF16};
        struct tw_gpu gpu = {.engine = NULL};
        struct tw_model_bytes bytes;
        assert_int_equal(tw_gpu_map_open(&gpu, &config, &plan, &err), TW_OK);
        tw_gpu_arrays_measure(&bytes, &gpu);
        assert_true(bytes.logits <= devices[i].logits);
        assert_true(bytes.logits > devices[i].logits - 50304 * sizeof(float));
        tw_gpu_map_close(&gpu);
    }
}

static void bf16_gradients_are_near(void **state) {
    struct engine_fixture *f = *state;
    engine_shake(f);
    compare_gradients(f, (struct tw_compute_config){.compute = TW_COMPUTE_BF16, .micro_batch = 3},
                      0.05);
}

/* Heads of 64 and 128 use the fast attention kernels, but only in bf16. */
static void bf16_gradients_of_fast_heads_are_near(void **state) {
    struct engine_fixture *f = *state;
    struct tw_compute_config compute = {.compute = TW_COMPUTE_BF16};
    engine_shake(f);
    compare_gradients(f, compute, 0.05);
    compute.recompute = TW_RECOMPUTE_ON;
    engine_mask(f, 40);
    compare_gradients(f, compute, 0.05);
}

/* If there is no room for attention's outputs, attention is recomputed too. */
static void gradients_are_the_same_with_attention_run_again(void **state) {
    struct engine_fixture *f = *state;
    struct tw_compute_config compute = {.compute = TW_COMPUTE_BF16, .recompute = TW_RECOMPUTE_ON};
    engine_shake(f);
    struct tw_engine *kept = on_gpu(f, compute);
    assert_true(kept->plan.keeps_attention);
    compute.memory_bytes = kept->plan.total - 1;
    compute.micro_batch = kept->plan.micro_batch;
    struct tw_engine *again = on_gpu(f, compute);
    assert_false(again->plan.keeps_attention);
    struct tw_step_result want, got;
    step(kept, f->tokens, 0.0f, &want);
    step(again, f->tokens, 0.0f, &got);
    pull(kept, TW_ENGINE_GRADIENT);
    pull(again, TW_ENGINE_GRADIENT);
    const size_t n = f->layout.elements;
    assert_true(apart(kept->gradient, again->gradient, n) < 1e-6);
    tw_engine_destroy(kept);
    tw_engine_destroy(again);
}

/* Compares the loss curves of the device and the CPU. With passes of 3, 3 and 1 sequences, all
 * passes run as CUDA graphs after a few steps. */
static void compare_curves(struct engine_fixture *f, struct tw_compute_config compute, int steps,
                           double tolerance) {
    struct tw_engine *gpu = on_gpu(f, compute);
    struct tw_step_result want = {.loss = 0}, got = {.loss = 0};
    for (int i = 0; i < steps; i++) {
        uint32_t *first = &f->tokens[(size_t)i % ENGINE_TOKENS];
        *first = (*first + 1) % ENGINE_VOCAB; /* inputs change with every step */
        step(f->engine, f->tokens, 0.003f, &want);
        step(gpu, f->tokens, 0.003f, &got);
        if (!(fabs((double)want.loss - (double)got.loss) < tolerance))
            fail_msg("step %d: loss %.6f, on the CPU %.6f", i, (double)got.loss, (double)want.loss);
        assert_false(got.is_skipped);
    }
    print_message("loss %.4f, on the CPU %.4f\n", (double)got.loss, (double)want.loss);
    assert_int_equal(gpu->updates, steps);
    pull(gpu, TW_ENGINE_STATE);
    const size_t n = f->layout.elements;
    assert_true(apart(f->engine->theta, gpu->theta, n) < tolerance);
    assert_true(apart(f->engine->m, gpu->m, n) < 10 * tolerance);
    assert_true(apart(f->engine->v, gpu->v, n) < 10 * tolerance);
    tw_engine_destroy(gpu);
}

static void the_curve_is_that_of_the_cpu(void **state) {
    compare_curves(*state, fp32, 12, 1e-3);
}

static void the_curve_with_muon_is_that_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    f->run.train.optimizer = TW_OPTIMIZER_MUON;
    tw_engine_destroy(f->engine);
    f->engine = engine_make(f);
    compare_curves(f, fp32, 6, 3e-3);
}

static void a_curve_in_bf16_is_near(void **state) {
    compare_curves(*state, (struct tw_compute_config){.compute = TW_COMPUTE_BF16, .micro_batch = 3},
                   12, 0.05);
}

/* Consecutive engines share the cached plans, because the last bits of a result depend on the
 * chosen algorithms. */
static char plans[32];

static int plans_keep(void) {
    (void)strcpy(plans, "/tmp/tw-plans-XXXXXX");
    const int fd = mkstemp(plans);
    return fd < 0 || close(fd) != 0 ? -1 : setenv("TW_CUDA_PLANS", plans, 1);
}

static void equal_steps_give_equal_bits(void **state) {
    enum { STEPS = 4 };
    struct engine_fixture *f = *state;
    const size_t n = f->layout.elements;
    struct tw_step_result results[2][STEPS];
    float *const ends = malloc(4 * n * sizeof(float));
    assert_non_null(ends);
    for (unsigned i = 0; i < 2; i++) {
        struct tw_engine *const engine = on_gpu(f, fp32);
        for (int j = 0; j < STEPS; j++) step(engine, f->tokens, 0.01f, &results[i][j]);
        pull(engine, TW_ENGINE_STATE);
        memcpy(ends + 2 * i * n, engine->theta, n * sizeof(float));
        memcpy(ends + (2 * i + 1) * n, engine->v, n * sizeof(float));
        tw_engine_destroy(engine); /* saves the plans */
    }
    for (int j = 0; j < STEPS; j++) {
        assert_memory_equal(&results[0][j], &results[1][j],
                            sizeof(results[0][j].loss) + sizeof(results[0][j].grad_norm));
    }
    assert_memory_equal(ends, ends + 2 * n, 2 * n * sizeof(float));
    free(ends);
}

static void check_logits(const float *want, const float *got, size_t n) {
    for (size_t i = 0; i < n; i++) assert_true(fabs((double)want[i] - (double)got[i]) < 1e-4);
}

/* Reads logits of the live parameters token by token, like a text sample during training. */
static void read_on(struct engine_fixture *f, struct tw_engine *engine) {
    static float logits[ENGINE_VOCAB], again[ENGINE_VOCAB];
    struct tw_engine_cache *cache;
    assert_int_equal(tw_engine_cache_create(&cache, engine, engine->theta, &err), TW_OK);
    assert_int_equal(tw_engine_cache_extend(cache, f->tokens, 4, logits, &err), TW_OK);
    assert_int_equal(tw_engine_cache_extend(cache, f->tokens + 4, 1, logits, &err), TW_OK);
    tw_engine_cache_destroy(cache);
    assert_int_equal(tw_engine_logits(engine, engine->theta, f->tokens, 5, again, &err), TW_OK);
    check_logits(again, logits, ENGINE_VOCAB);
}

static void a_text_between_steps_changes_nothing(void **state) {
    enum { STEPS = 3 };
    struct engine_fixture *f = *state;
    const size_t n = f->layout.elements;
    float *const ends = malloc(2 * n * sizeof(float));
    assert_non_null(ends);
    for (unsigned i = 0; i < 2; i++) {
        struct tw_engine *const engine = on_gpu(f, fp32);
        struct tw_step_result result;
        for (int j = 0; j < STEPS; j++) {
            if (i == 1) read_on(f, engine);
            step(engine, f->tokens, 0.01f, &result);
        }
        pull(engine, TW_ENGINE_STATE);
        memcpy(ends + i * n, engine->theta, n * sizeof(float));
        tw_engine_destroy(engine);
    }
    assert_memory_equal(ends, ends + n, n * sizeof(float));
    free(ends);
}

/* Compares losses of the live parameters and of other parameters, with steps in between. */
static void losses_are_those_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    const size_t bytes = f->layout.elements * sizeof(float);
    engine_shake(f);
    for (unsigned type = 0; type < 2; type++) {
        const struct tw_compute_config compute = {
            .compute = type == 0 ? TW_COMPUTE_FP32 : TW_COMPUTE_BF16, .micro_batch = 3};
        const double tolerance = type == 0 ? 1e-5 : 0.03;
        struct tw_engine *gpu = on_gpu(f, compute);
        struct tw_step_result result;
        float *others = malloc(bytes);
        double want, got;
        for (size_t i = 0; i < f->layout.elements; i++) others[i] = 0.7f * f->engine->theta[i];
        for (uint32_t sequences = 1; sequences <= ENGINE_BATCH; sequences += 2) {
            const float *params[] = {f->engine->theta, others}, *here[] = {gpu->theta, others};
            for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(
                    tw_engine_loss(f->engine, params[i], f->tokens, sequences, &want, &err), TW_OK);
                assert_int_equal(tw_engine_loss(gpu, here[i], f->tokens, sequences, &got, &err),
                                 TW_OK);
                assert_true(fabs(want - got) < tolerance);
            }
            step(gpu, f->tokens, 0.0f, &result);
            assert_int_equal(
                tw_engine_loss(f->engine, params[0], f->tokens, ENGINE_BATCH, &want, &err), TW_OK);
            assert_true(fabs(want - (double)result.loss) < tolerance);
        }
        free(others);
        tw_engine_destroy(gpu);
    }
}

static struct tw_engine *reader(const struct engine_fixture *f, enum tw_device_kind kind,
                                bool has_cache) {
    const struct tw_engine_config config = {
        .run = &f->run,
        .layout = &f->layout,
        .is_inference = true,
        .has_cache = has_cache,
        .compute = {.device = {.kind = kind}, .compute = TW_COMPUTE_FP32, .threads = 1}};
    struct tw_engine *engine;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, f->layout.elements, &err), TW_OK);
    return engine;
}

static double loss_of(struct tw_engine *engine, const float *params, const uint32_t *tokens) {
    double loss;
    if (tw_engine_loss(engine, params, tokens, 2, &loss, &err) != TW_OK)
        fail_msg("%s", err.message);
    return loss;
}

/* Held parameters are uploaded once: later changes on the host show only after the release. Using
 * other parameters in between does not replace the held ones. */
static void held_parameters_are_read_once(void **state) {
    struct engine_fixture *f = *state;
    const uint64_t n = f->layout.elements;
    for (unsigned kind = 0; kind < 3; kind++) {
        const struct tw_compute_config compute = {
            .compute = kind == 1 ? TW_COMPUTE_BF16 : TW_COMPUTE_FP32, .micro_batch = 3};
        struct tw_engine *gpu = kind == 2 ? reader(f, TW_DEVICE_CUDA, false) : on_gpu(f, compute);
        struct tw_step_result result;
        float *others = malloc(n * sizeof(float));
        for (size_t i = 0; i < n; i++) others[i] = 0.7f * f->engine->theta[i];
        const double live = loss_of(gpu, gpu->theta, f->tokens);
        const double want = loss_of(gpu, others, f->tokens);
        assert_true(fabs(live - want) > 1e-6);
        tw_engine_hold(gpu, others);
        assert_true(loss_of(gpu, others, f->tokens) == want);
        for (size_t i = 0; i < n; i++) others[i] *= 0.5f;
        assert_true(loss_of(gpu, others, f->tokens) == want);
        /* the gradient overwrites the device's copy of `others` */
        if (kind < 2) step(gpu, f->tokens, 0.0f, &result);
        assert_true(loss_of(gpu, gpu->theta, f->tokens) == live);
        const double half = loss_of(gpu, others, f->tokens);
        assert_true(half != want);
        for (size_t i = 0; i < n; i++) others[i] *= 2.0f;
        assert_true(loss_of(gpu, others, f->tokens) == half);
        tw_engine_hold(gpu, NULL);
        assert_true(loss_of(gpu, others, f->tokens) == want);
        free(others);
        tw_engine_destroy(gpu);
    }
}

static void logits_are_those_of_the_cpu(void **state) {
    struct engine_fixture *f = *state;
    engine_shake(f);
    struct tw_engine *cpu = reader(f, TW_DEVICE_CPU, true), *gpu = reader(f, TW_DEVICE_CUDA, true);
    struct tw_engine_cache *of_cpu, *of_gpu;
    enum { ALL = ENGINE_CONTEXT * ENGINE_VOCAB };
    float *want = malloc(2 * ALL * sizeof(float)), *got = want + ALL;
    assert_int_equal(tw_engine_logits_all(cpu, cpu->theta, f->tokens, ENGINE_CONTEXT, want, &err),
                     TW_OK);
    assert_int_equal(tw_engine_logits_all(gpu, gpu->theta, f->tokens, ENGINE_CONTEXT, got, &err),
                     TW_OK);
    check_logits(want, got, ALL);
    assert_int_equal(tw_engine_cache_create(&of_cpu, cpu, cpu->theta, &err), TW_OK);
    assert_int_equal(tw_engine_cache_create(&of_gpu, gpu, gpu->theta, &err), TW_OK);
    static const uint32_t counts[] = {4, 1, 1, 3, 1};
    for (unsigned round = 0; round < 2; round++) {
        for (size_t i = 0, at = 0; i < sizeof(counts) / sizeof(counts[0]); at += counts[i++]) {
            const uint32_t *next = f->tokens + at + round;
            assert_int_equal(tw_engine_cache_extend(of_cpu, next, counts[i], want, &err), TW_OK);
            assert_int_equal(tw_engine_cache_extend(of_gpu, next, counts[i], got, &err), TW_OK);
            check_logits(want, got, ENGINE_VOCAB);
        }
        assert_int_equal(tw_engine_cache_extend(of_gpu, f->tokens, 1, got, &err), TW_LIMIT);
        /* Other parameters are used in between; the caches must then work as before. */
        assert_int_equal(tw_engine_logits(gpu, f->engine->m, f->tokens, 3, got, &err), TW_OK);
        tw_engine_cache_clear(of_cpu);
        tw_engine_cache_clear(of_gpu);
    }
    tw_engine_cache_destroy(of_cpu);
    tw_engine_cache_destroy(of_gpu);
    tw_engine_destroy(cpu);
    tw_engine_destroy(gpu);
    free(want);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state) {
    struct engine_fixture *f = *state;
    const size_t bytes = f->layout.elements * sizeof(float);
    struct tw_step_result result;
    struct tw_engine *gpu = on_gpu(f, fp32);
    step(gpu, f->tokens, 0.01f, &result);
    pull(gpu, TW_ENGINE_STATE);
    const uint64_t at = tw_layout_find(&f->layout, "h.1.mlp.c_fc.weight")->offset;
    gpu->theta[at] = INFINITY;
    assert_int_equal(tw_engine_push(gpu, TW_ENGINE_THETA, at, 1, &err), TW_OK);
    float *before = malloc(3 * bytes);
    memcpy(before, gpu->theta, bytes);
    memcpy(before + f->layout.elements, gpu->m, bytes);
    memcpy(before + 2 * f->layout.elements, gpu->v, bytes);
    step(gpu, f->tokens, 0.01f, &result);
    assert_true(result.is_skipped);
    assert_int_equal(gpu->skipped, 1);
    assert_int_equal(gpu->updates, 1);
    memset(gpu->theta, 0, bytes);
    pull(gpu, TW_ENGINE_STATE);
    assert_memory_equal(before, gpu->theta, bytes);
    assert_memory_equal(before + f->layout.elements, gpu->m, bytes);
    assert_memory_equal(before + 2 * f->layout.elements, gpu->v, bytes);
    free(before);
    tw_engine_destroy(gpu);
}

/* In bf16, the copy that matrix products read is updated too. */
static void pushed_parameters_alone_change(void **state) {
    struct engine_fixture *f = *state;
    const uint64_t half = f->layout.elements / 2;
    for (unsigned type = 0; type < 2; type++) {
        const struct tw_compute_config compute = {
            .compute = type == 0 ? TW_COMPUTE_FP32 : TW_COMPUTE_BF16, .micro_batch = 3};
        struct tw_engine *gpu = on_gpu(f, compute), *fresh;
        struct tw_step_result got, want;
        step(gpu, f->tokens, 0.0f, &got);
        float *kept = malloc(f->layout.elements * sizeof(float));
        memcpy(kept, f->engine->theta, f->layout.elements * sizeof(float));
        for (uint64_t i = 0; i < f->layout.elements; i++) {
            gpu->theta[i] *= 1.5f;
            if (i < half) f->engine->theta[i] *= 1.5f;
        }
        assert_int_equal(tw_engine_push(gpu, TW_ENGINE_THETA, 0, half, &err), TW_OK);
        step(gpu, f->tokens, 0.0f, &got);
        memset(gpu->theta, 0, f->layout.elements * sizeof(float));
        assert_int_equal(tw_engine_pull(gpu, TW_ENGINE_THETA, 1, half, &err), TW_OK);
        assert_true(gpu->theta[0] == 0.0f && gpu->theta[half + 1] == 0.0f);
        assert_memory_equal(gpu->theta + 1, f->engine->theta + 1, (half - 1) * sizeof(float));
        tw_engine_destroy(gpu); /* saves the plans */
        fresh = on_gpu(f, compute);
        step(fresh, f->tokens, 0.0f, &want);
        assert_true(got.loss == want.loss && got.grad_norm == want.grad_norm);
        memcpy(f->engine->theta, kept, f->layout.elements * sizeof(float));
        free(kept);
        tw_engine_destroy(fresh);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void the_plan_matches_the_engine(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine *gpu = on_gpu(f, fp32);
    char text[128];
    const uint64_t array = f->layout.elements * sizeof(float);
    tw_engine_describe(gpu, text, sizeof(text));
    print_message("%s\n", text);
    assert_memory_equal(text, "cuda:0, ", 8);
    assert_int_equal(gpu->plan.parameters, array);
    assert_int_equal(gpu->plan.gradients, array);
    assert_int_equal(gpu->plan.optimizer, 2 * array);
    assert_int_equal(gpu->plan.mirrors, 3 * array);
    assert_true(gpu->plan.is_pinned);
    assert_int_equal(gpu->plan.micro_batch, 3);
    assert_true(gpu->plan.total <= gpu->plan.limit);
    tw_engine_destroy(gpu);
}

static void too_large_model_is_refused_with_numbers(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {
        .run = &f->run,
        .layout = &f->layout,
        .compute = {.device = {.kind = TW_DEVICE_CUDA}, .compute = TW_COMPUTE_FP32}};
    struct tw_engine_plan whole, less;
    struct tw_engine *engine;
    f->run.model.context = ENGINE_LONG_CONTEXT;
    f->run.model.layers = 2;
    assert_int_equal(tw_engine_plan_make(&whole, &config, &err), TW_OK);
    assert_int_equal(whole.micro_batch, ENGINE_BATCH);
    assert_false(whole.is_recomputed);
    config.compute.memory_bytes = whole.total - whole.activations / 2;
    assert_int_equal(tw_engine_plan_make(&less, &config, &err), TW_OK);
    assert_true(less.micro_batch < ENGINE_BATCH && less.total <= config.compute.memory_bytes);
    config.compute.recompute = TW_RECOMPUTE_ON;
    config.compute.memory_bytes = 0;
    assert_int_equal(tw_engine_plan_make(&less, &config, &err), TW_OK);
    assert_true(less.total < whole.total && less.keeps_attention);
    config.compute.recompute = TW_RECOMPUTE_AUTO;
    config.compute.memory_bytes = less.total;
    config.compute.micro_batch = ENGINE_BATCH;
    assert_int_equal(tw_engine_plan_make(&less, &config, &err), TW_OK);
    assert_true(less.is_recomputed && less.keeps_attention && less.micro_batch == ENGINE_BATCH);
    config.compute.memory_bytes = less.total - 1; /* too little for attention's outputs */
    assert_int_equal(tw_engine_plan_make(&less, &config, &err), TW_OK);
    assert_true(less.is_recomputed && !less.keeps_attention && less.micro_batch == ENGINE_BATCH);
    config.compute.recompute = TW_RECOMPUTE_OFF;
    assert_int_equal(tw_engine_plan_make(&less, &config, &err), TW_NOMEM);
    assert_non_null(strstr(err.message, "activations"));
    assert_non_null(strstr(err.message, "recompute = on"));
    assert_int_equal(tw_engine_create(&engine, &config, &err), TW_NOMEM);
}

static void a_device_that_is_not_there_is_named(void **state) {
    struct engine_fixture *f = *state;
    const struct tw_engine_config config = {
        .run = &f->run,
        .layout = &f->layout,
        .compute = {.device = {.kind = TW_DEVICE_CUDA, .ordinal = 63}}};
    struct tw_engine_plan plan;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_DEVICE);
    assert_non_null(strstr(err.message, "cuda:63"));
}

static void the_environment_chooses_for_auto(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {.run = &f->run, .layout = &f->layout};
    struct tw_engine_plan plan;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_false(plan.is_on_gpu); /* the device kind is not AUTO */
    config.compute.device.kind = TW_DEVICE_AUTO;
    assert_int_equal(setenv("TW_DEVICE", "cpu", 1), 0);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_false(plan.is_on_gpu);
    assert_int_equal(setenv("TW_DEVICE", "cuda", 1), 0);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_true(plan.is_on_gpu);
    assert_int_equal(setenv("TW_DEVICE", "tpu", 1), 0);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "TW_DEVICE"));
    assert_int_equal(unsetenv("TW_DEVICE"), 0);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_true(plan.is_on_gpu);
}

static void a_step_that_is_given_up_changes_nothing(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine *engine = on_gpu(f, fp32), *twin = on_gpu(f, fp32);
    engine_stop_often(f, engine, twin, 4);
    tw_engine_destroy(engine);
    tw_engine_destroy(twin);
}

static void products_alone_have_a_speed(void **state) {
    struct engine_fixture *f = *state;
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.device = {.kind = TW_DEVICE_CUDA}}};
    struct tw_engine_plan plan;
    double flops_s = 0;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_int_equal(tw_engine_peak(&plan, &flops_s, &err), TW_OK);
    assert_true(flops_s > 0 && isfinite(flops_s));
}

int main(void) {
    struct tw_error why = {.message = ""};
    struct tw_cuda_info info;
    if (tw_cuda_count(&why) == 0 || tw_cuda_info(&info, 0, &why) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device: %s%s\n", why.message, why.message[0] == '\0' ? info.reason : "");
        return 77;
    }
    (void)unsetenv("TW_DEVICE");
    if (plans_keep() != 0) return 1;
#define ROW(name, kind)                                                                            \
    { #name " " #kind, name, set_up_##kind, engine_tear_down, NULL }
#define EACH(name) ROW(name, 0), ROW(name, 1), ROW(name, 2), ROW(name, 3)
    const struct CMUnitTest tests[] = {
        EACH(gradients_are_those_of_the_cpu),
        EACH(gradients_with_little_memory_are_those_of_the_cpu),
        EACH(gradients_of_masked_documents_are_those_of_the_cpu),
        ROW(gradients_are_those_of_the_cpu, long),
        ROW(gradients_of_masked_documents_are_those_of_the_cpu, long),
        ROW(logits_in_chunks_have_the_gradients_of_the_cpu, long),
        ROW(chunks_of_logits_are_even_and_whole_tiles, 0),
        ROW(large_devices_have_large_chunks_of_logits, 0),
        EACH(bf16_gradients_are_near),
        ROW(gradients_are_those_of_the_cpu, 64),
        ROW(gradients_are_those_of_the_cpu, 128),
        ROW(bf16_gradients_of_fast_heads_are_near, 64),
        ROW(bf16_gradients_of_fast_heads_are_near, 128),
        ROW(gradients_are_the_same_with_attention_run_again, 128),
        ROW(the_curve_is_that_of_the_cpu, 0),
        ROW(the_curve_is_that_of_the_cpu, 3),
        ROW(the_curve_with_muon_is_that_of_the_cpu, 0),
        ROW(the_curve_with_muon_is_that_of_the_cpu, 3),
        ROW(a_curve_in_bf16_is_near, 1),
        ROW(a_curve_in_bf16_is_near, 3),
        ROW(equal_steps_give_equal_bits, 3),
        ROW(a_text_between_steps_changes_nothing, 0),
        ROW(a_text_between_steps_changes_nothing, 3),
        EACH(losses_are_those_of_the_cpu),
        ROW(held_parameters_are_read_once, 0),
        ROW(held_parameters_are_read_once, 2),
        EACH(logits_are_those_of_the_cpu),
        ROW(a_gradient_that_is_not_finite_changes_nothing, 0),
        ROW(a_step_that_is_given_up_changes_nothing, 0),
        ROW(pushed_parameters_alone_change, 2),
        ROW(the_plan_matches_the_engine, 0),
        ROW(too_large_model_is_refused_with_numbers, 0),
        ROW(a_device_that_is_not_there_is_named, 0),
        ROW(the_environment_chooses_for_auto, 0),
        ROW(products_alone_have_a_speed, 0),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(plans);
    return failed;
}
