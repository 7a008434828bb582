/* budget.h - chooses a codec for each piece of an outer gradient, so that bytes are spent where
 * they reduce the error most. A rung is the index of a codec in the ladder of codec_auto.h.
 *
 *     minimise  sum_i error_i(rung_i)   subject to   sum_i bytes_i(rung_i) <= bytes_max
 *
 * It uses one Lagrange multiplier lambda: every piece gets the rung with the smallest error +
 * lambda * bytes, and bisection finds the smallest lambda that fits. Errors must add up over
 * pieces, like squared errors or residuals under error feedback (codec_auto_fit.c). On the lower
 * convex hulls of the pieces this is the optimum. L-GreCo (arXiv 2210.17357) solves the same
 * problem by a dynamic program over norms; the tests compare with it. If two rungs of a piece cost
 * the same at lambda, the piece gets the one with more bytes while the budget lasts. More bytes
 * thus never mean a larger error. */
#ifndef TW_COMPRESS_BUDGET_H
#define TW_COMPRESS_BUDGET_H

#include <stddef.h>
#include <stdint.h>

enum { TW_BUDGET_RUNGS_MAX = 16 };

struct tw_budget_piece {
    double error[TW_BUDGET_RUNGS_MAX]; /* finite, not negative */
    uint32_t bytes[TW_BUDGET_RUNGS_MAX];
    uint32_t rung; /* out: the chosen rung */
};

/* Chooses pieces[..].rung among the first `rungs_count` (1 to TW_BUDGET_RUNGS_MAX), and returns the
 * sum of their bytes. If even the smallest rungs exceed bytes_max, it chooses those. Among rungs
 * with equal bytes it prefers the smallest error, then the lowest index. */
uint64_t tw_budget_choose(struct tw_budget_piece *pieces, size_t pieces_count, uint32_t rungs_count,
                          uint64_t bytes_max);

#endif
