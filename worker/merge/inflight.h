/* inflight.h - what this node sent and does not yet see in the anchor, and what coding lost of it.
 *
 * Of each fragment at most one outer gradient is under way. It is either merged, part by part, or
 * it is not; until then, and then, theta goes by sync.sent. With a = phi + c the anchor as this
 * node sees it, Delta = a - theta when it was sent, D what its payload decodes to, and phi' after
 * phi:
 *
 *     mix      sent:       nothing
 *              merged:     theta = mix theta + (1 - mix) phi'
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
 * So but for mix no step is lost and none counts twice: Delta is in the anchor, in theta, or under
 * way, and a part that was not merged is in the next Delta.
 *
 * **Eager** (Kale, Douillard, Donchev, arXiv 2502.12996, Algorithm 3). There every node m takes its
 * outer steps on an anchor and a momentum of its own, with its own share at once and the others'
 * one step later:
 *
 *     Dtilde_m(t) = w(t) Delta_m(t) + (Delta(t-1) - w(t-1) Delta_m(t-1)),  Delta = mean over m
 *
 * (The paper's text could be had only in part; with w = 1 / M this is the form its sentence
 * describes: "a mixture of the current local outer gradient with the delayed mixture of all other
 * replicas'".) The outer rules are linear in the deltas, so that anchor is the sum of the one
 * everybody shares, which steps on Delta(t-1), and of a correction of this node's, which steps on
 * w(t) Delta_m(t) - w(t-1) Delta_m(t-1): c, with a momentum of its own. The sum over t telescopes:
 * c fades when nothing more is sent. So (phi, u) stay the same bits everywhere, and no merge is
 * early or late: what c was given is taken from it when the merge that has it comes, exactly. The
 * gap penalty and the momentum clip are not linear; c does without.
 *
 * w = 1 / M takes the others' current deltas for 0, which is best where deltas have nothing in
 * common. It was tried with two replicas; with eight, seven eighths of every step come late, and
 * with momentum a short run diverges. w is therefore the regression of the mean on the own delta,
 * as of the last merge of the fragment, with 1 until there is one:
 *
 *     w(t) = <Delta(t-1), D_m(t-1)> / |D_m(t-1)|^2,  in [1 / M, 1]
 *
 * which is 1 / M where deltas are at right angles, and 1 where they are equal: then nothing is
 * late. M: contributors to that merge. With eight nodes it is better than 1 / M by a tenth of the
 * loss, and than 1 by a twentieth (tests/RECORDS.md).
 *
 * **Error feedback** (beta = sync.feedback > 0; Seide et al., 2014): encoded is v = beta' e +
 * Delta, and where it is merged e = v - D, else e stays. Of e a part rho = sync.feedback_local is
 * in theta, as in CSER (Xie et al., arXiv 2007.13221, there all of it): what theta gives away above
 * is not Delta but Delta - rho (v - D), so that the next Delta has rho e in it, and beta' = beta (1
 * - rho). Inner steps then begin where the node has got to in part, and do not go a way again that
 * is only waiting to be sent; with all of e there nodes drift apart (tests/RECORDS.md). Whatever
 * rho is, nothing is lost or sent twice. A v that is clipped loses its part of beta' e for good.
 *
 * Where another anchor comes, e is forgotten, which gives (1 - rho) e up: so, too, where a node
 * parts from a group or is cut off from it (phi := theta). It is recent there, but inner steps have
 * gone much of that way again, and no mean with others takes the node's own noise out of it: what
 * topk64 had lost by then cost 0.3 nats when theta took it at once, and 0.04 at the end
 * (tests/RECORDS.md). In a pair a node that is alone sends all of v to itself; there solo rounds
 * take e into theta.
 *
 * All of it lives in the worker's memory and in no snapshot. A worker that starts again has nothing
 * under way, c = 0, e = 0: what was under way is lost to theta if its merge does not come, e is
 * lost, and of a merge that comes theta := phi', for the snapshot may or may not have what was
 * sent. Memory, in floats per parameter, where the parameters lie: feedback 2, keep and restart 1,
 * eager 4. */
#ifndef TW_WORKER_MERGE_INFLIGHT_H
#define TW_WORKER_MERGE_INFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "proto/run/run.h"
#include "proto/shm.h"
#include "proto/worker_request.h"
#include "worker/engine/vectors.h"

struct tw_inflight {
    const struct tw_run *run;
    const struct tw_shm *shm;
    const struct tw_vectors *vectors;
    float *memory; /* live, owned: the arrays below, of `elements` each; NULL: no use for any */
    float *room;   /* (largest fragment), host, owned: for decoding; NULL on the host */
    float *residual, *residual_next; /* e; v - D of what is under way */
    float *given;                    /* Delta under way */
    float *share;                    /* eager: what c was given of it, w D */
    float *ahead, *ahead_u;          /* eager: c and its momentum */
    struct {
        bool is_out;           /* something is under way */
        uint64_t round;        /* it was sent in */
        float weight;          /* w, after a merge; 0: none yet */
        double along, squares; /* of shares and merges that landed: <merge, share>, |share|^2 */
    } fragments[TW_FRAGMENTS_MAX];
};

/* Borrows run, shm and vectors. TW_NOMEM names the size. deinit after a failed init, too. */
enum tw_status tw_inflight_init(struct tw_inflight *inflight, const struct tw_run *run,
                                const struct tw_shm *shm, const struct tw_vectors *vectors,
                                struct tw_error *err);
void tw_inflight_deinit(struct tw_inflight *inflight);

/* Arrays of as many elements as the model has that init takes of live memory. */
uint32_t tw_inflight_arrays(const struct tw_run *run);

/* ---- sending --------------------------------------------------------------------------------
 *
 * begin, then at most one clip, then pack or note for each part, then commit. A begin that is not
 * committed changes nothing but theta, which gets back what was still under way. theta and v are
 * of the whole fragment, live. */

/* Takes what is still under way back into theta, then fills v of this fragment. */
void tw_inflight_begin(struct tw_inflight *inflight, uint32_t fragment, float *v, const float *phi,
                       float *theta);

/* The caller scaled v by this factor: less is sent, the rest stays in theta. */
void tw_inflight_clip(struct tw_inflight *inflight, uint32_t fragment, float factor);

/* The payload of v from its element `begin` on. */
struct tw_inflight_payload {
    const struct tw_codec *codec;
    const float *v;     /* (n); live for pack, on the host for note */
    uint8_t *bytes;     /* host */
    size_t bytes_count; /* note: of the payload */
    bool has_lost;      /* note: the encoder left v - D in tw_inflight_lost() */
};

/* Packs elements [begin, begin + n) of v into this payload, where v lies. TW_CORRUPT, TW_DEVICE as
 * pack() of vectors.h, which has this codec. */
enum tw_status tw_inflight_pack(struct tw_inflight *inflight, uint32_t fragment, size_t begin,
                                size_t n, const struct tw_inflight_payload *payload,
                                struct tw_error *err);

/* Room for v - D from element `begin` on; v may lie there until it is coded. NULL: it is not
 * wanted, or not on the host. */
float *tw_inflight_lost(const struct tw_inflight *inflight, uint32_t fragment, size_t begin);

/* The caller encoded elements [begin, begin + n) of v into this payload, on the host. It decodes.
 */
void tw_inflight_note(struct tw_inflight *inflight, uint32_t fragment, size_t begin, size_t n,
                      const struct tw_inflight_payload *payload);

/* Every part is packed or noted: the fragment is under way, and theta gives up its share by
 * sync.sent. */
void tw_inflight_commit(struct tw_inflight *inflight, uint32_t fragment, uint64_t round,
                        float *theta);

/* v of what is under way: beta e + Delta. */
void tw_inflight_again(const struct tw_inflight *inflight, uint32_t fragment, float *v);

/* v is merged as it is, not what it decodes to: coding lost nothing. */
void tw_inflight_exact(struct tw_inflight *inflight, uint32_t fragment);

/* ---- merging --------------------------------------------------------------------------------- */

/* The outer step of a fragment, as it was published. */
struct tw_inflight_step {
    uint32_t fragment;
    uint64_t version;
    float *theta; /* of the whole fragment, live, and so below */
    const float *phi_old, *phi;
    const float *merged; /* what the outer step was taken on; eager alone asks */
};

/* Elements [begin, begin + n): theta, and everything here, after a step in this mode. */
void tw_inflight_land(struct tw_inflight *inflight, const struct tw_inflight_step *step,
                      size_t begin, size_t n, enum tw_apply_mode mode);

/* All of the fragment has landed: nothing is under way. contributors: to its merge, 0 for none. */
void tw_inflight_arrive(struct tw_inflight *inflight, uint32_t fragment, uint32_t contributors);

/* What is under way was merged nowhere: it goes back into theta. */
void tw_inflight_recall(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* Another anchor comes: what is under way and c go back into theta, so that phi - theta is this
 * node's own work; e is forgotten (above), for it may be of long ago. */
void tw_inflight_clear(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* e goes back into theta: in pairs it is to be in an anchor made of theta. */
void tw_inflight_flush(struct tw_inflight *inflight, uint32_t fragment, float *theta);

/* theta is overwritten: there is nothing to go back into. */
void tw_inflight_forget(struct tw_inflight *inflight, uint32_t fragment);

#endif
