/* event.h - events: inputs of the core from the runtime. */
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
    TW_EV_PEER_UP,   /* a control link was authenticated: `peer`, `id` */
    TW_EV_PEER_DOWN, /* the link is gone: `peer` */
    TW_EV_MESSAGE,   /* `message` from `peer` */
    TW_EV_CHUNK,     /* chunk `idx` of payload `hash` was stored by the runtime */
    TW_EV_VERIFIED,  /* answers TW_ACT_VERIFY: `ok` */
    TW_EV_WORKER_UP, /* a worker is ready: `worker` describes its (phi, u) */
    TW_EV_WORKER_DOWN,
    TW_EV_STEP,     /* `step`: an inner step was done */
    TW_EV_ENCODED,  /* answers TW_ACT_ENCODE and TW_ACT_PAIR_ENCODE */
    TW_EV_REDUCED,  /* answers TW_ACT_REDUCE */
    TW_EV_APPLIED,  /* answers TW_ACT_APPLY, TW_ACT_PAIR_APPLY, TW_ACT_SOLO and TW_ACT_LOAD */
    TW_EV_EXPORTED, /* answers TW_ACT_EXPORT */
    TW_EV_STORED,   /* answers TW_ACT_STORE_VOTE */
    TW_EV_LEAVE,    /* the user asked this node to leave the run */
    TW_EV_MEASURED, /* `measured`: the quality of this node's links has changed */
    TW_EV_JUDGED,   /* answers TW_ACT_JUDGE; not ok: this node's worker cannot judge it now */
    TW_EV_REFUSED,  /* the runtime has refused `peer` a PULL: its budget has no room */
};

/* State of a worker that has become ready. */
struct tw_worker_state {
    uint64_t step, tokens;
    /* rounds applied to (phi, u) of each fragment, in the snapshot that the worker restored */
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
};

struct tw_event {
    enum tw_event_kind kind;
    uint16_t peer; /* index of the link in the runtime, < TW_PEERS_MAX */
    bool ok;
    bool is_relayed;  /* PEER_UP: the link runs through another member */
    bool lacks_roles; /* PEER_UP: the peer is older than roles (TW_FEATURE_ROLES) */
    bool lacks_vote;  /* PEER_UP: the peer's certificate gives it no vote */
    union {
        struct tw_id id;                  /* PEER_UP */
        const struct tw_message *message; /* MESSAGE; borrowed for the call */
        struct {
            struct tw_id hash;
            uint32_t idx;
            enum tw_sanity sanity; /* VERIFIED of a result with `ok`: rating of its size */
            bool is_unfit;         /* not ok: the hash is right, but the bytes do not decode */
        } chunk; /* CHUNK uses hash and idx; VERIFIED uses hash, sanity and is_unfit */
        struct {
            uint64_t step, tokens;
        } step;                               /* STEP: totals of this node */
        const struct tw_worker_state *worker; /* WORKER_UP; borrowed for the call */
        struct {
            uint64_t round;
            uint64_t step, tokens; /* this node's totals when Delta was computed */
            uint64_t cursor;       /* position in the training data then; 0: not known */
            uint32_t parts_count;
            struct tw_id hashes[TW_PARTS_MAX]; /* one per part; in pairs: of Delta, then of phi */
            uint32_t bytes[TW_PARTS_MAX];
        } encoded; /* ENCODED; not ok: no payload (non-finite values, no memory, no budget), and the
                      node sits this round out */
        struct {
            uint64_t round;
            uint64_t refused; /* bit i: the worker left inputs[i] out, so its sender is no
                                 contributor; in an audit: the merge is large because of it */
            uint32_t part, bytes;
            struct tw_id hash;
            bool is_audit; /* copied from the request: this merge repeats one of another owner */
        } reduced;         /* REDUCED */
        struct {
            uint32_t fragment;
            uint64_t rounds;     /* rounds applied, this one included */
            struct tw_id digest; /* digest of the new (phi, u) */
            bool is_alone;       /* pair step taken alone, because the partner's payloads were
                                    unusable */
            bool is_outlier;     /* alone because the partner's Delta or phi is an outlier */
        } applied; /* APPLIED; not ok: the payload did not decode, and nothing changed */
        struct {
            uint32_t fragment;
            uint64_t rounds;
            struct tw_id digest, hash;
            uint32_t bytes;
        } exported;         /* EXPORTED */
        uint64_t store_seq; /* STORED */
        struct {
            uint32_t
                upload_kib_s; /* upload rate of this node to all peers together; 0 = not known */
            uint64_t odd;     /* set of peers whose links are far slower or less reliable than the
                                 others */
            bool is_relay;    /* this node relays links between other nodes */
            bool is_short;    /* the byte budget allows no contribution now; used in pairs only */
        } measured;           /* MEASURED */
        struct {
            uint64_t round;
            int32_t score;  /* in thousandths (worker/loop/juror.h) */
            uint32_t share; /* square root of compared windows / trained windows, in thousandths:
                               an honest score is proportional to it */
        } judged;           /* JUDGED */
    } u;
};

#endif
