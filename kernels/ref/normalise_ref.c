/* normalise_ref.c - LayerNorm and RMSNorm after an optional residual, and their gradients. */
#include <math.h>

#include "kernels/ref/ref.h"

void TW_REF(norm)(void *y, void *x, const void *residual, float *stats,
                  const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows; r++) {
        const size_t row = r * width;
        double mean = 0.0, variance = 0.0;
        if (residual != NULL) {
            for (size_t i = row; i < row + width; i++) {
                tw_ref_put(x, i, tw_ref_get(x, i) + tw_ref_get(residual, i));
            }
        }
        for (size_t i = row; i < row + width && !norm->is_rms; i++) mean += tw_ref_get(x, i);
        mean /= (double)width;
        for (size_t i = row; i < row + width; i++) {
            variance += (tw_ref_get(x, i) - mean) * (tw_ref_get(x, i) - mean);
        }
        const double rstd = 1.0 / sqrt(variance / (double)width + (double)norm->eps);
        for (size_t i = 0; i < width; i++) {
            const double normal = (tw_ref_get(x, row + i) - mean) * rstd;
            const double bias = norm->bias == NULL ? 0.0 : (double)norm->bias[i];
            tw_ref_put(y, row + i, normal * (double)norm->weight[i] + bias);
        }
        if (stats == NULL) continue;
        stats[2 * r] = (float)mean;
        stats[2 * r + 1] = (float)rstd;
    }
}

/* With normal = (x - mean) * rstd and g = dy * weight:
 *     dx = rstd * (g - mean_i(g) - normal * mean_i(g * normal)), without mean_i(g) for RMSNorm */
void TW_REF(norm_backward)(void *dx, float *dweight, float *dbias, const void *dy, const void *x,
                           const float *stats, const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows; r++) {
        const size_t row = r * width;
        const double mean = (double)stats[2 * r], rstd = (double)stats[2 * r + 1];
        double g_mean = 0.0, g_normal_mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            const double g = tw_ref_get(dy, row + i) * (double)norm->weight[i];
            g_mean += g / (double)width;
            g_normal_mean += g * (tw_ref_get(x, row + i) - mean) * rstd / (double)width;
        }
        if (norm->is_rms) g_mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            const double normal = (tw_ref_get(x, row + i) - mean) * rstd;
            const double d = tw_ref_get(dy, row + i), g = d * (double)norm->weight[i];
            tw_ref_put(dx, row + i,
                       tw_ref_get(dx, row + i) + rstd * (g - g_mean - normal * g_normal_mean));
            if (dweight != NULL) dweight[i] += (float)(d * normal);
            if (dbias != NULL) dbias[i] += (float)d;
        }
    }
}
