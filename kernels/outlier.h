/* outlier.h - which merged results are far larger than the merges of a fragment are.
 *
 * A node judges by what it has seen: the sizes of the last merges of this fragment, which are the
 * same bytes on all nodes, and of its own outer gradients. Sizes are energies (sums of squares) of
 * equal blocks of the fragment, so that it does not matter who owns which part of it.
 *
 * A result of elements R, with m(b) the energy per element of block b, median of the last merges,
 * and o(b) that of the own outer gradient, is insane when
 *
 *     ||R||^2 > d^2 sum over R of max(4^2 m(b), 2^2 o(b))
 *
 * Either alone would err: merges of the past lag behind where outer gradients grow fiftyfold within
 * a warm-up, and a slow node's own is smaller than a merge by far. Twice the own one is what the
 * guard lets in. Before there are TW_OUTLIER_LEAST merges o stands alone, without an own one m;
 * without either everything is sane. d, the doubt, is 1; when more than half of the results of a
 * round were found insane it is this node, or the run, that is not as it was: d is four times as
 * large for the next round of the fragment. So whatever happens, a node refuses for a few rounds at
 * most. One of four times that size is wild: in a small group, where a member that is new or back
 * after long can make a merge insane all by itself, that alone is refused.
 *
 * A contribution is judged in the same way where there are too few of them for the guard (guard.h);
 * by tw_outlier_excess alone, for there is nothing to doubt: who is refused sends less.
 *
 * Same inputs, same answer; but not the same on every node, and it need not be. */
#ifndef TW_KERNELS_OUTLIER_H
#define TW_KERNELS_OUTLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TW_OUTLIER_BLOCKS = 64, /* of a fragment */
    TW_OUTLIER_KEPT = 7,    /* merges */
    TW_OUTLIER_LEAST = 3,
    TW_OUTLIER_MERGES = 4, /* times as large as merges are: insane */
    TW_OUTLIER_OWN = 2,    /* ... and times as large as the own outer gradient */
    TW_OUTLIER_DOUBT = 4,
    TW_OUTLIER_EXTREME = 4, /* times as large as what is insane */
    TW_OUTLIER_INPUT = 2,   /* ... and a contribution, where it is not merged */
};

enum tw_sanity { TW_SANITY_FAIR, TW_SANITY_INSANE, TW_SANITY_WILD };

/* What one fragment has been like. All zero: nothing is known. */
struct tw_outlier {
    float merges[TW_OUTLIER_BLOCKS][TW_OUTLIER_KEPT]; /* energies per element */
    uint32_t merges_count[TW_OUTLIER_BLOCKS];         /* ever */
    float own[TW_OUTLIER_BLOCKS];
    bool has_own;
    uint32_t checked, outliers; /* results, since the last own outer gradient */
    double doubt;               /* 0 counts as 1 */
};

/* Sizes of a part of a fragment, or of several. All zero: none yet. */
struct tw_outlier_sizes {
    double energy[TW_OUTLIER_BLOCKS];
    double count[TW_OUTLIER_BLOCKS];
};

/* x (n) are elements [begin, begin + n) of a fragment of `elements`; finite. */
void tw_outlier_add(struct tw_outlier_sizes *sizes, const float *x, size_t begin, size_t n,
                    size_t elements);

/* Of a whole fragment whose energies (TW_OUTLIER_BLOCKS) somebody else has summed. */
void tw_outlier_whole(struct tw_outlier_sizes *sizes, const double *energies, size_t elements);

/* The own outer gradient, whole: a round of the fragment begins. */
void tw_outlier_note_own(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

/* A merge, as it was committed. Blocks of which less than half is there are left as they were. */
void tw_outlier_note_merge(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes,
                           size_t elements);

/* Judges a result and remembers that it did. */
enum tw_sanity tw_outlier_check(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

/* How many times as large as the largest that is not insane, without doubt, in those blocks that
 * have been merged TW_OUTLIER_LEAST times; 0 where there are none. */
double tw_outlier_excess(const struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes);

#endif
