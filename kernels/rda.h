/* rda.h - a merge that averages directions and norms apart. Host, fixed order, no contraction. */
#ifndef TW_KERNELS_RDA_H
#define TW_KERNELS_RDA_H

#include <stddef.h>
#include <stdint.h>

/* Shorter sums of weighted unit vectors have no direction worth the name: 64 that are at right
 * angles to each other come to 1/8. */
#define TW_RDA_LEAST 0.01

/* RDA of Decoupled DiLoCo (arXiv 2604.21428), of one tensor v over the inputs i:
 *
 *     rho = sum_i w_i ||v_i||,  d = sum_i w_i v_i / ||v_i||,  out = rho d / ||d||
 *
 * A tensor ends where the owner's part of its fragment does (ARCHITECTURE.md section 4): who owns
 * half of one averages the directions and norms of that half, which comes out as long as the
 * inputs' halves are.
 *
 * The mean of M deltas at right angles is sqrt(M) times shorter than they are; this one is as long
 * as they are. v_i = 0 has no direction; ||d|| < TW_RDA_LEAST: the plain weighted mean.
 *
 * add: one input; direction (n) and *rho start at zero. finish: mean (n), the weighted mean of the
 * same inputs in, out out. Norms in double. Same inputs, same bits. x, direction, mean must not
 * overlap. */
void tw_rda_add(float *direction, double *rho, const float *x, float weight, size_t n);
void tw_rda_finish(float *mean, const float *direction, double rho, size_t n);

/* All of it. out (n), x (count) arrays of n, weights (count). */
void tw_rda_ref(float *out, const float *const *x, const float *weights, uint32_t count, size_t n);

#endif
