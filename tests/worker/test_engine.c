/* test_engine.c - gradients are right, steps are repeatable, damage is kept out. */
#include "worker/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/worker/model_double.h"

enum { SEED = 4711, BATCH = 7, CONTEXT = 10, VOCAB = 256, TOKENS = BATCH * (CONTEXT + 1) };

struct fixture {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine;
    uint32_t tokens[TOKENS];
    struct tw_rng rng;
};

static struct tw_engine *engine_of(const struct fixture *f) {
    const struct tw_engine_config config = {
        .run = &f->run,
        .layout = &f->layout,
        .compute = {.compute = TW_COMPUTE_FP32, .threads = 1, .micro_batch = 3}};
    struct tw_engine *engine;
    assert_int_equal(tw_engine_create(&engine, &config, NULL), TW_OK);
    tw_engine_init_params(&f->run, &f->layout, engine->theta);
    return engine;
}

/* What a test runs on: small odd sizes of every kind of model. */
enum variant { GPT2, GPT2_UNTIED, LLAMA, LLAMA_FULL, VARIANTS_COUNT };

static void shape(struct tw_run *run, enum variant variant) {
    run->model.layers = 2;
    run->model.width = 24;
    run->model.heads = 3;
    run->model.context = CONTEXT;
    run->model.vocab = VOCAB;
    run->train.batch = BATCH;
    if (variant == GPT2_UNTIED) run->model.is_tied = TW_NO;
    if (variant == GPT2_UNTIED) run->model.ffn = 40;
    if (variant < LLAMA) return;
    run->model.family = TW_FAMILY_LLAMA;
    run->model.norm_eps_millionths = 1;
    if (variant == LLAMA) {
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
    run->model.rope_factor_millionths = 8000000; /* with frequencies low, high and between */
    run->model.rope_original = 20;
    run->train.z_loss_millionths = 1000;
}

static int set_up_variant(void **state, enum variant variant) {
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    tw_run_defaults(&f->run);
    shape(&f->run, variant);
    tw_run_apply_preset(&f->run, TW_PRESET_STREAMING);
    struct tw_error err;
    if (tw_layout_init(&f->layout, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    tw_rng_seed(&f->rng, SEED);
    for (size_t i = 0; i < TOKENS; i++) f->tokens[i] = (uint32_t)tw_rng_below(&f->rng, VOCAB);
    f->engine = engine_of(f);
    *state = f;
    return 0;
}

static int set_up(void **state) {
    return set_up_variant(state, GPT2);
}

static int set_up_gpt2_untied(void **state) {
    return set_up_variant(state, GPT2_UNTIED);
}

static int set_up_llama(void **state) {
    return set_up_variant(state, LLAMA);
}

static int set_up_llama_full(void **state) {
    return set_up_variant(state, LLAMA_FULL);
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    tw_engine_destroy(f->engine);
    free(f);
    return 0;
}

/* Every tensor random, biases too, and large enough that no gradient hides in rounding. */
static void shake(struct fixture *f) {
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        for (uint64_t j = 0; j < (uint64_t)tensor->rows * tensor->cols; j++) {
            f->engine->theta[tensor->offset + j] += (float)(0.4 * (tw_rng_unit(&f->rng) - 0.5));
        }
    }
}

static void every_gradient_matches_finite_differences(void **state) {
    struct fixture *f = *state;
    struct tw_step_result result;
    shake(f);
    double *params = calloc(f->layout.elements, sizeof(*params));
    for (uint64_t i = 0; i < f->layout.elements; i++) params[i] = (double)f->engine->theta[i];
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.0f, &result, NULL), TW_OK);
    const uint32_t z_loss = f->run.train.z_loss_millionths;
    f->run.train.z_loss_millionths = 0; /* not part of the loss that is reported */
    const double loss = model_double_loss(&f->run, &f->layout, params, f->tokens, BATCH);
    assert_true(fabs((double)result.loss - loss) < 1e-5);
    f->run.train.z_loss_millionths = z_loss;
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
        for (unsigned sample = 0; sample < 12; sample++) {
            const uint64_t at = tensor->offset + tw_rng_below(&f->rng, count);
            const double kept = params[at], h = 1e-4;
            params[at] = kept + h;
            const double up = model_double_loss(&f->run, &f->layout, params, f->tokens, BATCH);
            params[at] = kept - h;
            const double down = model_double_loss(&f->run, &f->layout, params, f->tokens, BATCH);
            params[at] = kept;
            const double want = (up - down) / (2.0 * h), got = (double)f->engine->gradient[at];
            if (fabs(want - got) > 1e-6 + 1e-4 * fabs(want)) {
                fail_msg("%s[%llu]: gradient %.9g, finite difference %.9g", tensor->name,
                         (unsigned long long)(at - tensor->offset), got, want);
            }
        }
    }
    free(params);
}

static void held_out_loss_matches_the_double_model(void **state) {
    struct fixture *f = *state;
    shake(f);
    double *params = calloc(f->layout.elements, sizeof(*params)), loss;
    for (uint64_t i = 0; i < f->layout.elements; i++) params[i] = (double)f->engine->theta[i];
    for (uint32_t sequences = 1; sequences <= BATCH; sequences++) {
        const double want = model_double_loss(&f->run, &f->layout, params, f->tokens, sequences);
        assert_int_equal(
            tw_engine_loss(f->engine, f->engine->theta, f->tokens, sequences, &loss, NULL), TW_OK);
        assert_true(fabs(loss - want) < 1e-5);
    }
    free(params);
}

static void padding_stays_zero(void **state) {
    struct fixture *f = *state;
    struct tw_step_result result;
    bool *is_used = calloc(f->layout.elements, sizeof(*is_used));
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *t = &f->layout.tensors[i];
        memset(is_used + t->offset, 1, (size_t)t->rows * t->cols);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    }
    uint64_t padding = 0;
    for (uint64_t i = 0; i < f->layout.elements; i++) {
        if (is_used[i]) continue;
        padding++;
        assert_true(f->engine->theta[i] == 0.0f && f->engine->m[i] == 0.0f);
        assert_true(f->engine->v[i] == 0.0f && f->engine->gradient[i] == 0.0f);
    }
    assert_true(padding == f->layout.elements - f->layout.params);
    free(is_used);
}

static void equal_steps_give_equal_bits(void **state) {
    struct fixture *f = *state;
    struct tw_engine *other = engine_of(f);
    struct tw_step_result a, b;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &a, NULL), TW_OK);
        assert_int_equal(tw_engine_step(other, f->tokens, 0.01f, &b, NULL), TW_OK);
        assert_memory_equal(&a.loss, &b.loss, sizeof(a.loss));
        assert_memory_equal(&a.grad_norm, &b.grad_norm, sizeof(a.grad_norm));
    }
    const size_t bytes = f->layout.elements * sizeof(float);
    assert_memory_equal(f->engine->theta, other->theta, bytes);
    assert_memory_equal(f->engine->v, other->v, bytes);
    tw_engine_destroy(other);
}

static struct tw_engine *engine_with(struct fixture *f, const struct tw_compute_config *compute,
                                     enum tw_matmul_backend matmul) {
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = *compute, .matmul = matmul};
    struct tw_engine *engine;
    struct tw_error err;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    return engine;
}

static void expect_same_steps(struct fixture *f, struct tw_engine *a, struct tw_engine *b) {
    struct tw_step_result first, second;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tw_engine_step(a, f->tokens, 0.01f, &first, NULL), TW_OK);
        assert_int_equal(tw_engine_step(b, f->tokens, 0.01f, &second, NULL), TW_OK);
        assert_memory_equal(&first.loss, &second.loss, sizeof(first.loss));
        assert_memory_equal(&first.grad_norm, &second.grad_norm, sizeof(first.grad_norm));
    }
    const size_t bytes = f->layout.elements * sizeof(float);
    assert_memory_equal(a->gradient, b->gradient, bytes);
    assert_memory_equal(a->theta, b->theta, bytes);
    assert_memory_equal(a->v, b->v, bytes);
    tw_engine_destroy(a);
    tw_engine_destroy(b);
}

static const enum tw_compute computes[] = {TW_COMPUTE_FP32, TW_COMPUTE_BF16};

static bool has_bf16(void) {
    return tw_matmul_library_has(tw_matmul_library_get(TW_MATMUL_AUTO), TW_BF16);
}

static void threads_do_not_change_the_bits(void **state) {
    struct fixture *f = *state;
    shake(f);
    for (unsigned i = 0; i < 1u + has_bf16(); i++) {
        for (uint32_t threads = 2; threads <= 3; threads++) {
            const struct tw_compute_config one = {.compute = computes[i], .threads = 1};
            const struct tw_compute_config more = {.compute = computes[i], .threads = threads};
            expect_same_steps(f, engine_with(f, &one, TW_MATMUL_AUTO),
                              engine_with(f, &more, TW_MATMUL_AUTO));
        }
    }
}

static void recompute_does_not_change_the_bits(void **state) {
    struct fixture *f = *state;
    shake(f);
    for (unsigned i = 0; i < 1u + has_bf16(); i++) {
        const struct tw_compute_config kept = {
            .compute = computes[i], .recompute = TW_RECOMPUTE_OFF, .threads = 2};
        const struct tw_compute_config again = {
            .compute = computes[i], .recompute = TW_RECOMPUTE_ON, .threads = 2};
        struct tw_engine *a = engine_with(f, &kept, TW_MATMUL_AUTO);
        struct tw_engine *b = engine_with(f, &again, TW_MATMUL_AUTO);
        assert_true(b->plan.activations < a->plan.activations);
        expect_same_steps(f, a, b);
    }
}

static void a_batch_is_learnt_by_heart(void **state) {
    struct fixture *f = *state;
    struct tw_step_result first, last;
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &first, NULL), TW_OK);
    assert_true(fabs((double)first.loss - log(VOCAB)) < 0.2); /* knows nothing yet */
    for (int i = 0; i < 150; i++) {
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &last, NULL), TW_OK);
        assert_false(last.is_skipped);
    }
    print_message("loss %.3f -> %.3f\n", (double)first.loss, (double)last.loss);
    assert_true(last.loss < 0.3f);
    assert_int_equal(f->engine->updates, 151);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct tw_step_result result;
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    const uint64_t at = tw_layout_find(&f->layout, "h.1.mlp.c_fc.weight")->offset;
    const size_t bytes = f->layout.elements * sizeof(float);
    float *theta = malloc(bytes), *m = malloc(bytes), *v = malloc(bytes);
    f->engine->theta[at] = INFINITY;
    memcpy(theta, f->engine->theta, bytes);
    memcpy(m, f->engine->m, bytes);
    memcpy(v, f->engine->v, bytes);
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    assert_true(result.is_skipped);
    assert_int_equal(f->engine->skipped, 1);
    assert_int_equal(f->engine->updates, 1);
    assert_memory_equal(theta, f->engine->theta, bytes);
    assert_memory_equal(m, f->engine->m, bytes);
    assert_memory_equal(v, f->engine->v, bytes);
    free(theta), free(m), free(v);
}

static void a_token_outside_the_vocabulary_is_refused(void **state) {
    struct fixture *f = *state;
    struct tw_step_result result;
    struct tw_error err;
    double loss;
    float logits[VOCAB];
    f->tokens[TOKENS - 1] = VOCAB;
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &result, &err), TW_DATA);
    assert_non_null(strstr(err.message, "256"));
    assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, f->tokens, BATCH, &loss, NULL),
                     TW_DATA);
    assert_int_equal(
        tw_engine_logits(f->engine, f->engine->theta, f->tokens + TOKENS - 1, 1, logits, NULL),
        TW_DATA);
    assert_int_equal(f->engine->updates, 0);
}

static void clipping_bounds_the_step_but_not_its_direction(void **state) {
    struct fixture *f = *state;
    struct tw_step_result result;
    f->run.train.clip_millionths = 1000; /* 0.001: far below the norm */
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.0f, &result, NULL), TW_OK);
    assert_true(result.grad_norm > 0.001f);
    double squares = 0.0; /* of m = (1 - beta1) g clipped */
    for (uint64_t i = 0; i < f->layout.elements; i++) {
        squares += (double)f->engine->m[i] * (double)f->engine->m[i];
    }
    const double rest = 1.0 - f->run.train.beta1_millionths / 1e6;
    assert_true(fabs(sqrt(squares) / rest - 0.001) < 1e-6);
}

static void callers_arrays_are_used_in_place(void **state) {
    struct fixture *f = *state;
    float *theta = calloc(f->layout.elements, sizeof(float));
    struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.threads = 1}};
    struct tw_engine_plan all, less;
    assert_int_equal(tw_engine_plan_make(&all, &config, NULL), TW_OK);
    config.theta = theta;
    assert_int_equal(tw_engine_plan_make(&less, &config, NULL), TW_OK);
    assert_true(less.total == all.total - f->layout.elements * sizeof(float));
    struct tw_engine *engine;
    assert_int_equal(tw_engine_create(&engine, &config, NULL), TW_OK);
    assert_ptr_equal(engine->theta, theta);
    char text[96];
    tw_engine_describe(engine, text, sizeof(text));
    print_message("%s\n", text);
    assert_non_null(strstr(text, "1 thread,"));
    tw_engine_destroy(engine);
    free(theta);
}

/* FNV-1a over the bits: the value was written down once and holds on every machine. */
static void initial_weights_are_the_same_everywhere(void **state) {
    struct fixture *f = *state;
    uint64_t hash = 0xCBF29CE484222325u;
    double squares = 0.0;
    const struct tw_tensor *wte = tw_layout_find(&f->layout, "wte.weight");
    f->run.model.seed = 1;
    tw_engine_init_params(&f->run, &f->layout, f->engine->theta);
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *t = &f->layout.tensors[i];
        for (uint64_t j = 0; j < (uint64_t)t->rows * t->cols; j++) {
            uint32_t bits;
            memcpy(&bits, f->engine->theta + t->offset + j, sizeof(bits));
            for (unsigned k = 0; k < 4; k++) hash = (hash ^ (bits >> 8 * k & 255)) * 0x100000001B3u;
        }
    }
    for (uint64_t j = 0; j < VOCAB * 24; j++) {
        squares += pow((double)f->engine->theta[wte->offset + j], 2.0) / (VOCAB * 24);
    }
    print_message("hash 0x%016llX, deviation %.4f\n", (unsigned long long)hash, sqrt(squares));
    assert_true(fabs(sqrt(squares) - 0.02) < 0.002);
    assert_true(hash == 0x07A4CCF64FD25346u);
    f->run.model.seed = 2;
    const float kept = f->engine->theta[wte->offset];
    tw_engine_init_params(&f->run, &f->layout, f->engine->theta);
    assert_true(f->engine->theta[wte->offset] != kept);
}

int main(void) {
    print_message("seed %d\n", SEED);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define GRADIENTS(kind)                                                                            \
    {                                                                                              \
        "every_gradient_matches_finite_differences " #kind,                                        \
            every_gradient_matches_finite_differences, set_up_##kind, tear_down, NULL              \
    }
    const struct CMUnitTest tests[] = {
        TEST(every_gradient_matches_finite_differences),
        GRADIENTS(gpt2_untied),
        GRADIENTS(llama),
        GRADIENTS(llama_full),
        TEST(held_out_loss_matches_the_double_model),
        TEST(padding_stays_zero),
        TEST(equal_steps_give_equal_bits),
        TEST(threads_do_not_change_the_bits),
        TEST(recompute_does_not_change_the_bits),
        TEST(a_batch_is_learnt_by_heart),
        TEST(a_gradient_that_is_not_finite_changes_nothing),
        TEST(a_token_outside_the_vocabulary_is_refused),
        TEST(clipping_bounds_the_step_but_not_its_direction),
        TEST(callers_arrays_are_used_in_place),
        TEST(initial_weights_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
