/* merge.h - the weighted mean of contributions, in the order given (sorted by node id). */
#ifndef TW_KERNELS_MERGE_H
#define TW_KERNELS_MERGE_H

#include <stddef.h>
#include <stdint.h>

/* weights (count), count > 0: equal shares, shares of tokens[], or shares of tokens^2 / steps as in
 * Decoupled DiLoCo (arXiv 2604.21428), which favours who did more and in larger batches. Steps of 0
 * count as 1; all tokens zero: equal. Summed and divided in double, rounded once to float. Same
 * inputs, same bits. */
void tw_merge_weights_equal(float *weights, uint32_t count);
void tw_merge_weights_tokens(float *weights, const uint64_t *tokens, uint32_t count);
void tw_merge_weights_rate(float *weights, const uint64_t *tokens, const uint32_t *steps,
                           uint32_t count);

/* sum[i] = sum[i] + weight * x[i], both roundings kept. sum (n), x (n): must not overlap. */
void tw_merge_add(float *sum, const float *x, float weight, size_t n);
void tw_merge_add_ref(float *sum, const float *x, float weight, size_t n);

/* No weight is more than TW_MERGE_BOUND times the (lower) median one; what is taken from who claims
 * more goes to all. Of fewer than three nobody knows who exaggerates. weights (count): sum to 1, in
 * and out. */
enum { TW_MERGE_BOUND = 4 };
void tw_merge_weights_bound(float *weights, uint32_t count);

#endif
