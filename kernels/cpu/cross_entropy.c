/* cross_entropy.c - loss and gradient in one visit to each row of logits. */
#include <math.h>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/isa.h"

double TW_CPU(cross_entropy)(float *restrict logits, const uint32_t *targets, uint32_t rows,
                             uint32_t vocab, float scale) {
    double loss = 0.0;
    for (size_t r = 0; r < rows; r++) {
        float *restrict row = logits + r * vocab;
        float max = row[0], sum = 0.0f;
#pragma omp simd reduction(max : max)
        for (size_t i = 0; i < vocab; i++) max = row[i] > max ? row[i] : max;
        const float target = row[targets[r]];
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < vocab; i++) {
            row[i] = tw_exp(row[i] - max);
            sum += row[i];
        }
        loss += (double)(logf(sum) + (max - target));
        const float factor = scale / sum;
#pragma omp simd
        for (size_t i = 0; i < vocab; i++) row[i] *= factor;
        row[targets[r]] -= scale;
    }
    return loss;
}
