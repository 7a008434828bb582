/* bias_ref.c - what adding a bias means. */
#include "kernels/ref.h"

void tw_bias_fill_ref(float *y, const float *residual, const float *bias, uint32_t rows,
                      uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            y[r * n + i] = bias[i] + (residual == NULL ? 0.0f : residual[r * n + i]);
        }
    }
}

void tw_bias_backward_ref(float *dbias, const float *dy, uint32_t rows, uint32_t n) {
    for (size_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (size_t r = 0; r < rows; r++) sum += (double)dy[r * n + i];
        dbias[i] += (float)sum;
    }
}
