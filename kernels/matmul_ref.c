/* matmul_ref.c - the three matrix products, as their indices say. */
#include "kernels/ops.h"

void tw_matmul_ref(float *y, const float *a, const float *b, struct tw_matmul shape) {
    for (size_t i = 0; i < shape.m; i++) {
        for (size_t j = 0; j < shape.n; j++) {
            double sum = shape.is_added ? (double)y[i * shape.n + j] : 0.0;
            for (size_t l = 0; l < shape.k; l++) {
                const size_t at_a = shape.form == TW_MATMUL_TN ? l * shape.m + i : i * shape.k + l;
                const size_t at_b = shape.form == TW_MATMUL_NT ? j * shape.k + l : l * shape.n + j;
                sum += (double)a[at_a] * (double)b[at_b];
            }
            y[i * shape.n + j] = (float)sum;
        }
    }
}
