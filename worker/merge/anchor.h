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

#include "worker/merge/anchor_publish.h"
#include "worker/merge/merger.h"

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

#endif
