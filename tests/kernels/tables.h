/* tables.h - for tests of operations: every table of both types, arrays of a table's type, and
 * comparison with double arithmetic. */
#ifndef TW_TESTS_KERNELS_TABLES_H
#define TW_TESTS_KERNELS_TABLES_H

#include "kernels/ops.h"

#include "tests/kernels/fill.h"

enum { TABLES_SEED = 20240607 };

typedef void tables_check(const struct tw_ops *ops, struct tw_rng *rng);

/* Runs `check` for the reference and for every table that this processor can run, of both types. */
static inline void tables_each(tables_check *check) {
    for (int type = TW_F32; type <= TW_BF16; type++) {
        const struct tw_ops *ops = tw_ops_ref((enum tw_type)type);
        for (uint32_t i = 0; ops != NULL; ops = tw_ops_cpu((enum tw_type)type, i++)) {
            struct tw_rng rng;
            tw_rng_seed(&rng, TABLES_SEED);
            check(ops, &rng);
        }
    }
}

static inline double act_get(const struct tw_ops *ops, const void *x, size_t i) {
    return ops->type == TW_BF16 ? (double)tw_bf16_to_f32(((const uint16_t *)x)[i])
                                : (double)((const float *)x)[i];
}

static inline void act_put(const struct tw_ops *ops, void *x, size_t i, float value) {
    if (ops->type == TW_BF16) ((uint16_t *)x)[i] = tw_bf16_from_f32(value);
    if (ops->type == TW_F32) ((float *)x)[i] = value;
}

static inline const void *act_at(const struct tw_ops *ops, const void *x, size_t i) {
    return (const char *)x + i * ops->type_bytes;
}

/* Returns n random activations, roughly normal, multiplied by `scale`. The caller frees them. */
static inline void *act_new(const struct tw_ops *ops, struct tw_rng *rng, size_t n, float scale) {
    float *values = fill_new(rng, n, scale);
    void *x = malloc((n > 0 ? n : 1) * ops->type_bytes);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) act_put(ops, x, i, values[i]);
    free(values);
    return x;
}

static inline void *act_copy(const struct tw_ops *ops, const void *x, size_t n) {
    void *copy = malloc((n > 0 ? n : 1) * ops->type_bytes);
    assert_non_null(copy);
    memcpy(copy, x, n * ops->type_bytes);
    return copy;
}

/* Asserts that |got - want| <= tolerance * size, which no NaN satisfies. */
static inline void assert_close(const struct tw_ops *ops, const char *what, size_t i, double got,
                                double want, double tolerance, double size) {
    if (fabs(got - want) <= tolerance * size) return;
    fail_msg("%s %s: %s[%zu] is %.9g, expected %.9g", ops->name,
             ops->type == TW_BF16 ? "bf16" : "float32", what, i, got, want);
}

/* Asserts that activation i of x is `want`, computed within tolerance * size and then rounded once.
 * A denormal result may have any denormal value. */
static inline void assert_act(const struct tw_ops *ops, const char *what, const void *x, size_t i,
                              double want, double tolerance, double size) {
    const double half_ulp = ops->type == TW_BF16 ? 1.0 / 256.0 : 1.0 / 16777216.0;
    assert_close(ops, what, i, act_get(ops, x, i), want, 1.0,
                 half_ulp * fabs(want) + 1.01 * tolerance * size + 1.2e-38);
}

#define TABLES_TEST(name, check)                                                                   \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        tables_each(check);                                                                        \
    }

#endif
