/* rda.h - a merge that averages directions and norms separately. Host arithmetic in a fixed order,
 * without contraction to FMA. */
#ifndef TW_KERNELS_RDA_H
#define TW_KERNELS_RDA_H

#include <stddef.h>
#include <stdint.h>

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

#endif
