/* merger.h - arithmetic of a round on one node: encodes its outer gradient, merges those of others,
 * and checks payloads. anchor.h takes the outer step on (phi, u) and updates theta.
 *
 * theta and the work in flight lie where the learner has its parameters, and are reached only
 * through vectors.h. (phi, u), the contributions of others and merges lie in host memory.
 *
 * Each function answers one request of worker_msg.h at a step boundary and checks all its
 * arguments first. If the status that it returns (and puts into *reply) is not TW_OK, then (phi, u)
 * and theta are unchanged.
 *
 * Merges and outer steps are host arithmetic in a fixed order: same inputs, same bits on every
 * node. One thread. With parameters on a device, the caller must call `written` and `finish` of
 * vectors.h after each request. */
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
    TW_NORMS_KEPT = 15, /* norms of merged Deltas kept per fragment: the clip uses their median */
    TW_CLIP_MEDIANS =
        3, /* limit of a Delta whose anchor theta was not trained from, in median norms */
};

struct tw_norm_history {
    uint32_t count; /* norms so far; the newest TW_NORMS_KEPT are kept */
    float norms[TW_NORMS_KEPT];
    float sent;        /* norm of the Delta in flight */
    float merge;       /* norm of the newest merge; 0: none yet */
    uint32_t unmerged; /* Deltas in a row that were not merged */
    float reach;       /* limit of a Delta, in norms of the newest merge; 0: none */
};

struct tw_merger {
    const struct tw_run *run;
    const struct tw_shm *shm;
    const struct tw_vectors *vectors;
    const struct tw_codec *codec;  /* codec of outer gradients */
    const struct tw_codec *result; /* codec of merged outer gradients */
    struct tw_rate_fit *fit;       /* owned; NULL unless sync.codec = auto */
    struct tw_packer *packer;
    float *scratch; /* (largest fragment), host: a merge, decoded results */
    void *pinned;   /* phi and u of shm, page-locked; NULL: they are not */
    float *v;       /* (largest fragment), live: a Delta for which inflight has no room,
                       or a merge; on the host the same memory as scratch */
    struct tw_device_anchor twin;     /* phi where the parameters lie */
    bool must_clip[TW_FRAGMENTS_MAX]; /* clip the next Delta of this fragment */
    struct tw_inflight inflight;      /* this node's work that is not merged yet */
    float *inputs;                    /* contributions, for merge rules that need more than a sum */
    size_t inputs_elements;
    struct tw_pieces *pieces; /* RDA: the tensors; merger_reduce.c */
    struct tw_norm_history history[TW_FRAGMENTS_MAX];
    struct tw_outlier *outlier; /* (fragments): usual sizes of results */
    struct {               /* AdamW's state for sync.lead; the caller sets it before an APPLY */
        float *m;          /* (elements), live, borrowed; NULL: none */
        const float *v;    /* (elements), live, borrowed */
        float lr;          /* learning rate of recent steps */
        float correction2; /* 1 - beta2^t; 0: no step yet */
    } inner;
    /* Work in steps at the run's full rate, for the sizes of outer gradients. The caller adds to
     * `done` after each step. */
    struct {
        bool is_known; /* false: every outer gradient counts as that of a whole period */
        double done;
        double begun[TW_FRAGMENTS_MAX]; /* `done` when the present outer gradient began */
    } work;
    uint64_t guarded_count; /* contributions refused or scaled, in total */
    bool has_said_mean;     /* it was logged that a robust rule takes the mean of few inputs */
    uint64_t changes_count; /* requests that changed (phi, u) or theta */
};

/* Borrows run, shm and vectors; allocates scratch memory. TW_NOMEM names the size. */
enum tw_status tw_merger_init(struct tw_merger *merger, const struct tw_run *run,
                              const struct tw_shm *shm, const struct tw_vectors *vectors,
                              struct tw_error *err);
void tw_merger_deinit(struct tw_merger *merger);

/* Bytes that init allocates on the device that has the parameters. */
uint64_t tw_merger_live_bytes(const struct tw_run *run, const struct tw_layout *layout);

/* Bytes of host memory that init allocates. is_host: the parameters are there too. */
uint64_t tw_merger_host_bytes(const struct tw_run *run, const struct tw_layout *layout,
                              bool is_host);

/* The part of theta that belongs to the fragment, live. */
float *tw_merger_theta(const struct tw_merger *merger, uint32_t fragment);

/* Encodes v (inflight.h) of each part into its span, then changes theta as sync.sent says. Work
 * that is still in flight is taken back first. With codec auto a part is encoded within its
 * bytes_max. TW_CORRUPT when an element is not finite; the bytes of the spans are then undefined.
 *
 * v is clipped after a load with TW_LOAD_KEEP, and after a Delta that was refused for its size: to
 * TW_CLIP_MEDIANS times the median norm of merged Deltas of the fragment, if there are any. After
 * two Deltas in a row that were refused, tw_merger_note_landed sets the limit. The caller fills
 * reply->step and ->tokens. */
enum tw_status tw_merger_encode(struct tw_merger *merger, const struct tw_wmsg_encode *request,
                                struct tw_wmsg_encoded *reply, struct tw_error *err);

/* The first half of tw_merger_encode: tw_inflight_begin into v (live), then a clip if one is due.
 * *norm := the norm of v. TW_CORRUPT when v is not finite. */
enum tw_status tw_merger_take(struct tw_merger *merger, uint32_t fragment, float *v, float *norm,
                              struct tw_error *err);

/* For anchor.c: notes whether the Delta in flight was merged. is_merged: some part contains it, and
 * no part refused it for its size. */
void tw_merger_note_landed(struct tw_merger *merger, uint32_t fragment, bool is_merged);

/* For anchor.c: theta is the anchor, so that an outer gradient of the fragment begins. */
void tw_merger_note_begun(struct tw_merger *merger, uint32_t fragment);

/* Decodes the inputs, merges them in the given order by the run's rule, and encodes once into
 * `out`. reply->refused: inputs that the guard left out. TW_LIMIT when it would leave out all:
 * nothing is merged. merger_reduce.c. */
enum tw_status tw_merger_reduce(struct tw_merger *merger, const struct tw_wmsg_reduce *request,
                                struct tw_wmsg_reduced *reply, struct tw_error *err);

/* Checks that the payload decodes, as its content type, to exactly `elements` finite values. For a
 * result also compares the size with earlier merges: reply->sanity (kernels/outlier.h). */
enum tw_status tw_merger_check(struct tw_merger *merger, const struct tw_wmsg_check *request,
                               struct tw_wmsg_checked *reply, struct tw_error *err);

/* For merger.c: memory of the merge rule. TW_NOMEM. deinit after a failed init, too. */
enum tw_status tw_merger_reduce_init(struct tw_merger *merger, struct tw_error *err);
/* Contributions of the largest fragment that reduce_init makes room for. */
uint64_t tw_merger_reduce_inputs(const struct tw_run *run);
void tw_merger_reduce_deinit(struct tw_merger *merger);

#endif
