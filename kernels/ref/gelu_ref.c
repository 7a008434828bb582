/* gelu_ref.c - GELU in its tanh form, and its derivative. */
#include <math.h>

#include "kernels/ref/ref.h"

#define SQRT_2_OVER_PI 0.79788456080286535588

void TW_REF(gelu)(void *y, const void *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double t = tw_ref_get(x, i);
        tw_ref_put(y, i, 0.5 * t * (1.0 + tanh(SQRT_2_OVER_PI * (t + 0.044715 * t * t * t))));
    }
}

void TW_REF(gelu_backward)(void *dy, const void *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double t = tw_ref_get(x, i);
        const double h = tanh(SQRT_2_OVER_PI * (t + 0.044715 * t * t * t));
        const double dh = (1.0 - h * h) * SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * t * t);
        tw_ref_put(dy, i, tw_ref_get(dy, i) * (0.5 * (1.0 + h) + 0.5 * t * dh));
    }
}
