/* test_engine.c - gradients are correct, steps are repeatable, damaged inputs are refused. */
#include "worker/engine/engine.h"

#include <math.h>

#include "base/rng.h"
#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"
#include "tests/worker/engine/model_double.h"

enum { SEED = ENGINE_SEED, BATCH = ENGINE_BATCH, VOCAB = ENGINE_VOCAB, TOKENS = ENGINE_TOKENS };

static int set_up(void **state) {
    return engine_set_up(state, ENGINE_GPT2);
}

static int set_up_gpt2_untied(void **state) {
    return engine_set_up(state, ENGINE_GPT2_UNTIED);
}

static int set_up_llama(void **state) {
    return engine_set_up(state, ENGINE_LLAMA);
}

static int set_up_llama_full(void **state) {
    return engine_set_up(state, ENGINE_LLAMA_FULL);
}

static void every_gradient_matches_finite_differences(void **state) {
    struct engine_fixture *f = *state;
    struct tw_step_result result;
    engine_shake(f);
    double *params = calloc(f->layout.elements, sizeof(*params));
    for (uint64_t i = 0; i < f->layout.elements; i++) params[i] = (double)f->engine->theta[i];
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.0f, &result, NULL), TW_OK);
    const uint32_t z_loss = f->run.train.z_loss_millionths;
    f->run.train.z_loss_millionths = 0; /* the reported loss is without z-loss */
    const double loss = model_double_loss(&f->run, &f->layout, params, f->tokens, BATCH);
    assert_true(fabs((double)result.loss - loss) < 1e-5);
    f->run.train.z_loss_millionths = z_loss;
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
        for (unsigned sample = 0; sample < 4; sample++) {
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

static void gradients_of_masked_documents_match_finite_differences(void **state) {
    engine_mask(*state, 4);
    every_gradient_matches_finite_differences(state);
}

static void held_out_loss_matches_the_double_model(void **state) {
    struct engine_fixture *f = *state;
    engine_shake(f);
    double *params = calloc(f->layout.elements, sizeof(*params)), loss;
    for (uint64_t i = 0; i < f->layout.elements; i++) params[i] = (double)f->engine->theta[i];
    for (uint32_t i = 0; i < 2 * BATCH; i++) {
        const uint32_t sequences = i % BATCH + 1;
        if (i == BATCH) engine_mask(f, 4);
        const double want = model_double_loss(&f->run, &f->layout, params, f->tokens, sequences);
        assert_int_equal(
            tw_engine_loss(f->engine, f->engine->theta, f->tokens, sequences, &loss, NULL), TW_OK);
        assert_true(fabs(loss - want) < 1e-5);
    }
    free(params);
}

static double loss_of(const struct engine_fixture *f, const float *params) {
    double loss;
    assert_int_equal(tw_engine_loss(f->engine, params, f->tokens, BATCH, &loss, NULL), TW_OK);
    return loss;
}

/* Losses of held parameters, losses of other parameters and steps do not affect each other. */
static void held_parameters_are_not_mistaken_for_others(void **state) {
    struct engine_fixture *f = *state;
    struct tw_step_result result;
    float *others = malloc(f->layout.elements * sizeof(float));
    for (uint64_t i = 0; i < f->layout.elements; i++) others[i] = 0.7f * f->engine->theta[i];
    const double live = loss_of(f, f->engine->theta), want = loss_of(f, others);
    assert_true(live != want);
    tw_engine_hold(f->engine, others);
    for (int i = 0; i < 2; i++) {
        assert_true(loss_of(f, others) == want);
        assert_true(loss_of(f, others) == want);
        assert_true(loss_of(f, f->engine->theta) == live);
    }
    assert_true(loss_of(f, others) == want);
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    assert_true(fabs((double)result.loss - live) < 1e-6);
    assert_true(loss_of(f, others) == want);
    tw_engine_hold(f->engine, NULL);
    assert_true(loss_of(f, f->engine->theta) != live);
    free(others);
}

static void padding_stays_zero(void **state) {
    struct engine_fixture *f = *state;
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
    struct engine_fixture *f = *state;
    struct tw_engine *other = engine_make(f);
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

static void a_batch_is_learnt_by_heart(void **state) {
    struct engine_fixture *f = *state;
    struct tw_step_result first, last;
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &first, NULL), TW_OK);
    assert_true(fabs((double)first.loss - log(VOCAB)) < 0.2); /* nothing learnt yet */
    for (int i = 0; i < 150; i++) {
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &last, NULL), TW_OK);
        assert_false(last.is_skipped);
    }
    print_message("loss %.3f -> %.3f\n", (double)first.loss, (double)last.loss);
    assert_true(last.loss < 0.3f);
    assert_int_equal(f->engine->updates, 151);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state) {
    struct engine_fixture *f = *state;
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

static void a_step_that_is_given_up_changes_nothing(void **state) {
    struct engine_fixture *f = *state;
    const struct tw_compute_config compute = {
        .compute = TW_COMPUTE_FP32, .threads = 2, .micro_batch = 3};
    struct tw_engine *engine = engine_with(f, &compute, TW_MATMUL_AUTO);
    struct tw_engine *twin = engine_with(f, &compute, TW_MATMUL_AUTO);
    engine_stop_often(f, engine, twin, 40);
    tw_engine_destroy(engine);
    tw_engine_destroy(twin);
}

static void a_token_outside_the_vocabulary_is_refused(void **state) {
    struct engine_fixture *f = *state;
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
    struct engine_fixture *f = *state;
    struct tw_step_result result;
    f->run.train.clip_millionths = 1000; /* clips at 0.001, far below the gradient's norm */
    assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.0f, &result, NULL), TW_OK);
    assert_true(result.grad_norm > 0.001f);
    double squares = 0.0; /* squared norm of m, where m = (1 - beta1) * clipped gradient */
    for (uint64_t i = 0; i < f->layout.elements; i++) {
        squares += (double)f->engine->m[i] * (double)f->engine->m[i];
    }
    const double rest = 1.0 - f->run.train.beta1_millionths / 1e6;
    assert_true(fabs(sqrt(squares) / rest - 0.001) < 1e-6);
}

static void callers_arrays_are_used_in_place(void **state) {
    struct engine_fixture *f = *state;
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

static void a_run_of_any_model_is_refused(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine_plan plan;
    struct tw_error err;
    const struct tw_engine_config config = {.run = &f->run, .layout = &f->layout};
    assert_int_equal(tw_run_apply_tensors(&f->run, "w:100x100", &err), TW_OK);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "start your trainer"));
}

/* The FNV-1a hash of the weights' bits equals a recorded value, which holds on every machine. */
static void initial_weights_are_the_same_everywhere(void **state) {
    struct engine_fixture *f = *state;
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
#define ROW(name) cmocka_unit_test_setup_teardown(name, set_up, engine_tear_down)
#define MASKED(kind)                                                                               \
    {                                                                                              \
        "gradients_of_masked_documents_match_finite_differences " #kind,                           \
            gradients_of_masked_documents_match_finite_differences, set_up_##kind,                 \
            engine_tear_down, NULL                                                                 \
    }
#define GRADIENTS(kind)                                                                            \
    {                                                                                              \
        "every_gradient_matches_finite_differences " #kind,                                        \
            every_gradient_matches_finite_differences, set_up_##kind, engine_tear_down, NULL       \
    }
    const struct CMUnitTest tests[] = {
        ROW(every_gradient_matches_finite_differences),
        GRADIENTS(gpt2_untied),
        GRADIENTS(llama),
        GRADIENTS(llama_full),
        MASKED(gpt2_untied),
        MASKED(llama_full),
        ROW(held_out_loss_matches_the_double_model),
        ROW(held_parameters_are_not_mistaken_for_others),
        ROW(padding_stays_zero),
        ROW(equal_steps_give_equal_bits),
        ROW(a_batch_is_learnt_by_heart),
        ROW(a_gradient_that_is_not_finite_changes_nothing),
        ROW(a_step_that_is_given_up_changes_nothing),
        ROW(a_token_outside_the_vocabulary_is_refused),
        ROW(clipping_bounds_the_step_but_not_its_direction),
        ROW(callers_arrays_are_used_in_place),
        ROW(a_run_of_any_model_is_refused),
        ROW(initial_weights_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
