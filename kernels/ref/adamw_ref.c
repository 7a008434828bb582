/* adamw_ref.c - AdamW as specified in ops.h. */
#include <math.h>

#include "kernels/ref/ref.h"

void TW_REF(adamw)(float *theta, float *m, float *v, const float *gradient, size_t n,
                   const struct tw_adamw *cfg) {
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * cfg->gradient_scale;
        m[i] = cfg->beta1 * m[i] + (1.0f - cfg->beta1) * g;
        v[i] = cfg->beta2 * v[i] + (1.0f - cfg->beta2) * g * g;
        const float m_hat = m[i] / cfg->correction1, v_hat = v[i] / cfg->correction2;
        theta[i] -= cfg->lr * (m_hat / (sqrtf(v_hat) + cfg->eps) + cfg->decay * theta[i]);
    }
}

double TW_REF(sum_squares)(const float *x, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}
