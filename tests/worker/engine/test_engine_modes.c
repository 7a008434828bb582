/* test_engine_modes.c - threads, micro-batches, recompute, number types, matrix libraries and the
 * key/value cache do not change the results. */
#include <math.h>

#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"
#include "worker/engine/engine_memory.h"

static const enum tw_compute computes[] = {TW_COMPUTE_FP32, TW_COMPUTE_BF16};

/* Returns the number of entries of `computes` that this machine supports. */
static unsigned computes_count(void) {
    return tw_matmul_library_has(tw_matmul_library_get(TW_MATMUL_AUTO), TW_BF16) ? 2 : 1;
}

static int set_up(void **state) {
    return engine_set_up(state, ENGINE_GPT2);
}

#define FACT(name) TEST_IN(set_up, engine_tear_down, name)

typedef int set_up_fn(void **state, enum engine_variant variant);

static void each_of(set_up_fn *set_up_variant, void (*check)(struct engine_fixture *f)) {
    for (unsigned i = 0; i < 2 * ENGINE_VARIANTS; i++) {
        void *state;
        assert_int_equal(set_up_variant(&state, (enum engine_variant)(i / 2)), 0);
        engine_shake(state);
        if (i % 2 == 1) engine_mask(state, 12);
        check(state);
        (void)engine_tear_down(&state);
    }
}

/* Runs `check` on random long models of every kind; odd iterations mask documents. */
static void each_variant(void (*check)(struct engine_fixture *f)) {
    each_of(engine_set_up_long, check);
}

/* The same with so many sequences that float32 passes copy weights into panels. */
static void each_with_copies(void (*check)(struct engine_fixture *f)) {
    each_of(engine_set_up_many, check);
}

/* ---- same bits ----------------------------------------------------------------------------- */

/* Destroys both. */
static void expect_same_steps(struct engine_fixture *f, struct tw_engine *a, struct tw_engine *b) {
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
    assert_memory_equal(a->m, b->m, bytes);
    assert_memory_equal(a->v, b->v, bytes);
    tw_engine_destroy(a);
    tw_engine_destroy(b);
}

static void check_threads(struct engine_fixture *f) {
    for (unsigned i = 0; i < computes_count(); i++) {
        for (uint32_t threads = 2; threads <= 3; threads++) {
            const struct tw_compute_config one = {.compute = computes[i], .threads = 1};
            const struct tw_compute_config more = {.compute = computes[i], .threads = threads};
            f->run.train.optimizer = threads == 3 ? TW_OPTIMIZER_MUON : TW_OPTIMIZER_ADAMW;
            expect_same_steps(f, engine_with(f, &one, TW_MATMUL_AUTO),
                              engine_with(f, &more, TW_MATMUL_AUTO));
        }
    }
}

FACT(threads_do_not_change_the_bits) {
    each_with_copies(check_threads);
}

static void check_recompute(struct engine_fixture *f) {
    for (unsigned i = 0; i < computes_count(); i++) {
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

FACT(recompute_does_not_change_the_bits) {
    each_with_copies(check_recompute);
}

/* ---- same within rounding ------------------------------------------------------------------ */

/* Returns |a - b| / |b| for one tensor. */
static double distance(const struct tw_tensor *tensor, const float *a, const float *b) {
    double difference = 0.0, norm = 0.0;
    for (uint64_t i = 0; i < (uint64_t)tensor->rows * tensor->cols; i++) {
        const double x = (double)a[tensor->offset + i], y = (double)b[tensor->offset + i];
        difference += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(difference) / (sqrt(norm) + 1e-30);
}

/* Takes one step with each engine and returns the largest distance of any gradient tensor. Destroys
 * both engines. */
static double gradients_apart(struct engine_fixture *f, struct tw_engine *a, struct tw_engine *b) {
    struct tw_step_result first, second;
    double most = 0.0;
    assert_int_equal(tw_engine_step(a, f->tokens, 0.0f, &first, NULL), TW_OK);
    assert_int_equal(tw_engine_step(b, f->tokens, 0.0f, &second, NULL), TW_OK);
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const double apart = distance(&f->layout.tensors[i], a->gradient, b->gradient);
        if (apart > most) most = apart;
    }
    most = fmax(most, fabs((double)first.loss - (double)second.loss));
    tw_engine_destroy(a);
    tw_engine_destroy(b);
    return most;
}

static void check_micro_batches(struct engine_fixture *f) {
    /* passes of 90, 180, 270 or 360 + 180 rows against one of 540, which alone copies weights */
    _Static_assert(ENGINE_MANY_BATCH * ENGINE_LONG_CONTEXT >= TW_MATMUL_COPY_ROWS &&
                       (ENGINE_MANY_BATCH - 2) * ENGINE_LONG_CONTEXT < TW_MATMUL_COPY_ROWS,
                   "with and without copies");
    for (uint32_t micro = 1; micro <= ENGINE_MANY_BATCH - 2; micro++) {
        const struct tw_compute_config all = {
            .compute = TW_COMPUTE_FP32, .threads = 1, .micro_batch = ENGINE_MANY_BATCH};
        const struct tw_compute_config some = {
            .compute = TW_COMPUTE_FP32, .threads = 2, .micro_batch = micro};
        const double apart = gradients_apart(f, engine_with(f, &some, TW_MATMUL_AUTO),
                                             engine_with(f, &all, TW_MATMUL_AUTO));
        if (apart > 1e-5) fail_msg("micro_batch %u: %g", micro, apart);
    }
}

FACT(micro_batches_add_up) {
    each_with_copies(check_micro_batches);
}

static void check_chunks(struct engine_fixture *f) {
    const struct tw_compute_config compute = {
        .compute = TW_COMPUTE_FP32, .threads = 2, .micro_batch = ENGINE_LONG_BATCH};
    struct tw_engine *a = engine_with(f, &compute, TW_MATMUL_AUTO);
    /* the chunk size for a vocabulary of a million tokens */
    a->memory->model.head_rows = TW_MATMUL_ROWS;
    const double apart = gradients_apart(f, a, engine_with(f, &compute, TW_MATMUL_AUTO));
    if (apart > 1e-5) fail_msg("%g", apart);
}

/* Gives the fixture a vocabulary that is split by columns. */
static void widen_vocabulary(struct engine_fixture *f) {
    enum { VOCAB = 9 * 1024 + 5 };
    f->run.data.tokenizer = TW_TOKENIZER_IDS;
    f->run.model.vocab = VOCAB;
    assert_int_equal(tw_layout_init(&f->layout, &f->run, NULL), TW_OK);
    for (size_t i = 0; i < ENGINE_LONG_TOKENS; i++)
        f->tokens[i] = (uint32_t)tw_rng_below(&f->rng, VOCAB);
    tw_engine_destroy(f->engine);
    f->engine = engine_make(f);
    engine_shake(f);
}

static void check_vocabulary(struct engine_fixture *f) {
    const struct tw_compute_config one = {.compute = TW_COMPUTE_FP32, .threads = 1};
    const struct tw_compute_config three = {.compute = TW_COMPUTE_FP32, .threads = 3};
    widen_vocabulary(f);
    const double apart = gradients_apart(f, engine_with(f, &three, TW_MATMUL_AUTO),
                                         engine_with(f, &one, TW_MATMUL_REF));
    if (apart > 1e-5) fail_msg("%g", apart);
    expect_same_steps(f, engine_with(f, &one, TW_MATMUL_AUTO),
                      engine_with(f, &three, TW_MATMUL_AUTO));
}

FACT(large_vocabulary_is_split_by_columns) {
    each_variant(check_vocabulary);
}

FACT(chunks_of_the_head_add_up) {
    each_variant(check_chunks);
}

/* bf16 keeps 8 significant bits, so each activation has a relative error of up to 2^-9. Gradients
 * differ by 0.6 to 1.4 % (measured). */
static void check_bf16(struct engine_fixture *f) {
    const struct tw_compute_config exact = {.compute = TW_COMPUTE_FP32, .threads = 1};
    const struct tw_compute_config rounded = {.compute = TW_COMPUTE_BF16, .threads = 1};
    const double apart = gradients_apart(f, engine_with(f, &rounded, TW_MATMUL_AUTO),
                                         engine_with(f, &exact, TW_MATMUL_AUTO));
    print_message("%.2f %%\n", 100.0 * apart);
    assert_true(apart < 0.03);
}

FACT(bf16_gradients_are_near) {
    if (computes_count() < 2) skip();
    each_variant(check_bf16);
}

static double loss_after(struct engine_fixture *f, const struct tw_engine_config *config) {
    struct tw_engine *engine;
    struct tw_step_result result = {0};
    struct tw_error err;
    if (tw_engine_create(&engine, config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    for (int i = 0; i < 40; i++)
        assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    tw_engine_destroy(engine);
    return (double)result.loss;
}

FACT(every_backend_learns_alike) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {.run = &f->run,
                                      .layout = &f->layout,
                                      .compute = {.compute = TW_COMPUTE_FP32, .threads = 1},
                                      .matmul = TW_MATMUL_REF,
                                      .ops = tw_ops_ref(TW_F32)};
    const double want = loss_after(f, &config);
    print_message("reference: %.4f\n", want);
    assert_true(want < 4.0);
    config.ops = NULL;
    for (unsigned i = TW_MATMUL_ONEDNN; i <= TW_MATMUL_REF; i++) {
        config.matmul = (enum tw_matmul_backend)i;
        if (tw_matmul_library_get(config.matmul) == NULL) continue;
        const double got = loss_after(f, &config);
        print_message("%s: %.4f\n", tw_matmul_library_name(tw_matmul_library_get(config.matmul)),
                      got);
        assert_true(fabs(got - want) < 1e-3);
    }
    if (computes_count() < 2) return;
    config.matmul = TW_MATMUL_AUTO;
    config.compute.compute = TW_COMPUTE_BF16;
    const double got = loss_after(f, &config);
    print_message("bf16: %.4f\n", got);
    assert_true(fabs(got - want) < 0.05);
}

FACT(bf16_without_products_is_refused) {
    struct engine_fixture *f = *state;
    const struct tw_engine_config config = {.run = &f->run,
                                            .layout = &f->layout,
                                            .compute = {.compute = TW_COMPUTE_BF16},
                                            .matmul = TW_MATMUL_OPENBLAS};
    struct tw_engine_plan plan;
    struct tw_error err;
    if (tw_matmul_library_get(TW_MATMUL_OPENBLAS) == NULL) skip();
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "compute = auto or fp32"));
}

FACT(muon_learns_and_keeps_no_second_moment) {
    struct engine_fixture *f = *state;
    const struct tw_compute_config compute = {.threads = 2};
    struct tw_step_result result = {0};
    f->run.train.optimizer = TW_OPTIMIZER_MUON;
    struct tw_engine *engine = engine_with(f, &compute, TW_MATMUL_AUTO);
    for (int i = 0; i < 60; i++)
        assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    print_message("loss %.3f\n", (double)result.loss);
    assert_true(result.loss < 1.0f);
    for (uint32_t i = 0; i < f->layout.tensors_count; i++) {
        const struct tw_tensor *tensor = &f->layout.tensors[i];
        double sum_m = 0.0, sum_v = 0.0;
        for (uint64_t j = 0; j < (uint64_t)tensor->rows * tensor->cols; j++) {
            sum_m += fabs((double)engine->m[tensor->offset + j]);
            sum_v += fabs((double)engine->v[tensor->offset + j]);
        }
        assert_true(sum_m > 0.0);
        assert_int_equal(sum_v > 0.0, !tensor->is_hidden);
    }
    tw_engine_destroy(engine);
}

/* ---- token by token ------------------------------------------------------------------------ */

static void check_row(const float *got, const float *want, double tolerance) {
    double most = 0.0, scale = 0.0;
    for (unsigned i = 0; i < ENGINE_VOCAB; i++) {
        most = fmax(most, fabs((double)got[i] - (double)want[i]));
        scale = fmax(scale, fabs((double)want[i]));
    }
    if (most > tolerance * scale) fail_msg("%g of %g", most, scale);
}

static void check_cache(struct engine_fixture *f) {
    for (unsigned i = 0; i < computes_count(); i++) {
        const struct tw_engine_config config = {.run = &f->run,
                                                .layout = &f->layout,
                                                .compute = {.compute = computes[i], .threads = 2},
                                                .is_inference = true,
                                                .theta = f->engine->theta};
        static float whole[ENGINE_LONG_CONTEXT * ENGINE_VOCAB], row[ENGINE_VOCAB];
        const double tolerance = i == 0 ? 1e-5 : 0.03;
        struct tw_engine *engine;
        struct tw_engine_cache *cache;
        struct tw_error err;
        assert_int_equal(tw_engine_create(&engine, &config, NULL), TW_OK);
        assert_int_equal(tw_engine_logits_all(engine, engine->theta, f->tokens, ENGINE_LONG_CONTEXT,
                                              whole, NULL),
                         TW_OK);
        assert_int_equal(
            tw_engine_logits(engine, engine->theta, f->tokens, ENGINE_LONG_CONTEXT, row, NULL),
            TW_OK);
        check_row(row, whole + (ENGINE_LONG_CONTEXT - 1) * ENGINE_VOCAB, tolerance);
        assert_int_equal(tw_engine_cache_create(&cache, engine, engine->theta, NULL), TW_OK);
        for (int again = 0; again < 2; again++) {
            uint32_t used = 0; /* a prompt of 37 tokens, then single tokens, then five at once, then
                                  single ones */
            while (used < ENGINE_LONG_CONTEXT) {
                const uint32_t count = used == 0 ? 37 : used == 50 ? 5 : 1;
                assert_int_equal(tw_engine_cache_extend(cache, f->tokens + used, count, row, NULL),
                                 TW_OK);
                used += count;
                assert_int_equal(tw_engine_cache_used(cache), used);
                check_row(row, whole + (used - 1) * ENGINE_VOCAB, tolerance);
            }
            assert_int_equal(tw_engine_cache_extend(cache, f->tokens, 1, row, &err), TW_LIMIT);
            tw_engine_cache_clear(cache);
        }
        tw_engine_cache_destroy(cache);
        tw_engine_destroy(engine);
    }
}

FACT(a_growing_sequence_has_the_logits_of_the_whole) {
    each_variant(check_cache);
}

/* ---- memory -------------------------------------------------------------------------------- */

FACT(memory_that_is_not_there_is_refused_with_numbers) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.threads = 1, .memory_bytes = 100000}};
    struct tw_engine *engine = NULL;
    struct tw_engine_plan plan;
    struct tw_error err;
    assert_int_equal(tw_engine_create(&engine, &config, &err), TW_NOMEM);
    assert_null(engine);
    print_message("%s\n", err.message);
    assert_non_null(strstr(err.message, " kB of memory (parameters "));
    assert_non_null(strstr(err.message, "there are 100 kB: choose"));
    assert_non_null(strstr(err.message, "micro_batch"));
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_NOMEM);
    assert_true(plan.total > plan.limit);
    assert_true(plan.total == plan.parameters + plan.gradients + plan.optimizer + plan.weights +
                                  plan.activations + plan.logits);
    /* llama-8b is the largest named model. */
    static struct tw_layout layout;
    struct tw_run run = f->run;
    assert_int_equal(tw_run_apply_model(&run, "llama-8b", NULL), TW_OK);
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    config.run = &run;
    config.layout = &layout;
    config.compute.memory_bytes = (uint64_t)16 << 30;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_NOMEM);
    print_message("%s\n", err.message);
    assert_non_null(strstr(err.message, "there are 17.2 GB: choose"));
}

FACT(keys_and_values_are_planned_for_one_sequence) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {.run = &f->run,
                                      .layout = &f->layout,
                                      .is_inference = true,
                                      .compute = {.compute = TW_COMPUTE_FP32, .threads = 1}};
    struct tw_engine_plan many, one;
    struct tw_error err;
    assert_int_equal(tw_engine_plan_make(&many, &config, NULL), TW_OK);
    config.has_cache = true;
    assert_int_equal(tw_engine_plan_make(&one, &config, NULL), TW_OK);
    const struct tw_run_shape shape = tw_run_shape(&f->run);
    assert_int_equal(one.cache, (uint64_t)f->run.model.layers * f->run.model.context * 2 *
                                    shape.kv_width * sizeof(float));
    assert_int_equal(one.total,
                     one.parameters + one.weights + one.activations + one.logits + one.cache);
    assert_int_equal(one.micro_batch, 1);
    assert_true(one.activations < many.activations);
    config.compute.memory_bytes = one.total - one.cache / 2;
    assert_int_equal(tw_engine_plan_make(&one, &config, &err), TW_NOMEM);
    assert_non_null(strstr(err.message, "keys and values"));
}

FACT(scarce_memory_means_smaller_passes_then_recompute) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.threads = 1}};
    struct tw_engine_plan roomy, plan;
    struct tw_step_result result;
    f->run.model.layers = 16;
    struct tw_error err;
    if (tw_layout_init(&f->layout, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(tw_engine_plan_make(&roomy, &config, NULL), TW_OK);
    assert_int_equal(roomy.micro_batch, ENGINE_BATCH);
    bool was_smaller = false, was_recomputed = false;
    for (uint64_t limit = roomy.total; tw_engine_plan_make(&plan, &config, NULL) == TW_OK;
         limit -= 20000) {
        config.compute.memory_bytes = limit;
        if (tw_engine_plan_make(&plan, &config, NULL) != TW_OK) break;
        assert_true(plan.total <= limit);
        was_smaller |= plan.micro_batch < ENGINE_BATCH && !plan.is_recomputed;
        was_recomputed |= plan.is_recomputed;
    }
    assert_true(was_smaller);
    assert_true(was_recomputed);
    config.compute.memory_bytes += 20000; /* the smallest limit that worked */
    struct tw_engine *engine;
    assert_int_equal(tw_engine_create(&engine, &config, NULL), TW_OK);
    assert_true(engine->plan.is_recomputed);
    assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, NULL), TW_OK);
    tw_engine_destroy(engine);
}

int main(void) {
    print_message("seed %d\n", ENGINE_SEED);
    return test_run(NULL, NULL);
}
