/* adamw.c - one pass over theta, m, v and the gradient, limited by memory bandwidth. */
#include <math.h>

#include "kernels/cpu/isa.h"

void TW_CPU(adamw)(float *restrict theta, float *restrict m, float *restrict v,
                   const float *restrict gradient, size_t n, const struct tw_adamw *cfg) {
    const float beta1 = cfg->beta1, beta2 = cfg->beta2, scale = cfg->gradient_scale;
    const float step = cfg->lr / cfg->correction1, shrink = cfg->lr * cfg->decay;
    const float root_scale = 1.0f / sqrtf(cfg->correction2), eps = cfg->eps;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * scale;
        const float m_new = beta1 * m[i] + (1.0f - beta1) * g;
        const float v_new = beta2 * v[i] + (1.0f - beta2) * g * g;
        m[i] = m_new;
        v[i] = v_new;
        theta[i] -= step * m_new / (sqrtf(v_new) * root_scale + eps) + shrink * theta[i];
    }
}

/* Sums in double, because the square of a finite float neither overflows nor underflows there. */
double TW_CPU(sum_squares)(const float *x, size_t n) {
    enum { LANES = 32 };
    double sum[LANES] = {0}, total = 0.0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (size_t j = 0; j < LANES; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    for (size_t j = 0; j < LANES; j++) total += sum[j];
    return total;
}
