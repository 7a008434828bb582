/* pair_guard.h - limits on a partner's share of a fragment.
 *
 * In a group, the other contributions to a round show the usual size. In a pair there is only one
 * other, so the past must show it. Per fragment a node remembers the sizes of the last
 * TW_PAIR_GUARD_KEPT shares of its partners, including refused ones. The median holds as long as
 * fewer than half of these are lies. If most shares become unlike the past, the median follows, so
 * nobody is refused for ever. With median M of ||D|| and A of ||S - S_own||:
 *
 *     ||D|| > 8 max(||D_own||, M)       refused       > 3 of it: D is scaled down to that
 *     ||S - S_own|| > 64 ||S_own||      refused       > 2 max(||D_own||, A): the pull is scaled
 *                                                     down to that
 *
 * Before TW_PAIR_GUARD_LEAST shares M and A are a twentieth of ||S_own||, and no D is refused: a
 * machine that took one step meets others that took many. M and A of 0 count the same. The bounds
 * also use D_own, because in a warm-up all sizes grow manyfold, faster than a median follows. The
 * factor is 3 where the guard of a group has 2, because a partner's step count is unknown: nine
 * times as many steps go 3 times as far (guard.h). Distance alone is not misbehaviour: a node
 * returning from a partition of an hour is far away too, and merging pulls it back.
 *
 * Clipping in gossip as in ClippedGossip, arXiv 2202.01545. */
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

/* The past shares of one fragment; all zero: no partner yet. */
struct tw_pair_guard {
    double deltas[TW_PAIR_GUARD_KEPT], aparts[TW_PAIR_GUARD_KEPT];
    uint32_t count; /* ever */
};

/* Norms of the exchanged payloads, all finite. */
struct tw_pair_sizes {
    double delta_own, delta_theirs; /* as decoded */
    double anchor, apart;           /* ||S_own||, ||S_theirs - S_own|| */
};

struct tw_pair_verdict {
    bool is_refused;   /* the share must not be merged */
    float delta, pull; /* factors, 1 or less, for D_theirs and for S_theirs - S_own */
};

/* Judges a share, and remembers its sizes. */
struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes);

#endif
