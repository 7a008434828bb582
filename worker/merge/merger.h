/* merger.h - arithmetic of a round on one node: encodes its outer gradient, merges other nodes'
 * contributions, and checks payloads. anchor.h takes the outer step on (phi, u) and updates theta.
 *
 * theta and the work in flight lie where the learner has its parameters, and are reached only
 * through vectors.h. (phi, u), other nodes' contributions and merges lie in host memory.
 *
 * Each function answers one request of worker_msg.h at a step boundary and checks all its arguments
 * first. If the status that the function returns (and puts into *reply) is not TW_OK, (phi, u) and
 * theta are unchanged.
 *
 * Merges and outer steps are host arithmetic in a fixed order: same inputs, same bits on every
 * node. Used by one thread. With parameters on a device, the caller must call `written` and
 * `finish` of vectors.h after each request. */
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

enum {
    TW_NORMS_KEPT = 15,  /* norms of merged Deltas kept per fragment, to clip by their median */
    TW_CLIP_MEDIANS = 3, /* limit, in median norms, of a Delta that must be clipped */
};

struct tw_norm_history {
    uint32_t count; /* norms recorded so far; the newest TW_NORMS_KEPT are kept */
    float norms[TW_NORMS_KEPT];
    float sent;        /* norm of the Delta in flight */
    float merge;       /* norm of the newest merge; 0: none yet */
    uint32_t unmerged; /* number of consecutive Deltas that were not merged */
    float reach;       /* limit of a Delta, as a factor on `merge`; 0: no limit */
};

struct tw_merger {
    const struct tw_run *run;
    const struct tw_shm *shm;
    const struct tw_vectors *vectors;
    const struct tw_codec *codec;  /* codec of outer gradients */
    const struct tw_codec *result; /* codec of results, the merged outer gradients */
    struct tw_rate_fit *fit;       /* owned; NULL unless sync.codec = auto */
    struct tw_packer *packer;
    float *scratch; /* host memory (largest fragment), for a merge or decoded results */
    void *pinned;   /* phi and u of shm if they are page-locked; else NULL */
    float *v;       /* live memory (largest fragment), for a merge or a Delta that inflight does not
                       store; on the host the same memory as scratch */
    struct tw_device_anchor twin;     /* phi in the memory of the parameters */
    bool must_clip[TW_FRAGMENTS_MAX]; /* per fragment: the next Delta must be clipped */
    struct tw_inflight inflight;      /* this node's work that is not merged yet */
    float *inputs;                    /* contributions, for merge rules that need more than a sum */
    size_t inputs_elements;
    struct tw_pieces *pieces; /* the model's tensors, for RDA (merger.c) */
    struct tw_norm_history history[TW_FRAGMENTS_MAX];
    struct tw_outlier *outlier; /* usual sizes of results, (fragments) */
    struct {                    /* AdamW's state for sync.lead, set by the caller before an APPLY */
        float *m;               /* first moment (elements), live, borrowed; NULL: none */
        const float *v;         /* second moment (elements), live, borrowed */
        float lr;               /* learning rate of recent steps */
        float correction2;      /* AdamW's bias correction 1 - beta2^t; 0: no step yet */
    } inner;
    /* Work done, counted in steps at the run's full learning rate. It scales the sizes of outer
     * gradients. The caller adds to `done` after each step. */
    struct {
        bool is_known; /* if false, every outer gradient counts as a whole period's work */
        double done;
        double begun[TW_FRAGMENTS_MAX]; /* value of `done` when the current outer gradient began */
    } work;
    uint64_t guarded_count; /* total number of contributions refused or scaled */
    bool has_said_mean;     /* a warning was logged: too few inputs for the robust rule, so their
                               mean is merged */
    uint64_t changes_count; /* requests that changed (phi, u) or theta */
};

/* Borrows run, shm and vectors, and allocates scratch memory. Errors: TW_NOMEM, whose message names
 * the size. */
enum tw_status tw_merger_init(struct tw_merger *merger, const struct tw_run *run,
                              const struct tw_shm *shm, const struct tw_vectors *vectors,
                              struct tw_error *err);
void tw_merger_deinit(struct tw_merger *merger);

/* Returns the fragment's range of theta, live. */
float *tw_merger_theta(const struct tw_merger *merger, uint32_t fragment);

/* Encodes v (inflight.h) of each part into its span, then changes theta as sync.sent says. Work
 * that is still in flight first returns to theta. With codec auto a part is encoded within its
 * bytes_max. Returns TW_CORRUPT if an element is not finite; the bytes of the spans are then
 * undefined.
 *
 * v is clipped after a load with TW_LOAD_KEEP, and after a Delta that was refused for its size. The
 * limit is TW_CLIP_MEDIANS times the median norm of the fragment's merged Deltas, if there are any.
 * After two Deltas in a row that were refused, tw_merger_note_landed sets the limit. The caller
 * fills reply->step and ->tokens. */
enum tw_status tw_merger_encode(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                struct tw_wmsg_encoded *reply, struct tw_error *err);

/* The first half of tw_merger_encode: tw_inflight_begin into v (live), then a clip if one is due.
 * Sets *norm to the norm of v. Returns TW_CORRUPT if v is not finite. */
enum tw_status tw_merger_take(struct tw_merger *merger, uint32_t fragment, float *v, float *norm,
                              struct tw_error *err);

/* For anchor.c: records whether the Delta in flight was merged. is_merged means that some part
 * contains the Delta, and no owner refused it for its size. */
void tw_merger_note_landed(struct tw_merger *merger, uint32_t fragment, bool is_merged);

/* For anchor.c: theta was just set to the anchor, so a new outer gradient of the fragment begins.
 */
void tw_merger_note_begun(struct tw_merger *merger, uint32_t fragment);

/* Decodes the inputs, merges them in the given order by the run's rule, and encodes the merge once
 * into `out`. reply->refused is the set of inputs that the guard refused; reply->sizes says which
 * ones are large (worker_msg.h). An audit refuses none. Returns TW_LIMIT, with nothing merged, if
 * the guard refuses all. */
enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err);

/* Checks that the payload decodes, as its content type, to exactly `elements` finite values. For a
 * result, also compares its size with earlier merges and sets reply->sanity (kernels/outlier.h). */
enum tw_status tw_merger_check(struct tw_merger *merger, const struct tw_wmsg_check *request,
                               struct tw_wmsg_checked *reply, struct tw_error *err);

#endif
