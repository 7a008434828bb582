/* merge.h - rules by which contributions become one merge: weighted mean, RDA, and rules that
 * reject outliers. Host arithmetic in a fixed order, without contraction to FMA: every node gets
 * the same bits. */
#ifndef TW_KERNELS_MERGE_H
#define TW_KERNELS_MERGE_H

#include <stddef.h>
#include <stdint.h>

/* ---- the weighted mean ---------------------------------------------------------------------- */

/* The weighted mean of contributions, in the given order (by node id). */

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

/* ---- directions and norms ------------------------------------------------------------------- */

/* A merge that averages directions and norms separately. Host arithmetic in a fixed order,
 * without contraction to FMA. */

/* Least length of a weighted sum of unit vectors whose direction is still meaningful. 64 orthogonal
 * vectors give 1/8. */
#define TW_RDA_LEAST 0.01

/* RDA of Decoupled DiLoCo (arXiv 2604.21428), of one tensor v over the inputs i:
 *
 *     rho = sum_i w_i * ||v_i||,  d = sum_i w_i * v_i / ||v_i||,  out = rho * d / ||d||
 *
 * A tensor is split at the boundaries of parts (worker/merge/DESIGN.md). An owner that has half of
 * a tensor averages the directions and norms of that half.
 *
 * The mean of M orthogonal outer gradients is sqrt(M) times shorter than each of them; RDA's result
 * is as long as each of them. v_i = 0 has no direction. If ||d|| < TW_RDA_LEAST, the result is the
 * plain weighted mean.
 *
 * tw_rda_add adds one input; direction (n) and *rho start at zero. For tw_rda_finish, mean (n)
 * holds the weighted mean of the same inputs, and is replaced by the result. Norms are computed in
 * double. Same inputs, same bits. x, direction and mean must not overlap. */
void tw_rda_add(float *direction, double *rho, const float *x, float weight, size_t n);
void tw_rda_finish(float *mean, const float *direction, double rho, size_t n);

/* Reference of the whole merge. out (n), x: `count` arrays of n, weights (count). */
void tw_rda_ref(float *out, const float *const *x, const float *weights, uint32_t count, size_t n);

/* ---- median, trimmed mean, centred clipping ------------------------------------------------- */

/* Merges that a minority of arbitrary inputs cannot pull far: fewer than half of the
 * inputs, or up to a quarter for the trimmed mean. Host arithmetic in a fixed order, without
 * contraction to FMA.
 *
 * All inputs have equal weight, because a node could lie about its tokens. x: `count` (1 to
 * TW_ROBUST_MAX) arrays of n finite floats; out (n) must not overlap them. Sums in double, rounded
 * once. Same inputs, same bits; a zero is +0. */

#define TW_ROBUST_RADIUS 1.5 /* of centred clipping, in median distances */

enum {
    TW_ROBUST_LEAST = 5, /* least number of inputs: among fewer, outliers cannot be identified */
    TW_ROBUST_MAX = 64,
    TW_ROBUST_ROUNDS = 3, /* iterations of centred clipping */
};

/* Computes the median of each coordinate: the mean of the two middle values if count is even. */
void tw_robust_median(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_median_ref(float *out, const float *const *x, uint32_t count, size_t n);

/* Computes, per coordinate, the mean without the floor(count / 4) smallest and largest values: Yin
 * et al., ICML 2018, arXiv 1803.01498. */
void tw_robust_trimmed(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_trimmed_ref(float *out, const float *const *x, uint32_t count, size_t n);

/* Centred clipping: Karimireddy, He, Jaggi, ICML 2021, arXiv 2012.10333. Starts from the median per
 * coordinate and runs TW_ROBUST_ROUNDS times. The paper does not fix the radius; here it is
 * TW_ROBUST_RADIUS times the (lower) median distance. At 1, half of the inputs are always pulled
 * in: with a text of its own kind on each of eight nodes that cost 2 % of the loss, at 1.5 nothing
 * (tests/RECORDS.md).
 *
 *     out = out + 1 / count * sum_i (x_i - out) * min(1, radius / ||x_i - out||) */
void tw_robust_clipped(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_clipped_ref(float *out, const float *const *x, uint32_t count, size_t n);

#endif
