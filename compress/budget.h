/* budget.h - bytes where they do most: which rung each piece of an outer gradient gets.
 *
 *     minimise  sum_i error_i(rung_i)   subject to   sum_i bytes_i(rung_i) <= bytes_max
 *
 * by one Lagrange multiplier: every piece takes the rung with the least error + lambda bytes, and
 * the least lambda that fits is found by bisection. Errors are whatever adds up over pieces, as
 * squared ones do, and what error feedback comes to hold of them (codec_auto_fit.c). So on the
 * lower convex hulls of the pieces this is the optimum; L-GreCo (arXiv 2210.17357) reaches the same
 * by a dynamic program over norms, which is the oracle of the tests. Pieces whose next rung has
 * exactly that price take it in their order while it fits: more bytes never mean a larger
 * error. */
#ifndef TW_COMPRESS_BUDGET_H
#define TW_COMPRESS_BUDGET_H

#include <stddef.h>
#include <stdint.h>

enum { TW_BUDGET_RUNGS_MAX = 16 };

struct tw_budget_piece {
    double error[TW_BUDGET_RUNGS_MAX]; /* finite, not negative */
    uint32_t bytes[TW_BUDGET_RUNGS_MAX];
    uint32_t rung; /* out: what was chosen */
};

/* Chooses pieces[..].rung among the first `rungs_count` (1 to TW_BUDGET_RUNGS_MAX), and returns the
 * sum of their bytes. Where even the smallest are more than bytes_max: the smallest. Rungs that
 * cost as much go to the least error, and of equal ones to the lowest. */
uint64_t tw_budget_choose(struct tw_budget_piece *pieces, size_t pieces_count, uint32_t rungs_count,
                          uint64_t bytes_max);

#endif
