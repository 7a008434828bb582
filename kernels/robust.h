/* robust.h - merges that a minority of senders of nonsense cannot pull far: fewer than half of
 * them, and a quarter of the trimmed mean. Host, fixed order, no contraction.
 *
 * They take every input for one voice: a share of tokens is what a node says of itself. x: `count`
 * (1 to TW_ROBUST_MAX) arrays of n finite floats; out (n) overlaps none of them. Sums in double,
 * rounded once. Same inputs, same bits; a zero comes out as +0. */
#ifndef TW_KERNELS_ROBUST_H
#define TW_KERNELS_ROBUST_H

#include <stddef.h>
#include <stdint.h>

enum {
    TW_ROBUST_LEAST = 5, /* inputs: with fewer there is no telling who is the odd one out */
    TW_ROBUST_MAX = 64,
    TW_ROBUST_ROUNDS = 3, /* of centred clipping */
};

/* Per coordinate; the mean of the two in the middle where count is even. */
void tw_robust_median(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_median_ref(float *out, const float *const *x, uint32_t count, size_t n);

/* Per coordinate the mean without the floor(count / 4) smallest and largest: Yin et al., ICML 2018,
 * arXiv 1803.01498. */
void tw_robust_trimmed(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_trimmed_ref(float *out, const float *const *x, uint32_t count, size_t n);

/* Centred clipping: Karimireddy, He, Jaggi, ICML 2021, arXiv 2012.10333, from the median per
 * coordinate, TW_ROBUST_ROUNDS times, with the median distance (the lower one where count is even)
 * for radius, which the paper leaves open:
 *
 *     out = out + 1/count sum_i (x_i - out) min(1, radius / ||x_i - out||) */
void tw_robust_clipped(float *out, const float *const *x, uint32_t count, size_t n);
void tw_robust_clipped_ref(float *out, const float *const *x, uint32_t count, size_t n);

#endif
