/* test_documents.c - with data.documents = masked, a document has the same loss in a packed window
 * as in a window of its own; tokens that are not scored are seen, and not learned. */
#include <math.h>

#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"

enum { CONTEXT = ENGINE_LONG_CONTEXT, SEPARATOR = 7, VARIANTS = 2 };

static const enum engine_variant variants[VARIANTS] = {ENGINE_GPT2, ENGINE_LLAMA_FULL};

/* Makes a random model that is independent of absolute positions, and one sequence without a
 * separator. Rotary positions are relative; learned position embeddings are set to zero. */
static struct engine_fixture *fixture_new(enum engine_variant variant) {
    void *state;
    assert_int_equal(engine_set_up_long(&state, variant), 0);
    struct engine_fixture *f = state;
    engine_shake(f);
    const struct tw_tensor *positions = tw_layout_find(&f->layout, "wpe.weight");
    for (uint64_t i = 0; positions != NULL && i < (uint64_t)positions->rows * positions->cols; i++)
        f->engine->theta[positions->offset + i] = 0.0f;
    for (unsigned i = 0; i <= CONTEXT; i++)
        if (f->tokens[i] == SEPARATOR) f->tokens[i] = 8;
    f->run.data.documents = TW_DOCUMENTS_MASKED;
    f->run.data.separator = SEPARATOR;
    return f;
}

static void fixture_free(struct engine_fixture *f) {
    void *state = f;
    (void)engine_tear_down(&state);
}

/* Returns the sum of the losses of `count` tokens from `first` on, computed without a mask in a
 * window that holds only these. */
static double loss_alone(const struct engine_fixture *f, unsigned first, unsigned count) {
    struct tw_run run = f->run;
    static struct tw_layout layout;
    struct tw_engine *engine;
    struct tw_error err;
    double loss;
    run.model.context = count;
    run.data.documents = TW_DOCUMENTS_JOINED;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    const struct tw_engine_config config = {.run = &run,
                                            .layout = &layout,
                                            .is_inference = true,
                                            .compute = {.compute = TW_COMPUTE_FP32, .threads = 1}};
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    for (uint32_t i = 0; i < layout.tensors_count; i++) {
        const struct tw_tensor *to = &layout.tensors[i];
        const struct tw_tensor *from = tw_layout_find(&f->layout, to->name);
        memcpy(engine->theta + to->offset, f->engine->theta + from->offset,
               (uint64_t)to->rows * to->cols * sizeof(float));
    }
    assert_int_equal(tw_engine_loss(engine, engine->theta, f->tokens + first, 1, &loss, NULL),
                     TW_OK);
    tw_engine_destroy(engine);
    return loss * count;
}

static double loss_of(const struct engine_fixture *f) {
    double loss;
    assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, f->tokens, 1, &loss, NULL), TW_OK);
    return loss * CONTEXT;
}

TEST(packed_documents_have_the_losses_they_have_alone) {
    /* the first document lacks a separator */
    const unsigned begins[] = {0, 2, 6, 9, 11, 37, 70, CONTEXT};
    for (unsigned v = 0; v < VARIANTS; v++) {
        struct engine_fixture *f = fixture_new(variants[v]);
        double want = 0.0;
        for (unsigned d = 1; d < sizeof(begins) / sizeof(begins[0]); d++)
            f->tokens[begins[d]] = SEPARATOR;
        for (unsigned d = 1; d < sizeof(begins) / sizeof(begins[0]); d++)
            want += loss_alone(f, begins[d - 1], begins[d] - begins[d - 1]);
        print_message("%.6f alone, %.6f packed, ", want, loss_of(f));
        assert_true(fabs(loss_of(f) - want) < 1e-5 * want);
        f->run.data.documents = TW_DOCUMENTS_JOINED;
        print_message("%.6f joined\n", loss_of(f));
        assert_true(fabs(loss_of(f) - want) > 1e-3 * want);
        fixture_free(f);
    }
}

TEST(without_a_separator_nothing_is_hidden) {
    for (unsigned v = 0; v < VARIANTS; v++) {
        struct engine_fixture *f = fixture_new(variants[v]);
        /* a separator at the very start hides nothing */
        for (unsigned first = 0; first < 2; first++) {
            if (first == 1) f->tokens[0] = SEPARATOR;
            f->run.data.documents = TW_DOCUMENTS_MASKED;
            const double masked = loss_of(f);
            f->run.data.documents = TW_DOCUMENTS_JOINED;
            assert_true(masked == loss_of(f));
        }
        fixture_free(f);
    }
}

/* Returns the sum of the losses of targets [1, count] of the first sequence. */
static double loss_until(struct engine_fixture *f, unsigned count) {
    uint32_t tokens[CONTEXT + 1];
    double loss;
    for (unsigned i = 0; i <= CONTEXT; i++)
        tokens[i] = f->tokens[i] | (i > count ? TW_TOKEN_UNSCORED : 0);
    assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, tokens, 1, &loss, NULL), TW_OK);
    return loss * count;
}

TEST(only_scored_tokens_count_in_the_loss) {
    for (unsigned v = 0; v < VARIANTS; v++) {
        struct engine_fixture *f = fixture_new(variants[v]);
        uint32_t tokens[CONTEXT + 1];
        const double until = loss_until(f, 20), whole = loss_of(f);
        double rest;
        f->tokens[30] = SEPARATOR; /* marked or not, it begins a document */
        const double masked = loss_of(f), head = loss_until(f, 30);
        for (unsigned i = 0; i <= CONTEXT; i++)
            tokens[i] = f->tokens[i] | (i <= 30 ? TW_TOKEN_UNSCORED : 0);
        assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, tokens, 1, &rest, NULL),
                         TW_OK);
        assert_true(until > 0 && until < whole);
        assert_true(fabs(head + rest * (CONTEXT - 30) - masked) < 1e-4 * masked);
        for (unsigned i = 0; i <= CONTEXT; i++) tokens[i] |= TW_TOKEN_UNSCORED;
        assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, tokens, 1, &rest, NULL),
                         TW_OK);
        assert_true(rest == 0.0);
        fixture_free(f);
    }
}

TEST(a_step_learns_scored_tokens_alone) {
    for (unsigned v = 0; v < VARIANTS; v++) {
        struct engine_fixture *f = fixture_new(variants[v]);
        const uint64_t n = f->layout.elements;
        struct tw_step_result some, none;
        double want;
        float *kept = malloc(n * sizeof(*kept));
        assert_non_null(kept);
        memcpy(kept, f->engine->theta, n * sizeof(*kept));
        /* of the batch, only the first sequence counts */
        assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, f->tokens, 1, &want, NULL),
                         TW_OK);
        for (unsigned i = CONTEXT + 1; i < f->run.train.batch * (CONTEXT + 1); i++)
            f->tokens[i] |= TW_TOKEN_UNSCORED;
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &some, NULL), TW_OK);
        assert_true(fabs((double)some.loss - want) < 1e-5 * want);
        assert_true(some.grad_norm > 0.0f);
        float *const gradient = malloc(n * sizeof(*gradient));
        assert_non_null(gradient);
        memcpy(gradient, f->engine->gradient, n * sizeof(*gradient));
        /* the same sequence alone, in every place of the batch, has the same mean gradient */
        memcpy(f->engine->theta, kept, n * sizeof(*kept));
        for (unsigned b = 1; b < f->run.train.batch; b++)
            memcpy(f->tokens + b * (CONTEXT + 1), f->tokens, (CONTEXT + 1) * sizeof(uint32_t));
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &some, NULL), TW_OK);
        for (uint64_t i = 0; i < n; i++)
            assert_true(fabs((double)(gradient[i] - f->engine->gradient[i])) < 1e-4);
        for (unsigned i = 0; i < f->run.train.batch * (CONTEXT + 1); i++)
            f->tokens[i] |= TW_TOKEN_UNSCORED;
        assert_int_equal(tw_engine_step(f->engine, f->tokens, 0.01f, &none, NULL), TW_OK);
        assert_true(none.loss == 0.0f && none.grad_norm == 0.0f && !none.is_skipped);
        free(gradient);
        free(kept);
        fixture_free(f);
    }
}

TEST(a_prompt_is_seen_whole) {
    static float masked[ENGINE_VOCAB], joined[ENGINE_VOCAB];
    for (unsigned v = 0; v < VARIANTS; v++) {
        struct engine_fixture *f = fixture_new(variants[v]);
        const float *theta = f->engine->theta;
        f->tokens[5] = SEPARATOR;
        assert_int_equal(tw_engine_logits(f->engine, theta, f->tokens, 9, masked, NULL), TW_OK);
        f->run.data.documents = TW_DOCUMENTS_JOINED;
        assert_int_equal(tw_engine_logits(f->engine, theta, f->tokens, 9, joined, NULL), TW_OK);
        assert_memory_equal(masked, joined, sizeof(masked));
        fixture_free(f);
    }
}

int main(void) {
    print_message("seed %d\n", ENGINE_SEED);
    return test_run(NULL, NULL);
}
