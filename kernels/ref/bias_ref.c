/* bias_ref.c - adding a residual, and adding a bias. */
#include "kernels/ref/ref.h"

void TW_REF(add)(void *y, const void *x, size_t n) {
    for (size_t i = 0; i < n; i++) tw_ref_put(y, i, tw_ref_get(y, i) + tw_ref_get(x, i));
}

void TW_REF(bias)(void *y, const float *bias, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            tw_ref_put(y, r * n + i, tw_ref_get(y, r * n + i) + (double)bias[i]);
        }
    }
}

void TW_REF(bias_backward)(float *dbias, const void *dy, size_t dy_stride, uint32_t rows,
                           uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) dbias[i] += (float)tw_ref_get(dy, r * dy_stride + i);
    }
}
