/* merge.c - shares of the contributors, and their weighted sum. */
#include "kernels/merge.h"

#include "base/assert.h"

void tw_merge_weights_equal(float *weights, uint32_t count) {
    TW_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) weights[i] = (float)(1.0 / (double)count);
}

void tw_merge_weights_tokens(float *weights, const uint64_t *tokens, uint32_t count) {
    TW_ASSERT(count > 0);
    double sum = 0.0; /* in the given order: exact below 2^53 tokens, the same bits above */
    for (uint32_t i = 0; i < count; i++) sum += (double)tokens[i];
    if (sum == 0.0) {
        tw_merge_weights_equal(weights, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) weights[i] = (float)((double)tokens[i] / sum);
}

void tw_merge_add(float *restrict sum, const float *restrict x, float weight, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] + weight * x[i];
}
