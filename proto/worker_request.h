/* worker_request.h - requests of the core to a worker: one struct per kind of request.
 *
 * An action of the core (sync/node.h) and a packet to the worker (worker_msg.h) contain the same
 * struct. The core names payloads by SHA-256, beside the struct, and leaves every span zero. The
 * daemon fills in the spans: where an input is in the pool, or where an output may be written and
 * how long it may be. The structs are sent as raw bytes, so their layouts and enum values are
 * fixed. */
#ifndef TW_PROTO_WORKER_REQUEST_H
#define TW_PROTO_WORKER_REQUEST_H

#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

/* Content type of a payload. */
enum tw_content {
    TW_CONTENT_OPAQUE = 0, /* only the SHA-256 is checked */
    TW_CONTENT_DELTA = 1,  /* an outer gradient, in the run's sync.codec */
    TW_CONTENT_RESULT = 2, /* a merged outer gradient, in the run's sync.result */
    TW_CONTENT_PHI = 3,    /* a partner's anchor, coded as in compress/lattice.h */
};

/* How one part of an outer step changes (phi, u) and theta. */
enum tw_apply_mode {
    TW_APPLY_ABSENT = 0, /* no result: phi, u, theta unchanged */
    TW_APPLY_MIX = 1,    /* this node contributed: theta := alpha * theta + (1 - alpha) * phi_new */
    TW_APPLY_SHIFT = 2,  /* this node did not contribute: theta += phi_new - phi_old */
    TW_APPLY_STAY = 3,   /* theta unchanged: it still belongs to another lineage, or merging would
                            hurt */
};

/* Effect on theta when (phi, u) of a fragment are replaced. */
enum tw_load_mode {
    TW_LOAD_RESET = 0, /* theta := phi */
    TW_LOAD_KEEP = 1,  /* theta stays; its next Delta is clipped to 3 * the median norm */
    TW_LOAD_SHIFT = 2, /* theta += phi_new - phi_old */
    TW_LOAD_BACK = 3,  /* no payload: phi := theta, u := 0; the digest is not known in advance */
    TW_LOAD_TURN = 4,  /* no payload: theta := phi for all fragments at one step boundary */
};

/* A node's verdict on the size of a result, compared with earlier merges of the fragment:
 * kernels/outlier.h. */
enum tw_sanity {
    TW_SANITY_FAIR = 0,    /* the result has the usual size */
    TW_SANITY_OUTLIER = 1, /* far larger: unlikely for an honest merge of many members */
    TW_SANITY_EXTREME = 2, /* unlikely even for an honest merge of few members */
};

/* Order of the payloads of a pair: this node's Delta and phi, then the partner's. */
enum {
    TW_PAIR_DELTA,
    TW_PAIR_PHI,
    TW_PAIR_PAYLOADS,                  /* number of payloads of one side: its Delta and its phi */
    TW_PAIR_THEIRS = TW_PAIR_PAYLOADS, /* index of the partner's first payload */
};

struct tw_span {
    uint64_t offset; /* bytes from the start of the memfd, inside the pool */
    uint32_t bytes;
    uint32_t reserved;
};

/* Encode Delta of a fragment, one payload per part. Answered by ENCODED. */
struct tw_wmsg_encode {
    uint64_t round;
    uint32_t fragment, parts_count;
    struct {
        uint64_t begin, count; /* elements within the fragment */
        struct tw_span out;    /* where to write the payload; `bytes` is its capacity */
        uint64_t bytes_max;    /* sync.codec = auto: size limit of the payload, kept if possible; 0
                                  = none */
    } parts[TW_PARTS_MAX];
};

/* Merge the contributions to one part. Answered by REDUCED. */
struct tw_wmsg_reduce {
    uint64_t round, begin, count;
    uint32_t fragment, part, inputs_count;
    uint32_t is_audit; /* 1: the merge repeats another node's merge, so no input may be left out */
    struct tw_span out;
    struct {
        struct tw_span in;
        uint64_t tokens; /* tokens trained in this Delta */
        uint32_t steps, reserved;
    } inputs[TW_MEMBERS_MAX]; /* in order of summation: sorted by node id */
};

/* Check that a received payload decodes. Answered by CHECKED. */
struct tw_wmsg_check {
    uint64_t tag, elements;
    uint64_t begin;    /* for a result: elements [begin, begin + elements) of `fragment` */
    struct tw_span in; /* the payload */
    uint32_t content;  /* enum tw_content, not OPAQUE */
    uint32_t fragment;
};

struct tw_apply_part {
    uint64_t begin, count; /* elements within the fragment */
    uint32_t mode;         /* enum tw_apply_mode */
    uint32_t contributors; /* number of members in the result; 0 if ABSENT */
    struct tw_span in;     /* the result's payload; empty if ABSENT */
};

/* Take the outer step of one fragment, then change theta by each part's mode. Answered by APPLIED.
 */
struct tw_wmsg_apply {
    uint64_t round;
    uint64_t version;  /* number of earlier outer steps of this fragment, for the momentum ramp */
    uint64_t min_step; /* apply at the first step boundary at or after this step */
    uint32_t fragment, parts_count;
    uint32_t is_final; /* last round of the run: theta := phi_new */
    uint32_t steps;    /* inner steps in a Delta, averaged over the contributors; 0: not known */
    uint32_t is_refused, reserved; /* is_refused: an owner had this node's Delta but left it out as
                                      too large */
    struct tw_apply_part parts[TW_PARTS_MAX];
};

/* Train alone: phi := theta, u := 0. Answered by APPLIED. */
struct tw_wmsg_solo {
    uint64_t round;
    uint32_t fragment, reserved;
};

/* Encode Delta and phi of a whole fragment as two payloads. Answered by ENCODED with two parts. */
struct tw_wmsg_pair_encode {
    uint64_t round;
    uint32_t fragment;
    uint32_t is_whole;         /* 1: send phi uncompressed, not in lattice form */
    struct tw_span delta, phi; /* where to write the payloads; `bytes` is the capacity */
    uint64_t delta_bytes_max;  /* same as bytes_max of ENCODE */
};

/* Take the outer step of a pair. Answered by APPLIED. */
struct tw_wmsg_pair_apply {
    uint64_t round, version, min_step; /* as in APPLY */
    uint32_t fragment;
    uint32_t is_alone; /* 1: use only this node's Delta, unquantised; the spans are empty */
    uint32_t is_final; /* as in APPLY */
    uint32_t reserved;
    struct {
        struct tw_span delta, phi;
    } own, theirs;
};

/* Pack (phi, u) of a fragment. Answered by EXPORTED. */
struct tw_wmsg_export {
    uint32_t fragment, reserved;
    struct tw_span out; /* where to write the payload; `bytes` is its capacity */
};

/* Replace (phi, u) of a fragment by a packed payload, then change theta by `mode`. Answered by
 * APPLIED. */
struct tw_wmsg_load {
    uint32_t fragment;
    uint32_t mode; /* enum tw_load_mode */
    uint64_t rounds;
    struct tw_id digest; /* digest of (phi, u) after the load */
    /* packed payload; empty: (phi, u) already have this digest, so only `rounds` and `mode` apply
     */
    struct tw_span in;
};

/* Check that a member trained on the windows that it says: the two losses of windows that it drew
 * since the fragment was last merged are compared with those of windows that it has not drawn yet
 * (worker/loop/juror.h). The work is spread over many step boundaries. Answered by JUDGED. */
struct tw_wmsg_judge {
    uint64_t round;
    uint64_t seed;   /* seed of the order in which the member draws its data */
    uint64_t cursor; /* its position in that order when it encoded, in tokens */
    uint64_t tokens; /* tokens that it says it trained in this Delta */
    uint64_t draw;   /* chooses the windows */
    uint32_t fragment, parts_count;
    struct {
        uint64_t begin, count; /* elements within the fragment */
        struct tw_span in;     /* the contribution to this part */
    } parts[TW_PARTS_MAX];
};

/* Report the run clock to the worker. */
struct tw_wmsg_clock {
    uint64_t clock_tokens;  /* run clock at the newest committed round */
    uint64_t tokens_listed; /* tokens of this node that are in clock_tokens */
    uint32_t contributors;  /* contributors of the last round; the worker extrapolates the clock's
                               speed from them */
    uint32_t reserved;
};

/* The run is over: the worker takes no more steps but still serves requests. */
struct tw_wmsg_finish {
    uint32_t goes_on;    /* 1: the run is not over after all, so training continues */
    uint32_t is_settled; /* 1: no further merge will change the parameters */
};

#endif
