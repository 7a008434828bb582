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
 * pair_guard.h. The node then takes the step alone and reports this in its answer. It also steps
 * alone if a payload of the partner is damaged, or if the partner's phi is too far away to be
 * decoded. Requests and statuses are otherwise as in anchor.h. */
#ifndef TW_WORKER_MERGE_PAIRING_H
#define TW_WORKER_MERGE_PAIRING_H

#include "worker/merge/merger.h"
#include "worker/merge/pair_guard.h"

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
