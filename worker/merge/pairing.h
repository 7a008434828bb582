/* pairing.h - the outer step of a run in pairs: NoLoCo, arXiv 2506.10911, as kernels/outer.h has
 * it.
 *
 * Each node has an anchor of its own. Of a fragment it sends its outer gradient and its phi
 * (compress/lattice.h); with those of its partner, both as everybody decodes them,
 *
 *     u   = mu u + eta (D_own + D_theirs) / 2 - gamma/2 (S_theirs - S_own)
 *     phi = phi - u,     theta = theta + (phi' - phi) + Delta
 *
 * The partner takes the mirrored step: the gamma terms cancel, each D is merged half here and half
 * there, and what coding lost of ours stays in the residual and in theta (worker/merge/inflight.h).
 * So two of them together lose nothing but what is scaled down (below). Alone, the step is taken on
 * the own v = beta e + Delta as it is, and e = 0. What was trained since Delta was taken stays in
 * theta.
 *
 * What is large of theirs is scaled down, and what is far too large is not merged: pair_guard.h.
 * That, a payload of the partner that is damaged, or a phi that is too far away to be read, is no
 * failure: the step is then taken alone, and the answer says so. Requests and their statuses
 * otherwise as in anchor.h. */
#ifndef TW_WORKER_MERGE_PAIRING_H
#define TW_WORKER_MERGE_PAIRING_H

#include "worker/merge/merger.h"
#include "worker/merge/pair_guard.h"

struct tw_pairing {
    struct tw_merger *merger;
    float *own, *theirs;              /* (largest fragment) each: decoded anchors */
    float *delta;                     /* (largest fragment): what the partner sent */
    float distance[TW_FRAGMENTS_MAX]; /* running maximum of |S_theirs - phi| and |phi' - phi|;
                                         0: met nobody yet */
    struct tw_pair_guard guards[TW_FRAGMENTS_MAX];
};

/* Borrows the merger. Allocates in a run in pairs only; TW_NOMEM names the size. */
enum tw_status tw_pairing_init(struct tw_pairing *pairing, struct tw_merger *merger,
                               struct tw_error *err);
void tw_pairing_deinit(struct tw_pairing *pairing);

/* Delta and phi of the fragment into their spans: reply->bytes[0] and [1]. phi is whole until a
 * partner was met. reply->step and ->tokens are the caller's. */
enum tw_status tw_pairing_encode(struct tw_pairing *pairing,
                                 const struct tw_wmsg_pair_encode *request,
                                 struct tw_wmsg_encoded *reply, struct tw_error *err);

/* The step. A round that was applied before is answered, not repeated. TW_AGAIN: nothing was sent
 * in this round, so there is nothing to merge. */
enum tw_status tw_pairing_apply(struct tw_pairing *pairing,
                                const struct tw_wmsg_pair_apply *request,
                                struct tw_wmsg_applied *reply, struct tw_error *err);

#endif
