/* cross_entropy_ref.c - softmax, loss and gradient of one row at a time. */
#include <math.h>

#include "kernels/ref.h"

double tw_cross_entropy_ref(float *logits, const uint32_t *targets, uint32_t rows, uint32_t vocab,
                            float scale) {
    double loss = 0.0;
    for (size_t r = 0; r < rows; r++) {
        float *row = logits + r * vocab;
        double max = -INFINITY, sum = 0.0;
        for (size_t i = 0; i < vocab; i++) {
            if (!((double)row[i] <= max)) max = (double)row[i];
        }
        for (size_t i = 0; i < vocab; i++) sum += exp((double)row[i] - max);
        loss += log(sum) + max - (double)row[targets[r]];
        for (size_t i = 0; i < vocab; i++) {
            const double p = exp((double)row[i] - max) / sum;
            row[i] = (float)((double)scale * (p - (i == targets[r] ? 1.0 : 0.0)));
        }
    }
    return loss;
}
