/* robust.h - merges that a minority of arbitrary inputs cannot pull far: fewer than half of the
 * inputs, or up to a quarter for the trimmed mean. Host arithmetic in a fixed order, without
 * contraction to FMA.
 *
 * All inputs have equal weight, because a node could lie about its tokens. x: `count` (1 to
 * TW_ROBUST_MAX) arrays of n finite floats; out (n) must not overlap them. Sums in double, rounded
 * once. Same inputs, same bits; a zero is +0. */
#ifndef TW_KERNELS_ROBUST_H
#define TW_KERNELS_ROBUST_H

#include <stddef.h>
#include <stdint.h>

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
