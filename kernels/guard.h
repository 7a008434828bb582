/* guard.h - which contributions are too large to be merged as they are. */
#ifndef TW_KERNELS_GUARD_H
#define TW_KERNELS_GUARD_H

#include <stdint.h>

enum {
    TW_GUARD_LEAST = 3, /* contributions: of two nobody knows which one is wrong */
    TW_GUARD_MAX = 64,
    TW_GUARD_SCALED = 2,  /* times the usual size: larger ones are scaled down to it */
    TW_GUARD_REFUSED = 4, /* times the usual size: larger ones are left out */
    TW_GUARD_STEPS = 64,  /* times the usual steps: more are not believed */
};

/* Two passes: the first refuses, the second scales what is left by what is usual among what is
 * left. So whoever knows the contributions that were merged, and nothing of the others, finds the
 * same factors: tw_guard_scale.
 *
 * The size of a contribution is its norm over the square root of its inner steps, the usual size
 * the (lower) median. The change of s steps is at least sqrt(s) times that of one (all at right
 * angles) and at most s times: so a node that is several times as fast, or was away for a few
 * rounds, is usual. Fewer than TW_GUARD_LEAST: all are taken, here (merger_reduce.c goes by merges
 * of the past). More than half of them 0, or no more than rounding makes of it: the others are left
 * out.
 *
 * factors (count): what to multiply each with: 1, less, or 0 for those that are left out; these are
 * returned as a set, never half of them or more. norms (count): finite; steps (count), 0 counts as
 * 1. Same inputs, same bits. */
uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

/* The second pass alone, of contributions of which none is to be refused. */
void tw_guard_scale(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

#endif
