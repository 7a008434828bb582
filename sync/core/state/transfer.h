/* transfer.h - the state of transfers: (phi, u) of fragments from and to other nodes. */
#ifndef TW_SYNC_CORE_STATE_TRANSFER_H
#define TW_SYNC_CORE_STATE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
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

enum { STATES_REMEMBERED = 4 }; /* per fragment: as long as results are kept for replay */

/* Digests of the last states of a fragment that this node held. */
struct state_memory {
    uint32_t next; /* index of the newest state */
    struct {
        uint64_t lineage_key, rounds; /* lineage_key: first bytes of the lineage */
        struct tw_id digest;          /* zero: an unused row */
    } states[STATES_REMEMBERED];
};

/* The state of a fragment, packed for other nodes. */
struct state_export {
    bool is_valid;             /* (phi, u) have not changed since they were packed */
    struct tw_msg_state offer; /* answer to STATE_GET */
    struct tw_msg_state old;   /* previous offer, which a peer may still be pulling */
    uint64_t waiting;          /* set of peers that asked and have no answer yet */
};

#endif
