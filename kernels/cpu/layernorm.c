/* layernorm.c - layer normalisation: two passes over a row that stays in the first-level cache. */
#include <math.h>

#include "kernels/cpu/isa.h"

void TW_CPU(layernorm)(float *restrict y, const float *restrict bias,
                       const struct tw_layernorm *ln) {
    const size_t width = ln->width;
    const float *restrict weight = ln->weight;
    for (size_t r = 0; r < ln->rows; r++) {
        const float *restrict x = ln->x + r * width;
        float sum = 0.0f, squares = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < width; i++) sum += x[i];
        const float mean = sum / (float)width;
#pragma omp simd reduction(+ : squares)
        for (size_t i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean);
        const float rstd = 1.0f / sqrtf(squares / (float)width + TW_LAYERNORM_EPS);
        float *restrict out = y + r * width;
#pragma omp simd
        for (size_t i = 0; i < width; i++) out[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
        ln->mean[r] = mean;
        ln->rstd[r] = rstd;
    }
}

void TW_CPU(layernorm_backward)(float *restrict dx, float *restrict dweight, float *restrict dbias,
                                const float *restrict dy, const struct tw_layernorm *ln) {
    const size_t width = ln->width;
    const float *restrict weight = ln->weight;
    for (size_t r = 0; r < ln->rows; r++) {
        const float *restrict x = ln->x + r * width, *restrict d = dy + r * width;
        float *restrict to = dx + r * width;
        const float mean = ln->mean[r], rstd = ln->rstd[r];
        float g_sum = 0.0f, g_normal_sum = 0.0f;
#pragma omp simd reduction(+ : g_sum, g_normal_sum)
        for (size_t i = 0; i < width; i++) {
            const float g = d[i] * weight[i], normal = (x[i] - mean) * rstd;
            g_sum += g;
            g_normal_sum += g * normal;
            dweight[i] += d[i] * normal;
            dbias[i] += d[i];
        }
        const float g_mean = g_sum / (float)width, g_normal_mean = g_normal_sum / (float)width;
#pragma omp simd
        for (size_t i = 0; i < width; i++) {
            const float g = d[i] * weight[i], normal = (x[i] - mean) * rstd;
            to[i] += rstd * (g - g_mean - normal * g_normal_mean);
        }
    }
}
