/* test_activations.c - GELU and SwiGLU of every table against double; gradients against finite
 * differences. */
#include "tests/kernels/tables.h"

static const uint32_t sizes[] = {1, 3, 17, 65, 127, 128};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), ROWS = 5 };

static double gelu(double x) {
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static double silu(double x) {
    return x / (1.0 + exp(-x));
}

static double slope(double (*f)(double), double x) {
    const double h = 1e-5;
    return (f(x + h) - f(x - h)) / (2.0 * h);
}

static void check_gelu(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = (size_t)ROWS * sizes[s];
        void *x = act_new(ops, rng, n, 3.0f);
        void *y = act_new(ops, rng, n, 1.0f), *dy = act_new(ops, rng, n, 1.0f);
        void *d = act_copy(ops, dy, n), *again = act_copy(ops, dy, n);
        ops->gelu(y, x, n);
        ops->gelu_backward(d, again, x, n);
        for (size_t i = 0; i < n; i++) {
            const double t = act_get(ops, x, i), up = act_get(ops, dy, i);
            assert_act(ops, "gelu", y, i, gelu(t), 1e-6, fabs(gelu(t)) + 0.05);
            assert_act(ops, "gelu again", again, i, gelu(t), 1e-6, fabs(gelu(t)) + 0.05);
            assert_act(ops, "gelu'", d, i, up * slope(gelu, t), 3e-6, fabs(up));
        }
        ops->gelu(x, x, n); /* in place */
        assert_memory_equal(x, y, n * ops->type_bytes);
        free(x), free(y), free(dy), free(d), free(again);
    }
}

static void check_gelu_far_out(const struct tw_ops *ops, struct tw_rng *rng) {
    const float at[] = {0.0f, -0.0f, 12.0f, -12.0f, 1e4f, -1e4f, 1e30f, -1e30f};
    for (size_t i = 0; i < 8; i++) {
        for (size_t n = 1; n <= 33; n += 32) { /* alone, and in the middle of vectors */
            void *x = calloc(n, sizeof(float)), *y = calloc(n, sizeof(float));
            void *d = calloc(n, sizeof(float)), *again = calloc(n, sizeof(float));
            assert_true(x != NULL && y != NULL && d != NULL && again != NULL);
            const size_t place = n / 2;
            act_put(ops, x, place, at[i]);
            act_put(ops, d, place, 1.0f);
            ops->gelu(y, x, n);
            ops->gelu_backward(d, again, x, n);
            const double t = act_get(ops, x, place);
            assert_act(ops, "gelu", y, place, t > 0.0 ? t : 0.0, 1e-6, 1.0);
            assert_act(ops, "gelu again", again, place, t > 0.0 ? t : 0.0, 1e-6, 1.0);
            assert_act(ops, "gelu'", d, place, t > 0.0 ? 1.0 : t < 0.0 ? 0.0 : 0.5, 1e-6, 1.0);
            free(x), free(y), free(d), free(again);
        }
    }
}

static void check_not_finite(const struct tw_ops *ops, struct tw_rng *rng) {
    const float bad[] = {NAN, INFINITY};
    for (size_t b = 0; b < 2; b++) {
        for (size_t place = 0; place < 37; place += 36) {
            void *x = act_new(ops, rng, 2 * 37, 1.0f), *y = act_new(ops, rng, 37, 1.0f);
            void *d = act_new(ops, rng, 37, 1.0f), *dx = act_new(ops, rng, 2 * 37, 1.0f);
            act_put(ops, x, place, bad[b]);
            ops->gelu(y, x, 37);
            assert_true(!isfinite(act_get(ops, y, place)));
            assert_true(isfinite(act_get(ops, y, 18)));
            ops->gelu_backward(d, y, x, 37);
            assert_true(!isfinite(act_get(ops, y, place)));
            assert_true(!isfinite(act_get(ops, d, place)));
            assert_true(isfinite(act_get(ops, d, 18)));
            ops->swiglu(y, x, 1, 37);
            assert_true(!isfinite(act_get(ops, y, place)));
            ops->swiglu_backward(dx, d, x, 1, 37);
            assert_true(!isfinite(act_get(ops, dx, place)));
            free(x), free(y), free(d), free(dx);
        }
    }
}

static void check_swiglu(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        void *x = act_new(ops, rng, 2 * ROWS * n, 4.0f), *y = act_new(ops, rng, ROWS * n, 1.0f);
        void *dy = act_new(ops, rng, ROWS * n, 1.0f), *dx = act_new(ops, rng, 2 * ROWS * n, 1.0f);
        act_put(ops, x, 0, 100.0f), act_put(ops, x, 2 * ROWS * n - n - 1, -100.0f);
        ops->swiglu(y, x, ROWS, (uint32_t)n);
        ops->swiglu_backward(dx, dy, x, ROWS, (uint32_t)n);
        for (size_t i = 0; i < ROWS * n; i++) {
            const size_t at = i / n * 2 * n + i % n;
            const double gate = act_get(ops, x, at), up = act_get(ops, x, at + n);
            const double d = act_get(ops, dy, i), size = 1.0 + fabs(up * d);
            assert_act(ops, "swiglu", y, i, silu(gate) * up, 1e-6, fabs(silu(gate) * up));
            assert_act(ops, "dgate", dx, at, d * up * slope(silu, gate), 2e-6, size);
            assert_act(ops, "dup", dx, at + n, d * silu(gate), 1e-6, fabs(d * silu(gate)));
        }
        ops->swiglu_backward(x, dy, x, ROWS, (uint32_t)n); /* in place */
        assert_memory_equal(x, dx, 2 * ROWS * n * ops->type_bytes);
        free(x), free(y), free(dy), free(dx);
    }
}

/* Arrays give the same bits wherever they are split: vectors and remainders are computed alike. */
static void check_cut(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { N = 100, CUT = 37 };
    void *x = act_new(ops, rng, N, 2.0f), *d[2], *y[2];
    for (int i = 0; i < 2; i++) d[i] = act_copy(ops, x, N), y[i] = act_copy(ops, x, N);
    void *again[2];
    for (int i = 0; i < 2; i++) again[i] = act_copy(ops, x, N);
    ops->gelu(y[0], x, N);
    ops->gelu_backward(d[0], again[0], x, N);
    const size_t at = CUT * (size_t)ops->type_bytes;
    ops->gelu(y[1], x, CUT);
    ops->gelu((char *)y[1] + at, (char *)x + at, N - CUT);
    ops->gelu_backward(d[1], again[1], x, CUT);
    ops->gelu_backward((char *)d[1] + at, (char *)again[1] + at, (char *)x + at, N - CUT);
    assert_memory_equal(y[0], y[1], N * ops->type_bytes);
    assert_memory_equal(d[0], d[1], N * ops->type_bytes);
    assert_memory_equal(again[0], again[1], N * ops->type_bytes);
    free(x);
    for (int i = 0; i < 2; i++) free(d[i]), free(y[i]), free(again[i]);
}

TABLES_TEST(gelu_and_its_slope_are_what_double_says, check_gelu)
TABLES_TEST(gelu_far_out_is_the_identity_or_zero, check_gelu_far_out)
TABLES_TEST(what_is_not_finite_stays_so, check_not_finite)
TABLES_TEST(swiglu_and_its_slopes_are_what_double_says, check_swiglu)
TABLES_TEST(cut_in_two_calls_gives_the_same_bits, check_cut)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_and_its_slope_are_what_double_says),
        cmocka_unit_test(gelu_far_out_is_the_identity_or_zero),
        cmocka_unit_test(what_is_not_finite_stays_so),
        cmocka_unit_test(swiglu_and_its_slopes_are_what_double_says),
        cmocka_unit_test(cut_in_two_calls_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
