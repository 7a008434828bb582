/* test_cross_entropy.c - loss and gradient of every table against double; the gradient also against
 * finite differences. */
#include "tests/kernels/tables.h"

static const uint32_t vocabs[] = {1, 2, 3, 17, 65, 127, 300};
enum { VOCABS = sizeof(vocabs) / sizeof(vocabs[0]), ROWS = 5 };

/* Returns lse - logits[target] + z_loss * lse^2 of one row, where lse = log(sum(exp(logits))). */
static double twin(const double *row, size_t vocab, size_t target, double z_loss) {
    double sum = 0.0, max = row[0];
    for (size_t i = 1; i < vocab; i++) max = fmax(max, row[i]);
    for (size_t i = 0; i < vocab; i++) sum += exp(row[i] - max);
    const double lse = max + log(sum);
    return lse - row[target] + z_loss * lse * lse;
}

static void row_get(double *row, const float *logits, size_t vocab) {
    for (size_t i = 0; i < vocab; i++) row[i] = (double)logits[i];
}

struct inputs {
    struct tw_cross_entropy cfg;
    float *logits;
    uint32_t targets[ROWS];
};

static struct inputs inputs_new(struct tw_rng *rng, uint32_t vocab, float z_loss) {
    struct inputs in = {.cfg = {.rows = ROWS,
                                .vocab = vocab,
                                .logits_stride = vocab + 3,
                                .dlogits_stride = vocab + 5,
                                .scale = 0.25f,
                                .z_loss = z_loss}};
    in.logits = fill_new(rng, ROWS * (vocab + 3), 4.0f);
    for (size_t r = 0; r < ROWS; r++) in.targets[r] = (uint32_t)tw_rng_below(rng, vocab);
    in.targets[0] = vocab - 1; /* mostly a column in the remainder of a vector */
    return in;
}

static void check_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t vocab, float z_loss) {
    struct inputs in = inputs_new(rng, vocab, z_loss);
    const size_t n = ROWS * in.cfg.dlogits_stride;
    float *logits = fill_copy(in.logits, ROWS * in.cfg.logits_stride);
    void *dlogits = act_new(ops, rng, n, 1.0f), *before = act_copy(ops, dlogits, n);
    double row[300], want = 0.0;
    const double loss = ops->cross_entropy(dlogits, logits, in.targets, &in.cfg);
    for (size_t r = 0; r < ROWS; r++) {
        row_get(row, in.logits + r * in.cfg.logits_stride, vocab);
        want += twin(row, vocab, in.targets[r], 0.0);
        for (size_t i = 0; i < vocab; i++) {
            const double h = 1e-5, at = row[i];
            row[i] = at + h;
            const double above = twin(row, vocab, in.targets[r], (double)z_loss);
            row[i] = at - h;
            const double below = twin(row, vocab, in.targets[r], (double)z_loss);
            row[i] = at;
            assert_act(ops, "dlogits", dlogits, r * in.cfg.dlogits_stride + i,
                       0.25 * (above - below) / (2.0 * h), 1e-6, 1.0);
        }
        for (size_t i = vocab; i < in.cfg.dlogits_stride; i++) { /* between rows */
            const size_t at = r * in.cfg.dlogits_stride + i;
            assert_true(act_get(ops, dlogits, at) == act_get(ops, before, at));
        }
    }
    assert_close(ops, "loss", 0, loss, want, 1e-6, 1.0 + fabs(want));
    memcpy(logits, in.logits, ROWS * in.cfg.logits_stride * sizeof(float));
    assert_true(ops->cross_entropy(NULL, logits, in.targets, &in.cfg) == loss);
    free(logits), free(dlogits), free(before), free(in.logits);
}

static void check(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t v = 0; v < VOCABS; v++) {
        check_of(ops, rng, vocabs[v], 0.0f);
        check_of(ops, rng, vocabs[v], 0.01f);
    }
}

/* A row that is not scored has no loss and no gradient, and changes no other row. */
static void check_unscored(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t v = 0; v < VOCABS; v++) {
        struct inputs in = inputs_new(rng, vocabs[v], 0.01f);
        const size_t n = ROWS * in.cfg.dlogits_stride;
        float *logits = fill_copy(in.logits, ROWS * in.cfg.logits_stride);
        void *all = act_new(ops, rng, n, 1.0f), *some = act_copy(ops, all, n);
        double want = 0.0;
        for (size_t r = 0; r < ROWS; r++) {
            const struct tw_cross_entropy one = {
                .rows = 1, .vocab = vocabs[v], .logits_stride = in.cfg.logits_stride};
            float *row = fill_copy(in.logits + r * one.logits_stride, one.logits_stride);
            if (r % 2 == 0) want += ops->cross_entropy(NULL, row, &in.targets[r], &one);
            free(row);
        }
        (void)ops->cross_entropy(all, logits, in.targets, &in.cfg);
        for (size_t r = 1; r < ROWS; r += 2) in.targets[r] |= TW_TOKEN_UNSCORED;
        memcpy(logits, in.logits, ROWS * in.cfg.logits_stride * sizeof(float));
        const double loss = ops->cross_entropy(some, logits, in.targets, &in.cfg);
        assert_close(ops, "loss", 0, loss, want, 1e-6, 1.0 + fabs(want));
        for (size_t i = 0; i < n; i++) {
            const size_t row = i / in.cfg.dlogits_stride, column = i % in.cfg.dlogits_stride;
            const bool is_zero = row % 2 == 1 && column < vocabs[v];
            assert_true(act_get(ops, some, i) == (is_zero ? 0.0 : act_get(ops, all, i)));
        }
        free(logits), free(all), free(some), free(in.logits);
    }
}

/* The gradient may overwrite its logits. */
static void check_in_place(const struct tw_ops *ops, struct tw_rng *rng) {
    struct inputs in = inputs_new(rng, 301, 0.0f);
    float *logits = fill_copy(in.logits, ROWS * 304);
    void *apart = act_new(ops, rng, ROWS * 306, 1.0f);
    (void)ops->cross_entropy(apart, logits, in.targets, &in.cfg);
    in.cfg.dlogits_stride = 304 * sizeof(float) / ops->type_bytes;
    (void)ops->cross_entropy(in.logits, in.logits, in.targets, &in.cfg);
    for (size_t r = 0; r < ROWS; r++) {
        assert_memory_equal(act_at(ops, apart, r * 306),
                            act_at(ops, in.logits, r * in.cfg.dlogits_stride),
                            301 * ops->type_bytes);
    }
    free(logits), free(apart), free(in.logits);
}

/* Extreme logits give the expected losses, and rows are independent. */
static void check_extremes(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { VOCAB = 19, N = 4 * VOCAB };
    float logits[N] = {0};
    const uint32_t targets[4] = {0, 1, 2, 3};
    const struct tw_cross_entropy cfg = {
        .rows = 4, .vocab = VOCAB, .logits_stride = VOCAB, .dlogits_stride = VOCAB, .scale = 1.0f};
    void *dlogits = act_new(ops, rng, N, 1.0f);
    logits[0] = 1e30f;              /* the target is far above the rest: no loss */
    logits[VOCAB + 5] = 1e4f;       /* not the target: a loss of 1e4 */
    logits[2 * VOCAB + 2] = -1e30f; /* the target is far below the rest */
    logits[4 * VOCAB - 1] = 1e30f;  /* not the target, and in the remainder of a vector */
    const double loss = ops->cross_entropy(dlogits, logits, targets, &cfg);
    assert_close(ops, "loss", 0, loss, 2e30, 1e-6, 1e30);
    assert_act(ops, "dlogits", dlogits, 0, 0.0, 1e-7, 1.0);
    assert_act(ops, "dlogits", dlogits, VOCAB + 1, -1.0, 1e-7, 1.0);
    assert_act(ops, "dlogits", dlogits, VOCAB + 5, 1.0, 1e-7, 1.0);
    assert_act(ops, "dlogits", dlogits, 2 * VOCAB + 2, -1.0, 1e-7, 1.0);
    assert_act(ops, "dlogits", dlogits, 4 * VOCAB - 1, 1.0, 1e-7, 1.0);
    free(dlogits);
}

static void check_not_finite(const struct tw_ops *ops, struct tw_rng *rng) {
    const float bad[] = {NAN, INFINITY};
    for (size_t b = 0; b < 2; b++) {
        for (size_t place = 0; place < 65; place += 16) {
            struct inputs in = inputs_new(rng, 65, 0.0f);
            in.logits[place] = bad[b];
            assert_true(!isfinite(ops->cross_entropy(NULL, in.logits, in.targets, &in.cfg)));
            free(in.logits);
        }
    }
}

TABLES_TEST(loss_is_what_double_says_and_the_gradient_its_differences, check)
TABLES_TEST(rows_that_are_not_scored_have_no_loss, check_unscored)
TABLES_TEST(gradient_may_lie_over_its_logits, check_in_place)
TABLES_TEST(logits_far_apart_are_no_trouble, check_extremes)
TABLES_TEST(loss_is_not_finite_if_a_logit_is_not, check_not_finite)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_is_what_double_says_and_the_gradient_its_differences),
        cmocka_unit_test(rows_that_are_not_scored_have_no_loss),
        cmocka_unit_test(gradient_may_lie_over_its_logits),
        cmocka_unit_test(logits_far_apart_are_no_trouble),
        cmocka_unit_test(loss_is_not_finite_if_a_logit_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
