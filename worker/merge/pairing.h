/* pairing.h - the outer step of a run in pairs: NoLoCo, arXiv 2506.10911, in the form of
 * kernels/outer.h.
 *
 * Each node has its own anchor. For a fragment it sends two payloads: D, its encoded outer gradient
 * Delta, and S, its anchor phi in lattice form (compress/lattice.h). Both nodes use both nodes'
 * decoded payloads; phi' is the new anchor:
 *
 *     u    = mu * u + eta * (D_own + D_theirs) / 2 - gamma / 2 * (S_theirs - S_own)
 *     phi' = phi - u,     theta = theta + (phi' - phi) + Delta
 *
 * The partner takes the mirrored step: the gamma terms cancel, and each node merges half of each D.
 * The quantisation error stays in the residual and in theta (worker/merge/inflight.h). Of both
 * nodes' work, only the part that is scaled down (below) is lost. A node that is alone takes the
 * step on its own v = beta' * e + Delta without quantisation, and e becomes 0. Training since Delta
 * was computed stays in theta.
 *
 * A large D or S of the partner is scaled down, and a far too large one is not merged:
 * pairing.h. The node then takes the step alone and reports this in its answer. It also steps
 * alone if a payload of the partner is damaged, or if the partner's phi is too far away to be
 * decoded. Requests and statuses are otherwise as in anchor.h. */
#ifndef TW_WORKER_MERGE_PAIRING_H
#define TW_WORKER_MERGE_PAIRING_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/merge/merger.h"

/* ---- limits on a partner's payloads for a fragment: its Delta D and its anchor S ------------- */

/* In a group, the other contributions to a round show the usual size. A pair has only one other
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
 * step count is unknown: nine times as many steps go 3 times as far (outlier.h). Distance alone is
 * not misbehaviour: a node returning from a partition of an hour is far away too, and merging pulls
 * it back.
 *
 * Clipping in gossip as in ClippedGossip, arXiv 2202.01545. */

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

/* ---- pairing --------------------------------------------------------------------------------- */

struct tw_pairing {
    struct tw_merger *merger;
    float *own, *theirs;              /* decoded anchors, (largest fragment) each */
    float *delta;                     /* decoded D of the partner, (largest fragment) */
    float distance[TW_FRAGMENTS_MAX]; /* per fragment: running maximum of |S_theirs - phi| and |phi'
                                         - phi|; 0: no partner yet */
    struct tw_pair_guard guards[TW_FRAGMENTS_MAX];
};

/* Borrows the merger. Allocates memory only in a run in pairs. Errors: TW_NOMEM, whose message
 * names the size. */
enum tw_status tw_pairing_init(struct tw_pairing *pairing, struct tw_merger *merger,
                               struct tw_error *err);
void tw_pairing_deinit(struct tw_pairing *pairing);

/* Encodes the fragment's Delta and phi into their spans, and sets reply->bytes[0] and [1]. Until
 * the first exchange, phi is sent whole. The caller fills reply->step and ->tokens. */
enum tw_status tw_pairing_encode(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_encode *request,
                                 struct tw_wmsg_encoded *reply, struct tw_error *err);

/* Takes the outer step. A round that was already applied is answered, but not applied again.
 * Returns TW_AGAIN if this node sent nothing in the round, so it cannot merge. */
enum tw_status tw_pairing_apply(struct tw_pairing *pairing,
                                const struct tw_wmsg_pair_apply *request,
                                struct tw_wmsg_applied *reply, struct tw_error *err);

#endif
