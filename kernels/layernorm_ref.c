/* layernorm_ref.c - layer normalisation, arXiv 1607.06450, and its gradient. */
#include <math.h>

#include "kernels/ref.h"

void tw_layernorm_ref(float *y, const float *bias, const struct tw_layernorm *ln) {
    const size_t width = ln->width;
    for (size_t r = 0; r < ln->rows; r++) {
        const float *x = ln->x + r * width;
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < width; i++) mean += (double)x[i];
        mean /= (double)width;
        for (size_t i = 0; i < width; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean);
        variance /= (double)width;
        const double rstd = 1.0 / sqrt(variance + (double)TW_LAYERNORM_EPS);
        for (size_t i = 0; i < width; i++) {
            const double normal = ((double)x[i] - mean) * rstd;
            y[r * width + i] = (float)(normal * (double)ln->weight[i] + (double)bias[i]);
        }
        ln->mean[r] = (float)mean;
        ln->rstd[r] = (float)rstd;
    }
}

/* With normal = (x - mean) rstd and g = dy weight:
 *     dx = rstd (g - mean_i(g) - normal mean_i(g normal)) */
void tw_layernorm_backward_ref(float *dx, float *dweight, float *dbias, const float *dy,
                               const struct tw_layernorm *ln) {
    const size_t width = ln->width;
    for (size_t r = 0; r < ln->rows; r++) {
        const float *x = ln->x + r * width, *d = dy + r * width;
        const double mean = (double)ln->mean[r], rstd = (double)ln->rstd[r];
        double g_mean = 0.0, g_normal_mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            const double g = (double)d[i] * (double)ln->weight[i];
            g_mean += g;
            g_normal_mean += g * ((double)x[i] - mean) * rstd;
        }
        g_mean /= (double)width;
        g_normal_mean /= (double)width;
        for (size_t i = 0; i < width; i++) {
            const double normal = ((double)x[i] - mean) * rstd;
            const double g = (double)d[i] * (double)ln->weight[i];
            dx[r * width + i] += (float)(rstd * (g - g_mean - normal * g_normal_mean));
            dweight[i] += (float)((double)d[i] * normal);
            dbias[i] += d[i];
        }
    }
}
