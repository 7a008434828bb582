/* anchor.h - the anchor of a fragment (phi, u): the outer step, replacement and export, and their
 * effect on the live parameters theta.
 *
 * Each function answers one request of worker_msg.h at a step boundary and checks all its arguments
 * first. If the status that the function returns (and puts into *reply) is not TW_OK, (phi, u) and
 * theta are unchanged. (phi, u) change only through tw_shm_stage_publish: a kill at any point
 * leaves the fragment either as before or as after the request. theta is lost with the process. A
 * worker that starts from a snapshot sets theta to phi in fragments that were merged again since
 * then. */
#ifndef TW_WORKER_MERGE_ANCHOR_H
#define TW_WORKER_MERGE_ANCHOR_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/outer.h"
#include "proto/run/run.h"
#include "worker/merge/merger.h"

/* Changes one fragment of the anchor: new values are written beside the old ones, and a single
 * store publishes them. */

struct tw_anchor_publish {
    uint32_t fragment;
    size_t elements;
    enum tw_momentum momentum;
    const float *phi_old; /* published values, unchanged until the next stage begins */
    const void *u_old;    /* as u: of the type `momentum` */
    float *phi;           /* in the spare */
    void *u;              /* in the spare; not to be touched where `momentum` is NONE */
    const float *live_old,
        *live; /* copies of phi_old, and of phi once published, in the memory of theta */
};

void tw_anchor_publish_begin(struct tw_merger *merger, uint32_t fragment,
                             struct tw_anchor_publish *stage);

/* Seals and publishes. Returns TW_CORRUPT, with nothing published, if a value is not finite or the
 * new state does not have the digest `expected` (NULL: any digest). */
enum tw_status tw_anchor_publish_end(struct tw_merger *merger, struct tw_anchor_publish *stage,
                                     uint64_t rounds, const struct tw_id *expected,
                                     struct tw_error *err);

/* Computes the rounds and the digest of the staged values. Returns TW_CORRUPT if a value is not
 * finite: a merge of finite numbers can overflow. Reads only the stage, so any thread may call it.
 */
enum tw_status tw_anchor_publish_seal(const struct tw_anchor_publish *stage, uint64_t rounds,
                                      struct tw_shm_state *state, struct tw_error *err);

/* Fills the reply with the status and the current state of the fragment. */
void tw_anchor_publish_reply(const struct tw_merger *merger, uint32_t fragment,
                             enum tw_status status, struct tw_wmsg_applied *reply);

/* Returns whether this round was already applied. Its request is then answered, but not applied
 * again. */
bool tw_anchor_publish_is_applied(const struct tw_merger *merger, uint32_t fragment,
                                  uint64_t round);

/* ---- anchor ---------------------------------------------------------------------------------- */

/* Takes the outer step with the committed results, then changes theta by the mode of each part (mix
 * or shift). With is_final, theta is set to phi. A round that was already applied is answered, but
 * not applied again. */
enum tw_status tw_anchor_apply(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_wmsg_applied *reply, struct tw_error *err);

/* State of tw_anchor_apply when it is split into the three calls below. They compute the new anchor
 * beside the published one. */
struct tw_anchor_work {
    struct tw_wmsg_apply request;
    struct tw_anchor_publish stage;
    float *merged; /* decoded results (largest fragment), host memory of the caller */
    struct tw_outlier_sizes sizes; /* sizes of the results' blocks, to judge later results */
    double squares;
    struct tw_shm_state state; /* rounds and digest of the new anchor */
};

/* At a step boundary: checks the request, except for the bytes of the results, and begins. The
 * round must not have been applied. Until tw_anchor_land, or until the work is cancelled, no other
 * stage may begin, and no other request may touch the fragment. Errors: TW_PROTO. */
enum tw_status tw_anchor_begin(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_anchor_work *work, struct tw_error *err);

/* Decodes the results, takes the outer step and seals the new anchor. Runs on any thread. Reads
 * run, shm and codecs of the merger, and from shared memory the fragment and the request's spans.
 * After TW_CORRUPT the work must be cancelled. */
enum tw_status tw_anchor_work(const struct tw_merger *merger, struct tw_anchor_work *work,
                              struct tw_error *err);

/* At a step boundary: publishes the new anchor and updates theta. */
void tw_anchor_land(struct tw_merger *merger, const struct tw_anchor_work *work);

/* For a node without peers: sets phi to theta and u to 0. A round that was already applied is
 * answered, but not applied again. */
enum tw_status tw_anchor_solo(struct tw_merger *merger, const struct tw_wmsg_solo *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

/* Packs (phi, u) without loss, for a joining node. */
enum tw_status tw_anchor_export(struct tw_merger *merger, const struct tw_wmsg_export *request,
                                struct tw_wmsg_exported *reply, struct tw_error *err);

/* Replaces (phi, u) by a packed payload with this digest. An empty payload sets only the number of
 * rounds. */
enum tw_status tw_anchor_load(struct tw_merger *merger, const struct tw_wmsg_load *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

/* ---- outer steps on the momentum u in the type in which a run keeps it ----------------------- */

/* A step computes in float32. With bf16, u is then rounded to nearest even; phi takes its step with
 * u as it was before. Without momentum, u begins each step at 0 and is dropped after it. All nodes
 * compute the same bits, because the type belongs to the manifest and rounding keeps no state. */

/* One outer step of elements [begin, begin + n). phi and u: arrays of the fragment, in/out. */
struct tw_momentum_step {
    enum tw_momentum momentum;
    float *phi;
    void *u; /* not touched where `momentum` is NONE */
    size_t begin, n;
};

/* The two outer steps and the pull of kernels/outer.h. delta, own, theirs (n) begin at `begin`. */
void tw_momentum_nesterov(const struct tw_momentum_step *step, const float *delta,
                          struct tw_outer rule);
void tw_momentum_heavyball(const struct tw_momentum_step *step, const float *delta,
                           struct tw_outer rule);
void tw_momentum_pull(const struct tw_momentum_step *step, const float *own, const float *theirs,
                      float half);

/* Returns the sum of squares of u[begin .. begin + n), in a fixed order; 0 where there is no u. */
double tw_momentum_squared(enum tw_momentum momentum, const void *u, size_t begin, size_t n);

/* Returns whether all n elements of u are finite. bf16 rounds values near the largest up to
 * infinity. */
bool tw_momentum_is_finite(enum tw_momentum momentum, const void *u, size_t n);

#endif
