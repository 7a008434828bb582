/* merge.c - contributors' weights, and the weighted sum of their contributions. */
#include "kernels/merge.h"

#include <stdbool.h>

#include "base/assert.h"
#include "base/limits.h"
#include "kernels/median.h"

void tw_merge_weights_equal(float *weights, uint32_t count) {
    TW_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) weights[i] = (float)(1.0 / (double)count);
}

static double rate(uint64_t tokens, uint32_t steps) {
    return (double)tokens * ((double)tokens / (double)(steps > 0 ? steps : 1));
}

/* Sets weights in proportion to tokens^2 / steps, or to tokens if steps is NULL. Summed in the
 * given order; tokens are exact below 2^53. */
static void weigh(float *weights, const uint64_t *tokens, const uint32_t *steps, uint32_t count) {
    TW_ASSERT(count > 0);
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += steps == NULL ? (double)tokens[i] : rate(tokens[i], steps[i]);
    if (sum == 0.0) {
        tw_merge_weights_equal(weights, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const double share = steps == NULL ? (double)tokens[i] : rate(tokens[i], steps[i]);
        weights[i] = (float)(share / sum);
    }
}

void tw_merge_weights_tokens(float *weights, const uint64_t *tokens, uint32_t count) {
    weigh(weights, tokens, NULL, count);
}

void tw_merge_weights_rate(float *weights, const uint64_t *tokens, const uint32_t *steps,
                           uint32_t count) {
    weigh(weights, tokens, steps, count);
}

void tw_merge_add(float *restrict sum, const float *restrict x, float weight, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] + weight * x[i];
}

void tw_merge_weights_bound(float *weights, uint32_t count) {
    double values[TW_MEDIAN_MAX], sum = 0;
    TW_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) values[i] = (double)weights[i];
    const double most =
        (count < 3 ? TW_CLAIM_FEW : TW_CLAIM_MEDIANS) * tw_median_low(values, count);
    if (most <= 0) return;
    bool is_bound = false;
    for (uint32_t i = 0; i < count; i++) {
        is_bound |= values[i] > most;
        if (values[i] > most) values[i] = most;
        sum += values[i];
    }
    for (uint32_t i = 0; i < count && is_bound; i++) weights[i] = (float)(values[i] / sum);
}
