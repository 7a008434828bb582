/* anchor.h - the anchor of a fragment (phi, u): the outer step on it, its replacement, its export,
 * and what each of them does to the live parameters theta.
 *
 * Each function answers one request of worker_msg.h at a step boundary. It checks everything it was
 * given, then works; when the status it puts into *reply (and returns) is not TW_OK, neither (phi,
 * u) nor theta has changed. (phi, u) change only through tw_shm_stage_publish: a kill at any point
 * leaves the fragment as it was, or as it is after the request; theta is then lost anyway, and a
 * worker that starts from a snapshot takes theta from phi where the rounds differ. */
#ifndef TW_WORKER_MERGE_ANCHOR_H
#define TW_WORKER_MERGE_ANCHOR_H

#include "worker/merge/anchor_publish.h"
#include "worker/merge/merger.h"

/* Outer step with the committed results, then theta: mix (contributed), shift (did not) or leave
 * (absent); is_final: theta := phi. A round that was applied before is answered, not repeated. */
enum tw_status tw_anchor_apply(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_wmsg_applied *reply, struct tw_error *err);

/* The same in three: what an APPLY makes of the anchor, beside the one that is published. */
struct tw_anchor_work {
    struct tw_wmsg_apply request;
    struct tw_anchor_publish stage;
    float *merged; /* (largest fragment), host, the caller's: the results, each at its place */
    struct tw_outlier_sizes sizes; /* of them */
    double squares;
    struct tw_shm_state state; /* what is to be published */
};

/* At a step boundary: checks the request, which is one of a round that was not applied, and begins.
 * TW_PROTO; what the results hold is not looked at. Until it is landed, or given up, no other stage
 * may begin, and nothing else be asked of the fragment. */
enum tw_status tw_anchor_begin(struct tw_merger *merger, const struct tw_wmsg_apply *request,
                               struct tw_anchor_work *work, struct tw_error *err);
/* Decodes, takes the outer step, seals. By any thread: reads of the merger run, shm and codecs, of
 * shared memory the request's spans and the fragment. TW_CORRUPT: it is not to be landed. */
enum tw_status tw_anchor_work(const struct tw_merger *merger, struct tw_anchor_work *work,
                              struct tw_error *err);
/* At a step boundary: publishes it and carries it into theta. */
void tw_anchor_land(struct tw_merger *merger, const struct tw_anchor_work *work);

/* Alone: phi := theta, u := 0. A round that was applied before is answered, not repeated. */
enum tw_status tw_anchor_solo(struct tw_merger *merger, const struct tw_wmsg_solo *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

/* (phi, u), packed without loss, for a node that joins. */
enum tw_status tw_anchor_export(struct tw_merger *merger, const struct tw_wmsg_export *request,
                                struct tw_wmsg_exported *reply, struct tw_error *err);

/* (phi, u) := packed payload with this digest, or only the number of rounds when it is empty. */
enum tw_status tw_anchor_load(struct tw_merger *merger, const struct tw_wmsg_load *request,
                              struct tw_wmsg_applied *reply, struct tw_error *err);

#endif
