/* rda_ref.c - the merge of rda.h, with each rounding explicit. */
#include <float.h>
#include <math.h>

#include "kernels/norm.h"
#include "kernels/rda.h"

static float merged(const float *const *x, const float *factors, uint32_t count, size_t i) {
    volatile float sum = 0.0f;
    for (uint32_t k = 0; k < count; k++) {
        if (factors[k] == 0.0f) continue;
        const volatile float share = factors[k] * x[k][i];
        sum = sum + share;
    }
    return sum;
}

void tw_rda_ref(float *out, const float *const *x, const float *weights, uint32_t count, size_t n) {
    float shares[64] = {0};
    double rho = 0.0;
    for (uint32_t k = 0; k < count; k++) {
        const double norm = sqrt(tw_norm_squared_ref(x[k], n));
        rho += (double)weights[k] * norm;
        shares[k] = norm < (double)FLT_MIN ? 0.0f : (float)((double)weights[k] / norm);
    }
    for (size_t i = 0; i < n; i++) out[i] = merged(x, shares, count, i);
    const double length = sqrt(tw_norm_squared_ref(out, n));
    const volatile float factor = (float)(rho / length);
    for (size_t i = 0; i < n; i++) {
        out[i] = length < TW_RDA_LEAST ? merged(x, weights, count, i) : factor * out[i];
    }
}
