/* pair_guard.h - limits on the payloads of a partner for a fragment: its Delta D and its anchor S.
 *
 * In a group, the other contributions to a round show the usual size. In a pair there is only one
 * other, so the past must show it. Per fragment a node remembers the sizes of the last
 * TW_PAIR_GUARD_KEPT pairs (D, S) of its partners, including refused ones. The medians hold as long
 * as fewer than half of these are lies. If most of them become unlike the past, the medians follow,
 * so nobody is refused for ever. With median M of ||D|| and A of ||S - S_own||:
 *
 *     ||D|| > 8 max(||D_own||, M)       refused       > 3 of it: D is scaled down to that
 *     ||S - S_own|| > 64 ||S_own||      refused       > 2 max(||D_own||, A): the pull is scaled
 *                                                     down to that
 *
 * Before TW_PAIR_GUARD_LEAST of them, M and A are a twentieth of ||S_own||, and no D is refused: a
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

/* Norms of the last partners' D (deltas), and distances of their S from this node's (aparts), of
 * one fragment. All zero: no partner yet. */
struct tw_pair_guard {
    double deltas[TW_PAIR_GUARD_KEPT], aparts[TW_PAIR_GUARD_KEPT];
    uint32_t count; /* number of partners so far */
};

/* Norms of the exchanged payloads, all finite. */
struct tw_pair_sizes {
    double delta_own, delta_theirs; /* ||D_own||, ||D_theirs||, decoded */
    double anchor, apart;           /* ||S_own||, ||S_theirs - S_own|| */
};

struct tw_pair_verdict {
    bool is_refused;   /* neither D nor S of the partner may be merged */
    float delta, pull; /* factors, 1 or less, for D_theirs and for S_theirs - S_own */
};

/* Judges D and S of a partner, and remembers their sizes. */
struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes);

#endif
