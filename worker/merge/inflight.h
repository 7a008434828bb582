/* inflight.h - outer gradients that this node sent and that are not in its anchor yet, and the
 * residuals of their encoding.
 *
 * At most one outer gradient per fragment is in flight. Later each part of it is either merged or
 * not. sync.sent decides how theta changes at sending, and after the merge. Let a = phi + c be the
 * anchor as this node sees it, Delta = a - theta at sending, D the decoded payload, and phi' the
 * new phi:
 *
 *     mix      sent:       nothing
 *              merged:     theta = mix * theta + (1 - mix) * phi'
 *              not merged: theta += phi' - phi
 *     keep     sent:       nothing
 *              merged:     theta += phi' - phi + Delta
 *              not merged: theta += phi' - phi
 *     restart  sent:       theta += Delta, so that theta = a
 *              merged:     theta += phi' - phi
 *              not merged: theta += phi' - phi - Delta
 *     eager    sent:       theta += Delta + c' - c
 *              merged:     theta += a' - a
 *              not merged: theta += a' - a - Delta
 *
 * Except with mix, no step is lost or counted twice: Delta is in the anchor, in theta, or in
 * flight. The next Delta contains the parts that were not merged.
 *
 * **Eager** (Kale, Douillard, Donchev, arXiv 2502.12996, Algorithm 3). Every node m takes its outer
 * steps on its own anchor and momentum. It uses its own outer gradient at once, and the outer
 * gradients of other nodes one step later:
 *
 *     Dtilde_m(t) = w(t) * Delta_m(t) + (Delta(t-1) - w(t-1) * Delta_m(t-1)),
 *     Delta = mean over m
 *
 * With w = 1 / M this agrees with the paper's words "a mixture of the current local outer gradient
 * with the delayed mixture of all other replicas'"; it is not verified against the full text. The
 * outer rules are linear in the deltas. So the node's anchor is a sum: the shared anchor, which
 * steps on Delta(t-1), and a correction c with its own momentum, which steps on w(t) * Delta_m(t) -
 * w(t-1) * Delta_m(t-1). The sum over t telescopes, and c fades when nothing more is sent. (phi, u)
 * therefore stay the same bits on all nodes. A merge may arrive at any time: c then loses exactly
 * the share that was added to it. The gap penalty and the momentum clip are not linear, so they are
 * not applied to c.
 *
 * w = 1 / M assumes that the other nodes' current deltas are 0, which is best if deltas are
 * orthogonal. The paper tried this with two replicas. With eight, seven eighths of every step are
 * late, and with momentum a short run diverges. So w is the regression coefficient of the mean on
 * this node's delta in the last merge of the fragment, and 1 before the first merge:
 *
 *     w(t) = <Delta(t-1), D_m(t-1)> / |D_m(t-1)|^2,  in [1 / M, 1]
 *
 * M is the number of contributors to that merge. w is 1 / M for orthogonal deltas, and 1 for equal
 * deltas: then nothing is late. With eight nodes, the loss is a tenth lower than with w = 1 / M,
 * and a twentieth lower than with w = 1 (tests/RECORDS.md).
 *
 * **Error feedback** (beta = sync.feedback > 0; Seide et al., 2014). The node encodes v = beta' * e
 * + Delta. If v is merged, the residual becomes e = v - D; else e is unchanged. A fraction rho =
 * sync.feedback_local of e stays in theta, as in CSER (Xie et al., arXiv 2007.13221), where rho =
 * 1. In the table above, Delta - rho * (v - D) therefore takes the place of Delta. The next Delta
 * contains rho * e, and beta' = beta * (1 - rho). Inner steps then start closer to the point that
 * the node has reached, and do not repeat work that only waits to be sent. With rho = 1 nodes drift
 * apart (tests/RECORDS.md). For any rho, nothing is lost or sent twice, except that a clipped v
 * loses its part of beta' * e for good.
 *
 * **Sparse results** (sync.result of 2 bits or fewer; gTop-k, arXiv 1901.04359). A result has
 * only the largest elements of a merge. For each of the others, every contributor's residual
 * becomes all of v, as if it had not been sent: owners keep no residual of results, so that anybody
 * can repeat a merge from its contributions alone.
 *
 * When the node adopts another anchor, or leaves a group (phi := theta), it drops e and so loses
 * (1 - rho) * e. After leaving, e is recent, but inner steps have repeated most of it. No mean with
 * other nodes would average out the node's own noise in e. Adding the residual of topk64 to theta
 * at once cost 0.3 nats at first and 0.04 at the end (tests/RECORDS.md). In a pair, a node that is
 * alone applies all of v to itself, and solo rounds add e to theta.
 *
 * All of this is in the worker's memory, and snapshots do not contain it. A restarted worker has
 * nothing in flight, c = 0 and e = 0. It has lost e, and also an outer gradient in flight that is
 * not merged. If that gradient is merged, theta := phi', because the snapshot may or may not
 * contain it. Memory, in floats per parameter, where the parameters lie: feedback 2, keep and
 * restart 1, eager 4. */
#ifndef TW_WORKER_MERGE_INFLIGHT_H
#define TW_WORKER_MERGE_INFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "compress/codec_auto.h"
#include "proto/run/run.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "proto/worker_request.h"
#include "worker/engine/vectors.h"

struct tw_inflight {
    const struct tw_run *run;
    const struct tw_shm *shm;
    const struct tw_vectors *vectors;
    /* live (vectors.h), owned: the arrays below, `elements` each; NULL if the run needs none */
    float *memory;
    float *room; /* host memory for decoding (largest fragment), owned; NULL if parameters are on
                    the host */
    float *residual, *residual_next; /* residual e, and v - D of the work in flight */
    float *given;                    /* Delta in flight */
    float *share;                    /* eager: w * D, which was added to c at sending */
    float *ahead, *ahead_u;          /* eager: the correction c and its momentum */
    struct {
        bool is_out;           /* true while an outer gradient is in flight */
        uint64_t round;        /* round in which the outer gradient was sent */
        float weight;          /* eager: w for the next outer gradient; 0: no merge yet */
        double along, squares; /* <merge, share> and |share|^2, over the parts merged so far */
    } fragments[TW_FRAGMENTS_MAX];
};

/* Borrows run, shm and vectors. Call deinit also after a failed init. Errors: TW_NOMEM, whose
 * message names the size. */
enum tw_status tw_inflight_init(struct tw_inflight *inflight, const struct tw_run *run,
                                const struct tw_shm *shm, const struct tw_vectors *vectors,
                                struct tw_error *err);
void tw_inflight_deinit(struct tw_inflight *inflight);

/* ---- sending --------------------------------------------------------------------------------
 *
 * Call begin, then clip at most once, then pack or note for each part, then commit. A begin without
 * a commit only returns the work that was still in flight to theta. theta and v are arrays of the
 * whole fragment, live. */

/* Returns work that is still in flight to theta, then computes v of this fragment. */
void tw_inflight_begin(struct tw_inflight *inflight, uint32_t fragment, float *v, const float *phi,
                       float *theta);

/* Tells that the caller scaled v by this factor: less is sent, and the rest stays in theta. */
void tw_inflight_clip(struct tw_inflight *inflight, uint32_t fragment, float factor);

/* Encoded bytes of v, from its element `begin` on. */
struct tw_inflight_payload {
    const struct tw_codec *codec;
    const float *v;     /* input to encode (n); live for pack, host memory for note */
    uint8_t *bytes;     /* host */
    size_t bytes_count; /* for note: bytes that the encoder wrote */
    bool has_lost;      /* for note: the encoder left v - D in tw_inflight_lost() */
};

/* Packs elements [begin, begin + n) of v into this payload, in the memory of v. vectors.h must be
 * able to pack the codec. Errors: TW_CORRUPT and TW_DEVICE, from pack() of vectors.h. */
enum tw_status tw_inflight_pack(struct tw_inflight *inflight, uint32_t fragment, size_t begin,
                                size_t n, const struct tw_inflight_payload *payload,
                                struct tw_error *err);

/* Returns memory for v - D from element `begin` on, where v may be stored until it is encoded.
 * Returns NULL if that memory is not needed or not on the host. */
float *tw_inflight_lost(const struct tw_inflight *inflight, uint32_t fragment, size_t begin);

/* Notes that the caller encoded elements [begin, begin + n) of v into this payload, on the host.
 * The payload must decode. */
void tw_inflight_note(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n,
                      const struct tw_inflight_payload *payload);

/* Call when every part is packed or noted: the outer gradient is then in flight. theta changes as
 * the table above says for "sent". */
void tw_inflight_commit(struct tw_inflight *inflight, uint32_t fragment, uint64_t round,
                        float *theta);

/* Computes v of the outer gradient in flight again: beta' * e + Delta. */
void tw_inflight_again(const struct tw_inflight *inflight, uint32_t fragment, float *v);

/* Call if v itself is merged instead of the decoded payload: the residual will then be 0. */
void tw_inflight_exact(struct tw_inflight *inflight, uint32_t fragment);

/* ---- merging --------------------------------------------------------------------------------- */

/* A published outer step of a fragment. */
struct tw_inflight_step {
    uint32_t fragment;
    uint64_t version;
    /* arrays of the whole fragment, in the parameters' memory */
    float *theta;
    const float *phi_old, *phi;
    const float *merged; /* merge that the outer step used; needed by eager only */
};

/* Updates elements [begin, begin + n) of theta, c and e after an outer step, by the part's mode. */
void tw_inflight_land(struct tw_inflight *inflight, const struct tw_inflight_step *step,
                      size_t begin, size_t n, enum tw_apply_mode mode);

/* Call when all parts have landed: nothing is in flight any more. `contributors` is the number of
 * contributors to the merge; 0 without a merge. */
void tw_inflight_arrive(struct tw_inflight *inflight, uint32_t fragment, uint32_t contributors);

/* Returns the outer gradient in flight, which was not merged, to theta. */
void tw_inflight_recall(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* Call before a change to another anchor. Returns the work in flight to theta and removes c, so
 * that phi - theta is this node's work. Drops e, which may be old. */
void tw_inflight_clear(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* Applies e to theta, for pairs: an anchor made from theta must contain e. */
void tw_inflight_flush(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* Call if theta is about to be overwritten: drops c, e and the work in flight. */
void tw_inflight_forget(struct tw_inflight *inflight, uint32_t fragment);

/* Checks that the ranges of a request of the daemon lie inside the model and the pool. If not, the
 * checks return TW_PROTO with the numbers, and the request is refused without effect. */

enum tw_status tw_request_fragment(const struct tw_shm *shm, uint32_t fragment,
                                   struct tw_error *err);

/* Returns the fragment that a request names, unchecked, or -1 if the request has none. */
int64_t tw_request_fragment_of(const struct tw_worker_msg *msg);

/* Checks that [begin, begin + count) lies in the fragment, which must be valid. */
enum tw_status tw_request_range(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                                uint64_t count, struct tw_error *err);

/* Checks the range like tw_request_range, and that the part begins at *end; then sets *end to the
 * part's end. Called for each part in order, starting with *end = 0, it ensures that parts are
 * adjacent. tw_request_whole then checks that the last part reaches the end of the fragment. */
enum tw_status tw_request_part(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                               uint64_t count, uint64_t *end, struct tw_error *err);
enum tw_status tw_request_whole(const struct tw_shm *shm, uint32_t fragment, uint64_t end,
                                struct tw_error *err);

/* Sets *bytes to the span's span->bytes bytes in the pool, borrowed. */
enum tw_status tw_request_span(const struct tw_shm *shm, const struct tw_span *span,
                               uint8_t **bytes, struct tw_error *err);

/* Checks that the payload decodes to `count` finite values. Errors: TW_PROTO for an invalid span,
 * TW_CORRUPT for the payload. */
enum tw_status tw_request_payload(const struct tw_shm *shm, const struct tw_codec *codec,
                                  const struct tw_span *span, uint64_t count, struct tw_error *err);

/* ---- encodes a part within a given number of bytes (sync.codec = auto) ----------------------- */

/* The part is split into pieces, each with its own codec, at tensor ends. */

/* Tensor ends and working memory for a run with codec auto. */
struct tw_rate_fit {
    uint32_t ends_count;
    uint64_t ends[TW_TENSORS_MAX]; /* ends of the tensors, in elements of the model, ascending */
    uint64_t inside[TW_TENSORS_MAX];
    struct tw_auto work;
};

/* Allocates *fit on the heap. Errors: TW_NOMEM, whose message names the size; TW_CONFIG and
 * TW_LIMIT, from tw_layout_init. */
enum tw_status tw_rate_fit_create(struct tw_rate_fit **fit, const struct tw_run *run,
                                  struct tw_error *err);
void tw_rate_fit_destroy(struct tw_rate_fit *fit);

/* The part to encode, elements [begin, begin + n) of the model, and the output buffer. */
struct tw_rate_fit_part {
    const float *x;
    uint64_t begin;
    size_t n;
    size_t bytes_max; /* 0: no target */
    uint8_t *out;
    size_t capacity;
};

/* As tw_auto_encode. */
enum tw_status tw_rate_fit_encode(struct tw_rate_fit *fit, const struct tw_rate_fit_part *part,
                                  size_t *bytes_out);

#endif
