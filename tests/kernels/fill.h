/* fill.h - random arrays and comparisons for the tests of kernels. */
#ifndef TW_TESTS_KERNELS_FILL_H
#define TW_TESTS_KERNELS_FILL_H

#include <math.h>

#include "base/rng.h"
#include "tests/test.h"

/* Long arrays repeat after this number of elements. It is prime, so that no two rows are alike. */
enum { FILL_PERIOD = 1000003 };

/* Returns n random floats, roughly normal, multiplied by `scale`. The caller frees them. */
static inline float *fill_new(struct tw_rng *rng, size_t n, float scale) {
    float *x = malloc((n > 0 ? n : 1) * sizeof(*x));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        if (i >= FILL_PERIOD) {
            x[i] = x[i - FILL_PERIOD];
            continue;
        }
        double sum = 0.0;
        for (unsigned j = 0; j < 6; j++) sum += tw_rng_unit(rng) - 0.5;
        x[i] = (float)(sum * 1.4142) * scale;
    }
    return x;
}

static inline float *fill_copy(const float *x, size_t n) {
    float *copy = malloc((n > 0 ? n : 1) * sizeof(*copy));
    assert_non_null(copy);
    memcpy(copy, x, n * sizeof(*copy));
    return copy;
}

/* Asserts that max |a - b| <= tolerance * (1 + max |b|). */
static inline void fill_assert_near(const char *what, const float *a, const float *b, size_t n,
                                    double tolerance) {
    double worst = 0.0, size = 0.0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) {
            worst = d;
            at = i;
        }
        size = fmax(size, fabs((double)b[i]));
    }
    if (worst <= tolerance * (1.0 + size)) return;
    fail_msg("%s: element %zu is %.9g, expected %.9g (largest |expected| %.3g)", what, at,
             (double)a[at], (double)b[at], size);
}

#endif
