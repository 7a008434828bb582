/* anchor.h - the anchor of a fragment (phi, u): the outer step, replacement and export, and their
 * effect on the live parameters theta.
 *
 * Each function answers one request of worker_msg.h at a step boundary and checks all its
 * arguments first. If the status that it returns (and puts into *reply) is not TW_OK, then (phi, u)
 * and theta are unchanged. (phi, u) change only through tw_shm_stage_publish: a kill at any point
 * leaves the fragment either as it was or as it is after the request. theta is lost with the
 * process; a worker that starts from a snapshot takes theta from phi where the rounds differ. */
#ifndef TW_WORKER_MERGE_ANCHOR_H
#define TW_WORKER_MERGE_ANCHOR_H

#include "worker/merge/anchor_publish.h"
#include "worker/merge/merger.h"

/* Takes the outer step with the committed results, then changes theta by the mode of each part (mix
 * or shift). is_final: theta := phi. A round that was applied before is answered, not repeated. */
enum tw_status tw_anchor_apply(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_wmsg_applied *reply, struct tw_error *err);

/* tw_anchor_apply in three calls, which compute the new anchor beside the published one. */
struct tw_anchor_work {
    struct tw_wmsg_apply request;
    struct tw_anchor_publish stage;
    float *merged;                 /* (largest fragment), host, the caller's: decoded results */
    struct tw_outlier_sizes sizes; /* sizes of the results */
    double squares;
    struct tw_shm_state state; /* rounds and digest of the new anchor */
};

/* At a step boundary: checks the request, except for the bytes of the results, and begins. The
 * round must not have been applied. TW_PROTO. Until tw_anchor_land, or until the work is given up,
 * no other stage may begin, and no other request may touch the fragment. */
enum tw_status tw_anchor_begin(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_anchor_work *work, struct tw_error *err);
/* Decodes the results, takes the outer step and seals the new anchor. Runs on any thread. It reads
 * run, shm and codecs of the merger, and from shared memory the fragment and the request's spans.
 * TW_CORRUPT: the work must be given up. */
enum tw_status tw_anchor_work(const struct tw_merger *merger, struct tw_anchor_work *work,
                              struct tw_error *err);
/* At a step boundary: publishes the new anchor and updates theta. */
void tw_anchor_land(struct tw_merger *merger, const struct tw_anchor_work *work);

/* Without peers: phi := theta, u := 0. A round that was applied before is answered, not repeated.
 */
enum tw_status tw_anchor_solo(struct tw_merger *merger, const struct tw_wmsg_solo *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

/* Packs (phi, u) without loss, for a node that joins. */
enum tw_status tw_anchor_export(struct tw_merger *merger, const struct tw_wmsg_export *request,
                                struct tw_wmsg_exported *reply, struct tw_error *err);

/* (phi, u) := packed payload with this digest. An empty payload sets only the number of rounds. */
enum tw_status tw_anchor_load(struct tw_merger *merger, const struct tw_wmsg_load *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

#endif
