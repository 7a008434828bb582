/* event.h - events: what the runtime tells the core. */
#ifndef TW_SYNC_CORE_EVENT_H
#define TW_SYNC_CORE_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "proto/worker_request.h"

enum tw_event_kind {
    TW_EV_TICK,      /* the deadline passed */
    TW_EV_PEER_UP,   /* an authenticated control link: `peer`, `id` */
    TW_EV_PEER_DOWN, /* it is gone: `peer` */
    TW_EV_MESSAGE,   /* `message` from `peer` */
    TW_EV_CHUNK,     /* chunk `idx` of payload `hash` was stored by the runtime */
    TW_EV_VERIFIED,  /* answers TW_ACT_VERIFY: `ok` */
    TW_EV_WORKER_UP, /* `worker`: a worker is ready; the state of its (phi, u) */
    TW_EV_WORKER_DOWN,
    TW_EV_STEP,     /* `step`: an inner step was done */
    TW_EV_ENCODED,  /* answers TW_ACT_ENCODE and TW_ACT_PAIR_ENCODE */
    TW_EV_REDUCED,  /* answers TW_ACT_REDUCE */
    TW_EV_APPLIED,  /* answers TW_ACT_APPLY, TW_ACT_PAIR_APPLY, TW_ACT_SOLO and TW_ACT_LOAD */
    TW_EV_EXPORTED, /* answers TW_ACT_EXPORT */
    TW_EV_STORED,   /* answers TW_ACT_STORE_VOTE */
    TW_EV_LEAVE,    /* the user asked this node to say goodbye */
    TW_EV_MEASURED, /* `measured`: the quality of this node's links has changed */
};

struct tw_event {
    enum tw_event_kind kind;
    uint16_t peer; /* < TW_PEERS_MAX: the runtime's number of the link */
    bool ok;
    union {
        struct tw_id id;                  /* PEER_UP */
        const struct tw_message *message; /* MESSAGE; borrowed for the call */
        struct {
            struct tw_id hash;
            uint32_t idx;
            enum tw_sanity sanity; /* ok: of a result */
            bool is_unfit;         /* not ok: the bytes have this SHA-256, and are of no use */
        } chunk;                   /* CHUNK (hash, idx); VERIFIED (hash, sanity, is_unfit) */
        struct {
            uint64_t step, tokens;
        } step; /* STEP: totals of this node */
        struct {
            uint64_t step, tokens;
            /* rounds applied to (phi, u) of each fragment, by the memory that survived */
            uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
            struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
        } worker; /* WORKER_UP */
        struct {
            uint64_t round;
            uint64_t step, tokens; /* totals when Delta was taken */
            uint32_t parts_count;
            struct tw_id hashes[TW_PARTS_MAX]; /* of a pair: Delta, phi */
            uint32_t bytes[TW_PARTS_MAX];
        } encoded; /* ENCODED; ok = false: could not (non-finite, no memory, no budget), sit this
                      round out */
        struct {
            uint64_t round;
            uint64_t refused; /* bit i = inputs[i] was left out: it is no contributor */
            uint32_t part, bytes;
            struct tw_id hash;
            bool is_audit; /* as it was asked for */
        } reduced;         /* REDUCED */
        struct {
            uint32_t fragment;
            uint64_t rounds;     /* applied rounds after it */
            struct tw_id digest; /* of (phi, u) after it */
            bool is_alone;       /* pair step: the partner's phi was of no use, done without it */
            bool is_outlier;     /* for its share is far larger than shares are */
        } applied; /* APPLIED; ok = false: the payload did not decode, nothing changed */
        struct {
            uint32_t fragment;
            uint64_t rounds;
            struct tw_id digest, hash;
            uint32_t bytes;
        } exported;         /* EXPORTED */
        uint64_t store_seq; /* STORED */
        struct {
            uint32_t upload_kib_s; /* of this node, to all peers together; 0 = not known */
            uint64_t odd;  /* set of peers that are far slower, or less reliable, than the others */
            bool is_short; /* the budget has no room for a contribution now; heeded in pairs */
        } measured;        /* MEASURED */
    } u;
};

#endif
