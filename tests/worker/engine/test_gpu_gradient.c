/* test_gpu_gradient.c - a step's first pass on a device overwrites the gradient that the last step
 * left there. Built for the emulated device and for a card; skips itself without a card. */
#include "tests/test.h"

#include "kernels/cuda/runtime.h"
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

static const struct tw_compute_config fp32 = {.compute = TW_COMPUTE_FP32, .micro_batch = 3};

/* Returns an engine on the device with the weights of the fixture's engine. */
static struct tw_engine *on_gpu(const struct engine_fixture *f, struct tw_compute_config compute) {
    compute.device.kind = TW_DEVICE_CUDA;
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = compute};
    struct tw_engine *engine;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, f->layout.elements, &err), TW_OK);
    return engine;
}

static struct tw_step_result step(struct tw_engine *engine, const uint32_t *tokens) {
    struct tw_step_result result;
    if (tw_engine_step(engine, tokens, 0.0f, &result, &err) != TW_OK) fail_msg("%s", err.message);
    return result;
}

static void pull_gradient(struct tw_engine *engine) {
    const uint64_t n = engine->layout->elements;
    if (tw_engine_pull(engine, TW_ENGINE_GRADIENT, 0, n, &err) != TW_OK)
        fail_msg("%s", err.message);
}

/* Leaves in engine->gradient the gradient of a step whose passes all add to zeros. */
static void add_to_zeros(const struct engine_fixture *f, struct tw_engine *engine) {
    struct tw_gpu *gpu = engine->memory->gpu;
    const uint32_t context = f->run.model.context, batch = f->run.train.batch;
    tw_gpu_use(gpu, engine->theta);
    tw_cuda_zero(gpu->cuda, TW_CUDA_COMPUTE, gpu->gradient, f->layout.elements * sizeof(float));
    for (uint32_t done = 0; done < batch; done += gpu->sequences) {
        const uint32_t left = batch - done, taken = left < gpu->sequences ? left : gpu->sequences;
        const struct tw_gpu_pass pass = {.gpu = gpu,
                                         .sequences = taken,
                                         .context = context,
                                         .rows = taken * context,
                                         .is_masked = f->run.data.documents == TW_DOCUMENTS_MASKED,
                                         .is_learning = true,
                                         .scale = 1.0f / ((float)batch * (float)context),
                                         .z_loss = (float)(f->run.train.z_loss_millionths / 1e6)};
        tw_gpu_inputs_put(&pass, f->tokens + (size_t)done * (context + 1), context + 1, true);
        tw_gpu_forward(&pass);
        tw_gpu_head(&pass);
        tw_gpu_backward(&pass);
    }
    pull_gradient(engine);
}

/* Overwrites the device's gradient with NaN, but not the zeros between fragments. */
static void poison_gradient(const struct engine_fixture *f, struct tw_engine *engine) {
    struct tw_gpu *gpu = engine->memory->gpu;
    float *const garbage = malloc(f->layout.elements * sizeof(float));
    assert_non_null(garbage);
    memset(garbage, 0xff, f->layout.elements * sizeof(float));
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->gradient + tensor->offset, garbage,
                        (size_t)tensor->rows * tensor->cols * sizeof(float));
    }
    assert_int_equal(tw_cuda_finish(gpu->cuda, TW_CUDA_COMPUTE, &err), TW_OK);
    free(garbage);
}

static void compare_with_sums(const struct engine_fixture *f, struct tw_compute_config compute,
                              bool has_chunks) {
    enum { STEPS = 4 }; /* the last two are graphs */
    struct tw_engine *engine = on_gpu(f, compute);
    const size_t n = f->layout.elements;
    float *const want = malloc(n * sizeof(float));
    assert_non_null(want);
    if (has_chunks) engine->memory->gpu->arrays.logits_bytes /= 3;
    add_to_zeros(f, engine);
    memcpy(want, engine->gradient, n * sizeof(float));
    for (int i = 0; i < STEPS; i++) {
        poison_gradient(f, engine);
        assert_false(step(engine, f->tokens).is_skipped);
        pull_gradient(engine);
        for (size_t j = 0; j < n; j++) assert_true(engine->gradient[j] == want[j]);
    }
    free(want);
    tw_engine_destroy(engine);
}

/* A step's first pass overwrites the last step's gradient, and later passes add to it. The result
 * has the bits of sums that begin at zero. */
static void gradients_are_overwritten_then_added_to(void **state) {
    struct engine_fixture *f = *state;
    const struct tw_compute_config recomputed = {
        .compute = TW_COMPUTE_BF16, .recompute = TW_RECOMPUTE_ON, .micro_batch = 3};
    const struct tw_compute_config whole = {.compute = TW_COMPUTE_BF16};
    engine_shake(f);
    compare_with_sums(f, fp32, false);
    compare_with_sums(f, recomputed, true);
    compare_with_sums(f, whole, true);
}

/* Other parameters share memory with the gradient, and the padding of these is not zero. */
static void a_loss_of_other_parameters_leaves_nothing_in_the_gradient(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine *engine = on_gpu(f, fp32);
    const size_t n = f->layout.elements;
    float *const others = malloc(n * sizeof(float));
    double loss;
    assert_non_null(others);
    assert_true(f->layout.params < n);
    const float want = step(engine, f->tokens).grad_norm;
    for (size_t i = 0; i < n; i++) others[i] = 1000.0f;
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        memcpy(others + tensor->offset, f->engine->theta + tensor->offset,
               (size_t)tensor->rows * tensor->cols * sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tw_engine_loss(engine, others, f->tokens, 2, &loss, &err), TW_OK);
        assert_true(step(engine, f->tokens).grad_norm == want);
    }
    free(others);
    tw_engine_destroy(engine);
}

int main(void) {
    struct tw_error why = {.message = ""};
    struct tw_cuda_info info;
    if (tw_cuda_count(&why) == 0 || tw_cuda_info(&info, 0, &why) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device: %s%s\n", why.message, why.message[0] == '\0' ? info.reason : "");
        return 77;
    }
#define ROW(name, kind)                                                                            \
    { #name " " #kind, name, set_up_##kind, engine_tear_down, NULL }
    const struct CMUnitTest tests[] = {
        ROW(gradients_are_overwritten_then_added_to, 0),
        ROW(gradients_are_overwritten_then_added_to, 1),
        ROW(gradients_are_overwritten_then_added_to, 2),
        ROW(gradients_are_overwritten_then_added_to, 3),
        ROW(a_loss_of_other_parameters_leaves_nothing_in_the_gradient, 1),
        ROW(a_loss_of_other_parameters_leaves_nothing_in_the_gradient, 3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
