/* gelu.c - GELU: (1 + tanh(u)) / 2 is the logistic function of 2u, so one exponential does it.
 * Against the function in double: gelu within 1e-6 (|gelu| + 0.05), gelu' within 3e-6. */
#include "kernels/cpu/exp.h"

#define TWO_SQRT_2_OVER_PI 1.5957691216f
#define CUBIC 0.044715f

TW_INLINE tw_vec gelu(tw_vec t) {
    return t * tw_vec_logistic(TWO_SQRT_2_OVER_PI * (t + CUBIC * t * t * t));
}

/* d/dx (x s) = s + x s (1 - s) 2u'. Beyond 16 s is 0 or 1, and u' must not overflow; t - t is 0, or
 * NaN if t is not finite. */
TW_INLINE tw_vec gelu_slope(tw_vec t) {
    const tw_vec near = tw_vec_min(tw_vec_all(16.0f), tw_vec_max(tw_vec_all(-16.0f), t));
    const tw_vec square = near * near;
    const tw_vec s = tw_vec_logistic(TWO_SQRT_2_OVER_PI * near * (1.0f + CUBIC * square));
    const tw_vec slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * square);
    return s + near * s * (1.0f - s) * slope + (t - t);
}

static void gelu_row(tw_act *y, tw_act *x, const float *bias, size_t n) {
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_vec t = tw_act_load(x + i);
        if (bias != NULL) {
            tw_act_store(x + i, t + tw_vec_load(bias + i));
            t = tw_act_load(x + i);
        }
        tw_act_store(y + i, gelu(t));
    }
    if (i == n) return;
    if (bias != NULL) {
        for (size_t j = i; j < n; j++) tw_act_put(x + j, tw_act_get(x + j) + bias[j]);
    }
    tw_act_store_part(y + i, gelu(tw_act_load_part(x + i, n - i)), n - i);
}

void TW_CPU(gelu)(void *y, void *x, const float *bias, uint32_t rows, uint32_t n) {
    if (bias == NULL) {
        gelu_row(y, x, NULL, (size_t)rows * n);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        gelu_row((tw_act *)y + r * n, (tw_act *)x + r * n, bias, n);
    }
}

void TW_CPU(gelu_backward)(void *dy, const void *x, size_t n) {
    tw_act *d = dy;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_act_store(d + i, tw_act_load(d + i) * gelu_slope(tw_act_load(from + i)));
    }
    if (i == n) return;
    const tw_vec slope = gelu_slope(tw_act_load_part(from + i, n - i));
    tw_act_store_part(d + i, tw_act_load_part(d + i, n - i) * slope, n - i);
}
