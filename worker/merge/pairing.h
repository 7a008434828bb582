/* pairing.h - the outer step of a run in pairs: NoLoCo, arXiv 2506.10911, in the form of
 * kernels/outer.h.
 *
 * Each node has an anchor of its own. For a fragment it sends two payloads: D, its encoded outer
 * gradient Delta, and S, its anchor phi in lattice form (compress/lattice.h). Both nodes use the
 * decoded payloads of both; phi' is the new anchor:
 *
 *     u   = mu u + eta (D_own + D_theirs) / 2 - gamma/2 (S_theirs - S_own)
 *     phi = phi - u,     theta = theta + (phi' - phi) + Delta
 *
 * The partner takes the mirrored step: the gamma terms cancel, and each node merges half of each D.
 * The quantisation error stays in the residual and in theta (worker/merge/inflight.h). Of the work
 * of both nodes, only the part that is scaled down (below) is lost. Alone, a node takes the step on
 * its own v = beta' e + Delta without quantisation, and e = 0. Training since Delta was computed
 * stays in theta.
 *
 * A large D or S of the partner is scaled down, a far too large one is not merged: pair_guard.h.
 * The node then takes the step alone and says so in the answer. It does the same if a payload of
 * the partner is damaged, or if its phi is too far away to be decoded. Requests and statuses
 * otherwise as in anchor.h. */
#ifndef TW_WORKER_MERGE_PAIRING_H
#define TW_WORKER_MERGE_PAIRING_H

#include "worker/merge/merger.h"
#include "worker/merge/pair_guard.h"

struct tw_pairing {
    struct tw_merger *merger;
    float *own, *theirs;              /* (largest fragment) each: decoded anchors */
    float *delta;                     /* (largest fragment): decoded D of the partner */
    float distance[TW_FRAGMENTS_MAX]; /* running maximum of |S_theirs - phi| and |phi' - phi|;
                                         0: no partner yet */
    struct tw_pair_guard guards[TW_FRAGMENTS_MAX];
};

/* Borrows the merger. Allocates only in a run in pairs; TW_NOMEM names the size. */
enum tw_status tw_pairing_init(struct tw_pairing *pairing, struct tw_merger *merger,
                               struct tw_error *err);
void tw_pairing_deinit(struct tw_pairing *pairing);

/* Encodes Delta and phi of the fragment into their spans: reply->bytes[0] and [1]. Before the first
 * exchange phi is sent whole. The caller fills reply->step and ->tokens. */
enum tw_status tw_pairing_encode(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_encode *request,
                                 struct tw_wmsg_encoded *reply, struct tw_error *err);

/* Takes the outer step. A round that was applied before is answered, not repeated. TW_AGAIN: this
 * node sent nothing in the round, so it cannot merge. */
enum tw_status tw_pairing_apply(struct tw_pairing *pairing,
                                const struct tw_wmsg_pair_apply *request,
                                struct tw_wmsg_applied *reply, struct tw_error *err);

#endif
