/* test_ops.c - every table of operations this processor can run does what the reference does. */
#include "kernels/ops.h"

#include "tests/kernels/fill.h"

enum { SEED = 20240607 };

/* Runs `check` for every table but the reference. */
static void each_table(void (*check)(const struct tw_ops *ops, struct tw_rng *rng)) {
    for (uint32_t i = 0; tw_ops_cpu(i) != NULL; i++) {
        struct tw_rng rng;
        tw_rng_seed(&rng, SEED);
        check(tw_ops_cpu(i), &rng);
    }
}

static void check_bias(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t widths[] = {1, 7, 128, 200, 384};
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        const uint32_t n = widths[w], rows = 33;
        float *bias = fill_new(rng, n, 1.0f), *residual = fill_new(rng, rows * n, 1.0f);
        float *y = fill_new(rng, rows * n, 1.0f), *want = fill_copy(y, rows * n);
        ops->bias_fill(y, NULL, bias, rows, n);
        tw_ops_ref()->bias_fill(want, NULL, bias, rows, n);
        assert_memory_equal(y, want, rows * n * sizeof(*y));
        ops->bias_fill(y, residual, bias, rows, n);
        tw_ops_ref()->bias_fill(want, residual, bias, rows, n);
        assert_memory_equal(y, want, rows * n * sizeof(*y));
        float *sum = fill_copy(bias, n);
        ops->bias_backward(bias, y, rows, n);
        tw_ops_ref()->bias_backward(sum, y, rows, n);
        fill_assert_near(ops->name, bias, sum, n, 1e-5);
        free(bias), free(residual), free(y), free(want), free(sum);
    }
}

static void check_layernorm(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t widths[] = {2, 33, 128, 200};
    for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
        const uint32_t n = widths[w], rows = 17;
        float *x = fill_new(rng, rows * n, 2.0f), *weight = fill_new(rng, n, 1.0f);
        float *bias = fill_new(rng, n, 1.0f), *dy = fill_new(rng, rows * n, 1.0f);
        float stats[2][2][17];
        float *y[2], *dx[2], *dweight[2], *dbias[2];
        for (int i = 0; i < 2; i++) {
            const struct tw_ops *by = i == 0 ? ops : tw_ops_ref();
            const struct tw_layernorm ln = {.rows = rows,
                                            .width = n,
                                            .x = x,
                                            .weight = weight,
                                            .mean = stats[i][0],
                                            .rstd = stats[i][1]};
            y[i] = fill_copy(x, rows * n);
            dx[i] = fill_copy(x, rows * n);
            dweight[i] = fill_copy(bias, n);
            dbias[i] = fill_copy(weight, n);
            by->layernorm(y[i], bias, &ln);
            by->layernorm_backward(dx[i], dweight[i], dbias[i], dy, &ln);
        }
        fill_assert_near(ops->name, y[0], y[1], rows * n, 1e-5);
        fill_assert_near(ops->name, stats[0][0], stats[1][0], 2 * rows, 1e-5);
        /* width 2 divides by a small variance: looser */
        fill_assert_near(ops->name, dx[0], dx[1], rows * n, n == 2 ? 1e-3 : 1e-5);
        fill_assert_near(ops->name, dweight[0], dweight[1], n, 1e-5);
        fill_assert_near(ops->name, dbias[0], dbias[1], n, 1e-5);
        for (int i = 0; i < 2; i++) free(y[i]), free(dx[i]), free(dweight[i]), free(dbias[i]);
        free(x), free(weight), free(bias), free(dy);
    }
}

static void check_gelu(const struct tw_ops *ops, struct tw_rng *rng) {
    const size_t n = 1003;
    float *x = fill_new(rng, n, 3.0f), *dy = fill_new(rng, n, 1.0f);
    const float far[] = {0.0f, -0.0f, 12.0f, -12.0f, 1e4f, -1e4f};
    memcpy(x, far, sizeof(far));
    float *y = fill_copy(x, n), *want = fill_copy(x, n), *dx = fill_copy(dy, n);
    ops->gelu(y, x, n);
    tw_ops_ref()->gelu(want, x, n);
    for (size_t i = 0; i < n; i++) {
        const double slack = 2e-6 * (0.05 + fabs((double)want[i]));
        assert_true(fabs((double)y[i] - (double)want[i]) <= slack);
    }
    ops->gelu_backward(dx, x, n);
    tw_ops_ref()->gelu_backward(dy, x, n);
    fill_assert_near(ops->name, dx, dy, n, 2e-6);
    x[0] = NAN;
    ops->gelu(y, x, n);
    assert_true(isnan(y[0]));
    free(x), free(dy), free(y), free(want), free(dx);
}

static void check_attention(const struct tw_ops *ops, struct tw_rng *rng) {
    const struct tw_attention shapes[] = {
        {2, 128, 4, 128}, {1, 1, 1, 8}, {3, 33, 2, 24}, {1, 70, 3, 60}, {2, 31, 1, 64}};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const struct tw_attention *shape = &shapes[s];
        const size_t rows = (size_t)shape->sequences * shape->context;
        const size_t wide = rows * shape->width, lses = rows * shape->heads;
        float *qkv = fill_new(rng, 3 * wide, 1.5f), *dout = fill_new(rng, wide, 1.0f);
        float *out[2], *lse[2], *dqkv[2];
        for (int i = 0; i < 2; i++) {
            const struct tw_ops *by = i == 0 ? ops : tw_ops_ref();
            float *scratch = fill_new(rng, tw_attention_scratch(shape), 9.0f);
            out[i] = fill_new(rng, wide, 1.0f);
            lse[i] = fill_new(rng, lses, 1.0f);
            dqkv[i] = fill_new(rng, 3 * wide, 1.0f);
            by->attention(out[i], lse[i], qkv, scratch, shape);
            by->attention_backward(dqkv[i], dout, qkv, out[i], lse[i], scratch, shape);
            free(scratch);
        }
        fill_assert_near(ops->name, out[0], out[1], wide, 1e-5);
        fill_assert_near(ops->name, lse[0], lse[1], lses, 1e-5);
        fill_assert_near(ops->name, dqkv[0], dqkv[1], 3 * wide, 2e-5);
        for (int i = 0; i < 2; i++) free(out[i]), free(lse[i]), free(dqkv[i]);
        free(qkv), free(dout);
    }
}

static void check_causal(const struct tw_ops *ops, struct tw_rng *rng) {
    const struct tw_attention shape = {1, 50, 2, 32};
    float *qkv = fill_new(rng, 50 * 96, 1.0f);
    float *scratch = fill_new(rng, tw_attention_scratch(&shape), 1.0f);
    float before[50 * 32], after[50 * 32], lse[2 * 50];
    ops->attention(before, lse, qkv, scratch, &shape);
    for (size_t i = 30 * 96; i < 50 * 96; i++) qkv[i] += 5.0f; /* tokens 30.. change */
    ops->attention(after, lse, qkv, scratch, &shape);
    assert_memory_equal(before, after, 30 * 32 * sizeof(float));
    assert_memory_not_equal(before + 30 * 32, after + 30 * 32, 20 * 32 * sizeof(float));
    free(qkv), free(scratch);
}

static void check_cross_entropy(const struct tw_ops *ops, struct tw_rng *rng) {
    const uint32_t vocabs[] = {2, 61, 256};
    for (size_t v = 0; v < 3; v++) {
        const uint32_t vocab = vocabs[v], rows = 9;
        float *logits = fill_new(rng, rows * vocab, 4.0f), *want = fill_copy(logits, rows * vocab);
        uint32_t targets[9];
        for (uint32_t i = 0; i < rows; i++) targets[i] = (uint32_t)tw_rng_below(rng, vocab);
        const double loss = ops->cross_entropy(logits, targets, rows, vocab, 0.25f);
        const double loss_ref = tw_ops_ref()->cross_entropy(want, targets, rows, vocab, 0.25f);
        assert_true(fabs(loss - loss_ref) <= 1e-5 * (1.0 + fabs(loss_ref)));
        fill_assert_near(ops->name, logits, want, rows * vocab, 1e-6);
        free(logits), free(want);
    }
}

static void check_adamw(const struct tw_ops *ops, struct tw_rng *rng) {
    const size_t n = 1001;
    const struct tw_adamw cfg = {.lr = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .decay = 0.1f,
                                 .correction1 = 0.19f,
                                 .correction2 = 0.0975f,
                                 .gradient_scale = 0.5f};
    float *gradient = fill_new(rng, n, 1.0f), *v = fill_new(rng, n, 1.0f);
    for (size_t i = 0; i < n; i++) v[i] *= v[i];
    float *theta = fill_new(rng, n, 1.0f), *m = fill_new(rng, n, 1.0f);
    float *theta_want = fill_copy(theta, n), *m_want = fill_copy(m, n), *v_want = fill_copy(v, n);
    ops->adamw(theta, m, v, gradient, n, &cfg);
    tw_ops_ref()->adamw(theta_want, m_want, v_want, gradient, n, &cfg);
    fill_assert_near(ops->name, theta, theta_want, n, 1e-6);
    fill_assert_near(ops->name, m, m_want, n, 1e-6);
    fill_assert_near(ops->name, v, v_want, n, 1e-6);
    free(gradient), free(v), free(theta), free(m);
    free(theta_want), free(m_want), free(v_want);
}

#define TEST(name, check)                                                                          \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        each_table(check);                                                                         \
    }
TEST(bias_and_its_sums_agree_with_the_reference, check_bias)
TEST(layernorm_agrees_with_the_reference, check_layernorm)
TEST(gelu_agrees_with_the_reference_and_keeps_nan, check_gelu)
TEST(attention_agrees_with_the_reference, check_attention)
TEST(attention_never_looks_ahead, check_causal)
TEST(cross_entropy_agrees_with_the_reference, check_cross_entropy)
TEST(adamw_agrees_with_the_reference, check_adamw)

static void every_table_has_every_operation(void **state) {
    (void)state;
    assert_non_null(tw_ops_cpu(0));
    for (uint32_t i = 0; tw_ops_cpu(i) != NULL; i++) {
        const struct tw_ops *ops = tw_ops_cpu(i);
        print_message("table %u: %s\n", i, ops->name);
        assert_non_null(ops->bias_fill);
        assert_non_null(ops->bias_backward);
        assert_non_null(ops->layernorm);
        assert_non_null(ops->layernorm_backward);
        assert_non_null(ops->gelu);
        assert_non_null(ops->gelu_backward);
        assert_non_null(ops->attention);
        assert_non_null(ops->attention_backward);
        assert_non_null(ops->cross_entropy);
        assert_non_null(ops->adamw);
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_has_every_operation),
        cmocka_unit_test(bias_and_its_sums_agree_with_the_reference),
        cmocka_unit_test(layernorm_agrees_with_the_reference),
        cmocka_unit_test(gelu_agrees_with_the_reference_and_keeps_nan),
        cmocka_unit_test(attention_agrees_with_the_reference),
        cmocka_unit_test(attention_never_looks_ahead),
        cmocka_unit_test(cross_entropy_agrees_with_the_reference),
        cmocka_unit_test(adamw_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
