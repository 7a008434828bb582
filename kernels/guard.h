/* guard.h - finds contributions that are too large and must be scaled down or left out. */
#ifndef TW_KERNELS_GUARD_H
#define TW_KERNELS_GUARD_H

#include <stdint.h>

enum {
    TW_GUARD_LEAST =
        3, /* least number of contributions for this check: of two, either could be wrong */
    TW_GUARD_MAX = 64,
    TW_GUARD_SCALED =
        2, /* multiple of the usual size to which larger contributions are scaled down */
    TW_GUARD_REFUSED = 8, /* multiple of the usual size above which contributions are left out; the
                             multiple is larger if they have more steps (below). In healthy groups
                             of three, a new node was at 4.2 times. A liar between the two multiples
                             gains nothing: it is scaled down to twice the usual size */
};

/* Compares contributions in two passes. The first leaves out far too large contributions. The
 * second scales the others, by the usual size among these. A node that has only the merged
 * contributions thus computes the same factors (tw_guard_scale).
 *
 * The size of a contribution is its norm / sqrt(inner steps); the usual size is the (lower) median.
 * The norm of s steps is between sqrt(s) times the norm of one step (all orthogonal) and s times
 * that norm. A node that is several times as fast, or was away for a few rounds, thus still
 * contributes a usual size. If its steps all had the same direction, the size is larger by
 * sqrt(steps / usual steps), where the usual steps are the lower median. The limit is therefore
 * TW_GUARD_REFUSED * sqrt(steps / usual steps) times the usual size. Nobody can prove its steps, so
 * they count up to TW_CLAIM_MEDIANS times the usual steps.
 *
 * With fewer than TW_GUARD_LEAST contributions, none is left out (merger_reduce.c compares them
 * with earlier merges). If more than half of all contributions are 0, or no larger than rounding
 * errors, the others are left out.
 *
 * factors (count): out, the factor of each contribution, at most 1; 0 if it is left out. Returns
 * the set of contributions left out, always fewer than half. norms (count): finite. steps (count):
 * 0 counts as 1. Same inputs, same bits. */
uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

/* The second pass alone, for contributions that must all be merged. */
void tw_guard_scale(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

#endif
