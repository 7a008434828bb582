/* bias.c - bias and residual. */
#include "kernels/cpu/isa.h"

void TW_CPU(bias_fill)(float *y, const float *residual, const float *bias, uint32_t rows,
                       uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        if (residual == NULL) {
            for (size_t i = 0; i < n; i++) y[r * n + i] = bias[i];
            continue;
        }
#pragma omp simd
        for (size_t i = 0; i < n; i++) y[r * n + i] = bias[i] + residual[r * n + i];
    }
}

/* Columns in strips that stay in registers while the rows go by. */
void TW_CPU(bias_backward)(float *restrict dbias, const float *restrict dy, uint32_t rows,
                           uint32_t n) {
    enum { STRIP = 8 * TW_VEC };
    size_t begin = 0;
    for (; begin + STRIP <= n; begin += STRIP) {
        float sum[STRIP] = {0};
        for (size_t r = 0; r < rows; r++) {
#pragma omp simd
            for (size_t i = 0; i < STRIP; i++) sum[i] += dy[r * n + begin + i];
        }
        for (size_t i = 0; i < STRIP; i++) dbias[begin + i] += sum[i];
    }
    for (size_t r = 0; r < rows; r++) {
#pragma omp simd
        for (size_t i = begin; i < n; i++) dbias[i] += dy[r * n + i];
    }
}
