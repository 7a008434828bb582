/* worker_request.h - the words that the core and a worker share: kinds of payload content, modes of
 * the requests that change theta and (phi, u), sizes of results. They travel in worker_msg.h, so
 * their numbers are fixed. */
#ifndef TW_PROTO_WORKER_REQUEST_H
#define TW_PROTO_WORKER_REQUEST_H

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
    TW_APPLY_STAY = 3,   /* theta still belongs to another lineage, and stays */
};

/* Effect on theta when (phi, u) of a fragment are replaced. */
enum tw_load_mode {
    TW_LOAD_RESET = 0, /* theta := phi */
    TW_LOAD_KEEP = 1,  /* theta stays; its next Delta is clipped to 3x the median norm */
    TW_LOAD_SHIFT = 2, /* theta += phi_new - phi_old */
    TW_LOAD_BACK = 3,  /* no payload: phi := theta, u := 0; the digest is not known before */
    TW_LOAD_TURN = 4,  /* no payload: theta := phi, of all fragments at one step boundary */
};

/* Size of a result beside earlier merges of the fragment, as one node judges it: kernels/outlier.h.
 */
enum tw_sanity {
    TW_SANITY_FAIR = 0,    /* of the usual size */
    TW_SANITY_OUTLIER = 1, /* far larger: no honest merge of many members is likely to be */
    TW_SANITY_EXTREME = 2, /* so large that no honest merge of a few members is likely to be */
};

/* Index of the two payloads of a pair's exchange. */
enum { TW_PAIR_DELTA, TW_PAIR_PHI, TW_PAIR_PAYLOADS };

#endif
