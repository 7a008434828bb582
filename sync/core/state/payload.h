/* payload.h - the state of a payload: bytes named by their SHA-256. */
#ifndef TW_SYNC_CORE_STATE_PAYLOAD_H
#define TW_SYNC_CORE_STATE_PAYLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/worker_request.h"

enum payload_state {
    PAYLOAD_FREE,
    PAYLOAD_WANTED,
    PAYLOAD_CHECKING,
    PAYLOAD_HELD,
    PAYLOAD_UNFIT, /* the bytes have the right hash but do not decode: never requested again */
};

/* Sets of peers are bit masks by peer number. */
struct payload {
    enum payload_state state;
    struct tw_id hash;
    struct tw_id from; /* node that announced the payload and therefore holds it */
    bool is_shared;    /* other nodes of the lineage may have the payload too */
    bool is_expected;  /* EXPECT was sent: the runtime makes room for the payload */
    /* Rating of a HELD result. This node votes for an outlier only in rosters below
     * config.judges_min, and never for an extreme one. */
    enum tw_sanity sanity;
    bool is_mixed; /* chunks came from several peers, or from a peer that is gone */
    bool is_alone; /* bytes of several peers had the wrong hash: one source at a time from now on */
    bool is_put_off; /* the runtime had no room for the payload */
    bool is_decided; /* result of a committed round: a majority has the payload */
    uint32_t bytes, chunks, chunks_have, under_way;
    uint32_t failed_rounds; /* number of times in a row that every peer was asked and no chunk
                               arrived */
    enum tw_content content;
    uint64_t elements; /* finite values that the payload must decode to; 0: OPAQUE */
    uint32_t fragment; /* RESULT: fragment and first element of the part; packed: fragment */
    uint64_t begin;
    uint64_t packed; /* HELD: elements, if this node packed the payload from (phi, u); else 0 */
    uint16_t given[TW_PEERS_MAX]; /* chunks sent to each peer, repetitions included */
    bool is_left;                 /* no peer needs the payload any more, so it is dropped first */
    uint64_t pullers;             /* HELD: peers that requested chunks of the payload */
    uint64_t offered;             /* peers that announced the payload */
    uint64_t sources;             /* peers from which this node requests chunks */
    uint64_t senders;             /* peers whose chunks are in the payload */
    uint64_t tried;               /* peers that could not serve the payload */
    uint64_t lacking;             /* peers that sent MISSING for it since they last announced it */
    uint64_t asked; /* peers that were asked for chunks, so their chunks are accepted */
    uint64_t progress_us;
    uint64_t keep_round,
        keep_us; /* the payload is kept until both this round and this time have passed */
    uint64_t have[TW_CHUNKS_MAX / 64];
};

#endif
