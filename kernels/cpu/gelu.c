/* gelu.c - GELU: (1 + tanh(u)) / 2 is the logistic function of 2u, so one exponential does it. */
#include "kernels/cpu/exp.h"
#include "kernels/cpu/isa.h"

#define TWO_SQRT_2_OVER_PI 1.5957691216f
#define CUBIC 0.044715f

/* Above this |2u| the logistic function is 0 or 1 in float; keeps e^-2u finite. */
static inline float logistic(float two_u) {
    return 1.0f / (1.0f + tw_exp(-two_u));
}

void TW_CPU(gelu)(float *restrict y, const float *restrict x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float t = x[i];
        y[i] = t * logistic(TWO_SQRT_2_OVER_PI * (t + CUBIC * t * t * t));
    }
}

/* d/dx (x s) = s + x s (1 - s) 2u' */
void TW_CPU(gelu_backward)(float *restrict dy, const float *restrict x, size_t n) {
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float t = x[i];
        const float s = logistic(TWO_SQRT_2_OVER_PI * (t + CUBIC * t * t * t));
        const float slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * t * t);
        dy[i] *= s + t * s * (1.0f - s) * slope;
    }
}
