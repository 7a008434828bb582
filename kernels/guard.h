/* guard.h - finds contributions that are too large and must be scaled down or left out. */
#ifndef TW_KERNELS_GUARD_H
#define TW_KERNELS_GUARD_H

#include <stdint.h>

enum {
    TW_GUARD_LEAST =
        3, /* least number of contributions for this check: of two, either may be the wrong one */
    TW_GUARD_MAX = 64,
    TW_GUARD_SCALED =
        2, /* contributions above this multiple of the usual size are scaled down to it */
    TW_GUARD_REFUSED = 8, /* contributions above this multiple of the usual size are left out, above
                             a larger one if they have more steps (below). In healthy groups of
                             three, a node that is new was at 4.2 times. A liar gains nothing
                             between: it is scaled down to twice the usual size */
    TW_GUARD_STEPS = 64,  /* claimed step counts are limited to this multiple of the usual count */
};

/* Two passes. The first leaves contributions out. The second scales the others, by the usual size
 * among these. A node that has only the merged contributions thus computes the same factors
 * (tw_guard_scale).
 *
 * The size of a contribution is its norm over the square root of its inner steps; the usual size is
 * the (lower) median. The norm of s steps is between sqrt(s) times that of one (all at right
 * angles) and s times. The contribution of a node that is several times as fast, or was away for a
 * few rounds, thus still has a usual size. If its steps all went the same way, its size is larger
 * by the square root of the ratio of its steps to the usual steps (the lower median): it is left
 * out above TW_GUARD_REFUSED times that.
 *
 * With fewer than TW_GUARD_LEAST contributions all are taken (merger_reduce.c compares them with
 * earlier merges). If more than half of all contributions are 0, or no larger than rounding errors,
 * the others are left out.
 *
 * factors (count): out, the factor of each contribution, at most 1; 0 if it is left out. Returns
 * the set of contributions left out, always fewer than half. norms (count): finite. steps (count):
 * 0 counts as 1. Same inputs, same bits. */
uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

/* The second pass alone, for contributions that must all be merged. */
void tw_guard_scale(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

#endif
