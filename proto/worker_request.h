/* worker_request.h - requests of the core to a worker: one struct per kind of request.
 *
 * An action of the core (sync/node.h) and a packet to the worker (worker_msg.h) hold the same
 * struct. The core names payloads by SHA-256, beside the struct, and leaves every span zero. The
 * daemon fills the spans: where an input lies in the pool, or how much room an output has. The
 * bytes travel, so layouts and numbers are fixed. */
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
    TW_APPLY_MIX = 1,    /* this node contributed: theta := alpha theta + (1 - alpha) phi_new */
    TW_APPLY_SHIFT = 2,  /* this node did not contribute: theta += phi_new - phi_old */
    TW_APPLY_STAY = 3,   /* theta stays: it still belongs to another lineage, or merging hurts */
};

/* Effect on theta when (phi, u) of a fragment are replaced. */
enum tw_load_mode {
    TW_LOAD_RESET = 0, /* theta := phi */
    TW_LOAD_KEEP = 1,  /* theta stays; its next Delta is clipped to 3x the median norm */
    TW_LOAD_SHIFT = 2, /* theta += phi_new - phi_old */
    TW_LOAD_BACK = 3,  /* no payload: phi := theta, u := 0; the digest is not known before */
    TW_LOAD_TURN = 4,  /* no payload: theta := phi for all fragments at one step boundary */
};

/* Size of a result compared with earlier merges of the fragment, as one node judges it:
 * kernels/outlier.h. */
enum tw_sanity {
    TW_SANITY_FAIR = 0,    /* the result has the usual size */
    TW_SANITY_OUTLIER = 1, /* far larger: unlikely for an honest merge of many members */
    TW_SANITY_EXTREME = 2, /* unlikely even for an honest merge of few members */
};

/* Order of a pair's payloads: own Delta, own phi, then the partner's two. */
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

/* Delta of a fragment, one payload per part. Answered by ENCODED. */
struct tw_wmsg_encode {
    uint64_t round;
    uint32_t fragment, parts_count;
    struct {
        uint64_t begin, count; /* elements within the fragment */
        struct tw_span out;    /* capacity */
        uint64_t bytes_max;    /* sync.codec = auto: upper bound, kept if possible; 0 = none */
    } parts[TW_PARTS_MAX];
};

/* Merge of inputs of one part. Answered by REDUCED. */
struct tw_wmsg_reduce {
    uint64_t round, begin, count;
    uint32_t fragment, part, inputs_count;
    uint32_t is_audit; /* 1: the merge repeats that of another node, so no input is refused */
    struct tw_span out;
    struct {
        struct tw_span in;
        uint64_t tokens; /* tokens trained in this Delta */
        uint32_t steps, reserved;
    } inputs[TW_MEMBERS_MAX]; /* summed in this order: sorted by node id */
};

/* Trial decode of a payload that arrived. Answered by CHECKED. */
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
    uint32_t contributors; /* members in the result; 0 when ABSENT */
    struct tw_span in;     /* empty when ABSENT */
};

/* Outer step of one fragment, then theta by the mode of each part. Answered by APPLIED. */
struct tw_wmsg_apply {
    uint64_t round;
    uint64_t version;  /* outer steps of this fragment before this one, for the momentum ramp */
    uint64_t min_step; /* apply at the first step boundary at or after this step */
    uint32_t fragment, parts_count;
    uint32_t is_final; /* last round of the run: theta := phi_new */
    uint32_t steps;    /* inner steps in a Delta, mean of the contributors; 0: not known */
    uint32_t is_refused, reserved; /* an owner had this node's Delta and left it out for its size */
    struct tw_apply_part parts[TW_PARTS_MAX];
};

/* Training alone: phi := theta, u := 0. Answered by APPLIED. */
struct tw_wmsg_solo {
    uint64_t round;
    uint32_t fragment, reserved;
};

/* Delta and phi of a whole fragment, a payload each. Answered by ENCODED with two parts. */
struct tw_wmsg_pair_encode {
    uint64_t round;
    uint32_t fragment;
    uint32_t is_whole;         /* phi uncompressed, not in lattice form */
    struct tw_span delta, phi; /* capacity */
    uint64_t delta_bytes_max;  /* as bytes_max of ENCODE */
};

/* Outer step of a pair. Answered by APPLIED. */
struct tw_wmsg_pair_apply {
    uint64_t round, version, min_step; /* as in APPLY */
    uint32_t fragment;
    uint32_t is_alone; /* the step uses only this node's Delta, unquantised; the spans are empty */
    uint32_t is_final; /* as in APPLY */
    uint32_t reserved;
    struct {
        struct tw_span delta, phi;
    } own, theirs;
};

/* (phi, u) of a fragment, packed. Answered by EXPORTED. */
struct tw_wmsg_export {
    uint32_t fragment, reserved;
    struct tw_span out; /* capacity */
};

/* (phi, u) of a fragment := packed payload, then theta by `mode`. Answered by APPLIED. */
struct tw_wmsg_load {
    uint32_t fragment;
    uint32_t mode; /* enum tw_load_mode */
    uint64_t rounds;
    struct tw_id digest; /* digest of (phi, u) after the load */
    /* empty: (phi, u) have this digest already; only `rounds` and `mode` are applied */
    struct tw_span in;
};

/* The run clock. */
struct tw_wmsg_clock {
    uint64_t clock_tokens;  /* committed */
    uint64_t tokens_listed; /* tokens of this node that clock_tokens contains */
    uint32_t contributors;  /* contributors of the last round: the clock's speed between rounds */
    uint32_t reserved;
};

/* The run is over: the worker stops stepping and keeps serving. */
struct tw_wmsg_finish {
    uint32_t goes_on;    /* 1: the run is not over after all */
    uint32_t is_settled; /* 1: no further merge will change the parameters */
};

#endif
