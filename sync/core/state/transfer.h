/* transfer.h - the state of transfers: (phi, u) of fragments from and to other nodes. */
#ifndef TW_SYNC_CORE_STATE_TRANSFER_H
#define TW_SYNC_CORE_STATE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "proto/worker_request.h"

/* The fetch of the state of a fragment that this node lacks. */
struct state_fetch {
    enum tw_load_mode mode; /* effect of its LOAD on theta */
    bool has_offer;         /* `offer` is the answer to our STATE_GET */
    struct tw_id donor;     /* node that made the offer */
    struct tw_msg_state offer;
    uint64_t asked_us;          /* when STATE_GET was last sent */
    uint64_t others_us;         /* when other members were last asked for the same state */
    uint64_t fed_us;            /* last time at which the transfer made progress: see is_fed() in
                                   state_transfer.c */
    uint32_t fed_chunks;        /* chunks received at that time */
    uint32_t fed_failed_rounds; /* failed rounds of the payload at that time */
    /* The word of others on the offer (transfer/state_witness.h): sets of peers; when they were
     * last asked; when the bytes were complete, 0 before. */
    uint64_t agreeing, objecting, witness_us, here_us;
    bool is_unproven; /* the state was loaded, and no round has yet shown it to be the members' */
};

/* Digest of a state of a fragment that this node held. */
struct state_memory {
    uint64_t lineage_key, rounds; /* lineage_key: first bytes of the lineage */
    struct tw_id digest;          /* zero: unused */
    uint32_t fragment;
};

/* The states that this node held before the last rounds: as many as records are kept, so that each
 * state that can still be brought up to date is remembered. */
struct old_states {
    uint32_t next; /* row of the next state */
    struct state_memory rows[TW_ROUNDS_KEPT];
};

/* The state of a fragment, packed for other nodes. */
struct state_export {
    bool is_valid;             /* (phi, u) have not changed since they were packed */
    struct tw_msg_state offer; /* answer to STATE_GET */
    struct tw_msg_state old;   /* previous offer, which a peer may still be pulling */
    uint64_t waiting;          /* set of peers that asked and have no answer yet */
};

#endif
