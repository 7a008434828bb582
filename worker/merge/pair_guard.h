/* pair_guard.h - what is too large in a partner's share of a fragment.
 *
 * In a group the others' contributions to the same round say what is usual; in pairs there is one
 * other, so it is the past that says it. Of each fragment a node remembers how large the last
 * TW_PAIR_GUARD_KEPT shares of its partners were, the refused ones too: the median of those stays
 * where it was while fewer than half lie, and where most are unlike the past it is the past that is
 * wrong, so nobody is refused for ever. With median M of their ||D|| and A of their ||S - S_own||:
 *
 *     ||D|| > 8 max(||D_own||, M): refused     > 3 of it: D is scaled down to that
 *     ||S - S_own|| > 64 ||S_own||: refused    > 2 max(||D_own||, A): so is the pull, to that
 *
 * Before TW_PAIR_GUARD_LEAST shares M and A are a twentieth of ||S_own||, as where they are 0, and
 * no D is refused: a machine that took one step meets others that took many. The own D stands
 * beside the medians as all of it grows manyfold in a warm-up, which they would notice too late. 3,
 * where the guard of a group has 2, as nobody knows here of how many steps a partner's D is: nine
 * times as many are 3 times as far (guard.h). Anchors far apart are no offence: who was cut off for
 * an hour comes back far away, and is itself drawn to the others by all of it, for all are far from
 * it.
 *
 * Robust gossip by clipping: ClippedGossip, arXiv 2202.01545. */
#ifndef TW_WORKER_MERGE_PAIR_GUARD_H
#define TW_WORKER_MERGE_PAIR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TW_PAIR_GUARD_KEPT = 32,
    TW_PAIR_GUARD_LEAST = 4,
    TW_PAIR_GUARD_SCALED = 3,
    TW_PAIR_GUARD_PULLED = 2,
    TW_PAIR_GUARD_REFUSED = 8,
    TW_PAIR_GUARD_FAR = 64,
};

/* One fragment; all zero: met nobody yet. */
struct tw_pair_guard {
    double deltas[TW_PAIR_GUARD_KEPT], aparts[TW_PAIR_GUARD_KEPT];
    uint32_t count; /* ever */
};

/* Norms of what was traded, all finite. */
struct tw_pair_sizes {
    double delta_own, delta_theirs; /* as decoded */
    double anchor, apart;           /* ||S_own||, ||S_theirs - S_own|| */
};

struct tw_pair_verdict {
    bool is_refused;   /* nothing of it may be merged */
    float delta, pull; /* factors, 1 or less, for D_theirs and for S_theirs - S_own */
};

/* Judges a share, and remembers how large it was. */
struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes);

#endif
