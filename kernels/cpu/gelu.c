/* gelu.c - GELU with one exponential: (1 + tanh(u)) / 2 is the logistic function of 2 * u. Error
 * against double: gelu within 1e-6 * (|gelu| + 0.05), gelu' within 3e-6. */
#include "kernels/cpu/exp.h"

#define TWO_SQRT_2_OVER_PI 1.5957691216f
#define CUBIC 0.044715f

TW_INLINE tw_vec gelu(tw_vec t) {
    return t * tw_vec_logistic(TWO_SQRT_2_OVER_PI * (t + CUBIC * t * t * t));
}

/* d/dx (x * s) = s + x * s * (1 - s) * 2 * u'. Where |t| > 16, s is 0 or 1, so t is limited there
 * to keep u' finite. Adding t - t gives NaN if t is not finite, and changes nothing otherwise. */
TW_INLINE tw_vec gelu_slope(tw_vec t) {
    const tw_vec near = tw_vec_min(tw_vec_all(16.0f), tw_vec_max(tw_vec_all(-16.0f), t));
    const tw_vec square = near * near;
    const tw_vec s = tw_vec_logistic(TWO_SQRT_2_OVER_PI * near * (1.0f + CUBIC * square));
    const tw_vec slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * square);
    return s + near * s * (1.0f - s) * slope + (t - t);
}

void TW_CPU(gelu)(void *y, const void *x, size_t n) {
    tw_act *to = y;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(to + i, gelu(tw_act_load(from + i)));
    if (i < n) tw_act_store_part(to + i, gelu(tw_act_load_part(from + i, n - i)), n - i);
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
