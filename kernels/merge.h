/* merge.h - the weighted mean of contributions, in the given order (by node id). */
#ifndef TW_KERNELS_MERGE_H
#define TW_KERNELS_MERGE_H

#include <stddef.h>
#include <stdint.h>

/* Set weights (count), count > 0, whose sum is 1. They are equal, in proportion to tokens[], or to
 * tokens^2 / steps as in Decoupled DiLoCo (arXiv 2604.21428), which favours more tokens and larger
 * batches. Steps of 0 count as 1; if all tokens are zero, weights are equal. Summed and divided in
 * double, rounded once to float. Same inputs, same bits. */
void tw_merge_weights_equal(float *weights, uint32_t count);
void tw_merge_weights_tokens(float *weights, const uint64_t *tokens, uint32_t count);
void tw_merge_weights_rate(float *weights, const uint64_t *tokens, const uint32_t *steps,
                           uint32_t count);

/* sum[i] = sum[i] + weight * x[i], with product and sum each rounded. sum (n) and x (n) must not
 * overlap. */
void tw_merge_add(float *sum, const float *x, float weight, size_t n);
void tw_merge_add_ref(float *sum, const float *x, float weight, size_t n);

/* Limits each weight to TW_CLAIM_MEDIANS times the (lower) median weight, or of two weights the
 * larger to TW_CLAIM_FEW times the smaller, and spreads the excess over all weights. weights
 * (count): sum to 1, in and out. */
void tw_merge_weights_bound(float *weights, uint32_t count);

#endif
