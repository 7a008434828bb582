/* pair_guard.h - limits on a partner's payloads for a fragment: its Delta D and its anchor S.
 *
 * In a group, the other contributions to a round show the usual size. A pair has only one other
 * contribution, so the past must show it. Per fragment a node remembers the sizes of its partners'
 * last TW_PAIR_GUARD_KEPT payloads (D, S), including refused ones. Their medians can be trusted as
 * long as fewer than half of these sizes are lies. If most sizes change for good, the medians
 * follow, so no partner is refused for ever. Let M be the median of ||D||, and A the median of ||S
 * - S_own||:
 *
 *     ||D|| > 8 * max(||D_own||, M)            refused
 *     ||D|| > 3 * max(||D_own||, M)            D is scaled down to this bound
 *     ||S - S_own|| > 64 * ||S_own||           refused
 *     ||S - S_own|| > 2 * max(||D_own||, A)    the pull is scaled down to this bound
 *
 * Until TW_PAIR_GUARD_LEAST payloads are known, M and A are a twentieth of ||S_own||, and no D is
 * refused: a machine that took one step meets others that took many. A median of 0 is treated
 * likewise. The bounds also use D_own, because in a warm-up all sizes grow manyfold, faster than a
 * median follows. The guard of a group scales above factor 2, this one above 3, because a partner's
 * step count is unknown: nine times as many steps go 3 times as far (guard.h). Distance alone is
 * not misbehaviour: a node returning from a partition of an hour is far away too, and merging pulls
 * it back.
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

/* For one fragment: norms of the last partners' D (deltas), and distances of their S from this
 * node's S (aparts). All zero before the first partner. */
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
    bool is_refused;   /* true if neither D nor S of the partner may be merged */
    float delta, pull; /* factors of at most 1 on D_theirs and on S_theirs - S_own */
};

/* Judges D and S of a partner, and remembers their sizes. */
struct tw_pair_verdict tw_pair_guard(struct tw_pair_guard *guard,
                                     const struct tw_pair_sizes *sizes);

#endif
