/* outlier.h - finds contributions and merges that are far too large. */
#ifndef TW_KERNELS_OUTLIER_H
#define TW_KERNELS_OUTLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- contributions of one round, compared with each other ----------------------------------- */

/* Finds contributions that are too large and must be scaled down or left out. */

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
 * With fewer than TW_GUARD_LEAST contributions, none is left out (merger.c compares them
 * with earlier merges). If more than half of all contributions are 0, or no larger than rounding
 * errors, the others are left out.
 *
 * factors (count): out, the factor of each contribution, at most 1; 0 if it is left out. Returns
 * the set of contributions left out, always fewer than half. norms (count): finite. steps (count):
 * 0 counts as 1. Same inputs, same bits. */
uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

/* The second pass alone, for contributions that must all be merged. */
void tw_guard_scale(float *factors, const double *norms, const uint32_t *steps, uint32_t count);

/* ---- merges, compared with earlier ones ----------------------------------------------------- */

/* Finds merged results that are far larger than earlier merges of their fragment.
 *
 * A node compares a result with the sizes of the fragment's last merges, which are the same bytes
 * on all nodes, and with its own outer gradients. Sizes are energies (sums of squares) of equal
 * blocks of the fragment, so that they do not depend on its division into parts.
 *
 * Let R be the elements of a result, m(b) the energy per element of block b (median of the last
 * merges), and o(b) the same of the node's own outer gradient. R is an outlier if
 *
 *     ||R||^2 > d^2 * sum over R of max(4^2 * m(b), 2^2 * o(b))
 *
 * Neither m nor o would suffice alone. Past merges lag if outer gradients grow fiftyfold during a
 * warm-up, and a slow node's own outer gradient is far smaller than a merge. The factor 2 of o is
 * the one to which the guard scales contributions down. Before there are TW_OUTLIER_LEAST merges,
 * only o is used, with a factor four times as large: a node that has just joined has taken fewer
 * steps since its anchor than the others. Before the first own outer gradient, only m. Without
 * both, no result is an outlier.
 *
 * The doubt d is 1. If more than half of the results of a round were outliers, this node, or the
 * run, has probably changed: d is then four times as large for the next round of the fragment. A
 * node thus never refuses results for more than a few rounds. A result four times as large as the
 * bound is extreme. A small group refuses only extreme results, because one new or returning member
 * can make its honest merge an outlier.
 *
 * Contributions are judged in the same way if there are too few of them for the guard,
 * but by tw_outlier_excess. Its d is always 1, because the sender of a refused contribution sends
 * less next time.
 *
 * The same inputs give the same answer, but nodes may have different inputs. */

enum {
    TW_OUTLIER_BLOCKS = 64, /* equal blocks of a fragment */
    TW_OUTLIER_KEPT = 7,    /* merges remembered */
    TW_OUTLIER_LEAST = 3,   /* merges before the sizes of past merges count */
    TW_OUTLIER_MERGES = 4,  /* outlier bound, as a multiple of the size of past merges */
    TW_OUTLIER_OWN = 2,     /* outlier bound, as a multiple of this node's outer gradient */
    TW_OUTLIER_DOUBT = 4,   /* factor on both bounds after a round of mostly outliers */
    TW_OUTLIER_EXTREME = 4, /* extreme bound, as a multiple of the outlier bound */
    TW_OUTLIER_INPUT =
        2, /* bound of a contribution before it is merged, as a multiple of the outlier bound */
};

/* History of one fragment. All zero: nothing is known. */
struct tw_outlier {
    float merges[TW_OUTLIER_BLOCKS][TW_OUTLIER_KEPT]; /* energies per element */
    uint32_t merges_count[TW_OUTLIER_BLOCKS];         /* in total */
    float own[TW_OUTLIER_BLOCKS];
    bool has_own;
    uint32_t checked, outliers; /* numbers of results and of outliers among them since this node's
                                   last outer gradient */
    double doubt;               /* 0 counts as 1 */
};

/* Sizes of one or several parts of a fragment. Zeroed before the first part is added. */
struct tw_outlier_sizes {
    double energy[TW_OUTLIER_BLOCKS];
    double count[TW_OUTLIER_BLOCKS];
};

/* Adds x (n), which is elements [begin, begin + n) of a fragment with `elements` elements. x must
 * be finite. */
void tw_outlier_add(struct tw_outlier_sizes *sizes, const float *x, size_t begin, size_t n,
                    size_t elements);

/* Fills the sizes of a whole fragment from the energies of its blocks (TW_OUTLIER_BLOCKS), which
 * the caller has summed. */
void tw_outlier_whole(struct tw_outlier_sizes *sizes, const double *energies, size_t elements);

/* Records this node's complete outer gradient: a round of the fragment begins. */
void tw_outlier_note_own(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

/* Records a committed merge. Blocks of which fewer than half of the elements are present keep their
 * history. */
void tw_outlier_note_merge(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes,
                           size_t elements);

/* Returns ||R|| divided by the bound: above 1 the result is an outlier, above TW_OUTLIER_EXTREME it
 * is extreme. Returns 0 if nothing is known. Also counts the result, which the doubt d depends on.
 */
double tw_outlier_check(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

/* Works like tw_outlier_check, but with d = 1, without counting, and only for blocks that were
 * merged TW_OUTLIER_LEAST times. Returns 0 if there are no such blocks. */
double tw_outlier_excess(const struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

#endif
