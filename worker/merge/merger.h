/* merger.h - what a node does with outer gradients: encode its own, merge others', take the outer
 * step on (phi, u), and carry the result into the live parameters theta. Theta and what was sent
 * are where the learner has them, reached by vectors.h alone; (phi, u), others' contributions and
 * merges are the host's.
 *
 * Each function answers one request of worker_msg.h at a step boundary. It checks everything it was
 * given, then works; when the status it puts into *reply (and returns) is not TW_OK, neither (phi,
 * u) nor theta has changed. (phi, u) change only through tw_shm_stage_publish: a kill at any point
 * leaves the fragment as it was, or as it is after the request.
 *
 * Merges and outer steps are host arithmetic in fixed order: same inputs, same bits on every node.
 * One thread. Where parameters are on a device a caller is done with a request after `written` and
 * `finish` of vectors.h. */
#ifndef TW_WORKER_MERGE_MERGER_H
#define TW_WORKER_MERGE_MERGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "compress/pack.h"
#include "kernels/outlier.h"
#include "proto/run/run.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"
#include "worker/engine/vectors.h"
#include "worker/merge/device_anchor.h"
#include "worker/merge/inflight.h"
#include "worker/merge/rate_fit.h"

enum {
    TW_NORMS_KEPT = 15,  /* of Deltas of a fragment that were merged: the clip uses their median */
    TW_CLIP_MEDIANS = 3, /* a Delta against an anchor we did not train from: at most so many */
};

struct tw_norm_history {
    uint32_t count; /* ever; the newest TW_NORMS_KEPT are held */
    float norms[TW_NORMS_KEPT];
    float sent;        /* of the Delta under way */
    float merge;       /* of the newest merge; 0: none yet */
    uint32_t unmerged; /* Deltas in a row */
    float reach;       /* not 0: at most so many merges are sent */
};

struct tw_merger {
    const struct tw_run *run;
    const struct tw_shm *shm;
    const struct tw_vectors *vectors;
    const struct tw_codec *codec;  /* of outer gradients */
    const struct tw_codec *result; /* of merged ones */
    struct tw_rate_fit *fit;       /* owned; NULL but for sync.codec = auto */
    struct tw_packer *packer;
    float *scratch; /* (largest fragment), host: a merge, decoded results */
    float *v;       /* (largest fragment), live: a Delta, where the in-flight work does
                       not have it, a merge; on the host scratch itself */
    struct tw_device_anchor twin;     /* phi, live */
    bool must_clip[TW_FRAGMENTS_MAX]; /* the next Delta of this fragment */
    struct tw_inflight inflight;      /* what was sent */
    float *inputs;                    /* contributions, where the merge wants more than their sum */
    size_t inputs_elements;
    struct tw_pieces *pieces; /* RDA: the tensors; merger_reduce.c */
    struct tw_norm_history history[TW_FRAGMENTS_MAX];
    struct tw_outlier *outlier; /* (fragments): what results of each are like */
    struct {               /* AdamW as it is now, for sync.lead: the caller's, before an APPLY */
        float *m;          /* (elements), live, borrowed; NULL: none */
        const float *v;    /* (elements), live, borrowed */
        float lr;          /* of the steps of late */
        float correction2; /* 1 - beta2^t; 0: no step yet */
    } inner;
    uint64_t guarded_count; /* contributions refused or scaled, ever */
    bool has_said_mean;     /* that robust merges are means where few contribute */
    uint64_t changes_count; /* requests that changed (phi, u) or theta */
};

/* Borrows run, shm and vectors; allocates scratch memory. TW_NOMEM names the size. */
enum tw_status tw_merger_init(struct tw_merger *merger, const struct tw_run *run,
                              const struct tw_shm *shm, const struct tw_vectors *vectors,
                              struct tw_error *err);
void tw_merger_deinit(struct tw_merger *merger);

/* Bytes that init takes where parameters lie, but for the host. */
uint64_t tw_merger_live_bytes(const struct tw_run *run, const struct tw_layout *layout);

/* theta of one fragment, live. */
float *tw_merger_theta(const struct tw_merger *merger, uint32_t fragment);

/* Delta = phi - theta over each part, with what the in-flight work adds, encoded into its span;
 * then theta as inflight.h says. TW_CORRUPT when an element is not finite; the spans' contents are
 * then undefined. Where the codec is auto a part is encoded within its bytes_max. What is still
 * under way of the fragment is taken back first. After a load with TW_LOAD_KEEP, and after a Delta
 * that was not merged (maybe because it was too large), it is scaled down to TW_CLIP_MEDIANS times
 * the median norm of this fragment's Deltas that were merged, if there are any, and after two in a
 * row that were not to what tw_merger_note_landed allows. reply->step and ->tokens are the
 * caller's. */
enum tw_status tw_merger_encode(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                struct tw_wmsg_encoded *reply, struct tw_error *err);

/* The first half of it: what is to be sent of the fragment into v, live, as tw_inflight_begin
 * leaves it; its norm, after a clip where one is due, into *norm. TW_CORRUPT when it is not finite.
 */
enum tw_status tw_merger_take(struct tw_merger *merger, uint32_t fragment, float *v, float *norm,
                              struct tw_error *err);

/* For anchor.c: what became of the Delta that was under way; is_merged: all of it was. */
void tw_merger_note_landed(struct tw_merger *merger, uint32_t fragment, bool is_merged);

/* The decoded inputs, in the order given, merged as the run says and encoded once into `out`.
 * reply->refused: those the guard left out. TW_LIMIT when it would leave out all: nothing is
 * merged. merger_reduce.c. */
enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err);

/* Would the payload decode, as what it is to be, to exactly `elements` finite values? A result that
 * does is also compared with the merges before it: reply->sanity (kernels/outlier.h). */
enum tw_status tw_merger_check(struct tw_merger *merger, const struct tw_wmsg_check *request,
                               struct tw_wmsg_checked *reply, struct tw_error *err);

/* For merger.c: memory of the merge rule. TW_NOMEM. deinit after a failed init, too. */
enum tw_status tw_merger_reduce_init(struct tw_merger *merger, struct tw_error *err);
void tw_merger_reduce_deinit(struct tw_merger *merger);

#endif
