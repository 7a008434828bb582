/* transfer.h - (phi, u) of a fragment on its way from or to another node. */
#ifndef TW_SYNC_CORE_STATE_TRANSFER_H
#define TW_SYNC_CORE_STATE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "proto/message.h"
#include "proto/worker_request.h"

/* Fetching the state of a fragment that is not held. */
struct state_fetch {
    enum tw_load_mode mode; /* what its LOAD makes of theta */
    bool has_offer;         /* `offer` is the answer to our STATE_GET */
    struct tw_id donor;
    struct tw_msg_state offer;
    uint64_t asked_us;          /* when STATE_GET was sent last */
    uint64_t others_us;         /* when further members were asked for the same state */
    uint64_t fed_us;            /* when the transfer last made progress: is_fed() */
    uint32_t fed_chunks;        /* chunks here at that time */
    uint32_t fed_failed_rounds; /* failed rounds of the payload at that time */
};

/* The packed state of a fragment for others. */
struct state_export {
    bool is_valid;             /* (phi, u) have not changed since they were packed */
    struct tw_msg_state offer; /* answer to STATE_GET */
    struct tw_msg_state old;   /* the one before it, which a peer may be in the middle of */
    uint64_t waiting;          /* set of peers that asked and have no answer yet */
};

#endif
