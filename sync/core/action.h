/* action.h - actions: requests of the core to the runtime. */
#ifndef TW_SYNC_CORE_ACTION_H
#define TW_SYNC_CORE_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/message.h"
#include "proto/worker_request.h"
#include "sync/core/position.h"
#include "sync/core/report.h"

enum tw_action_kind {
    TW_ACT_SEND,       /* send `message` to `peer` on its control link */
    TW_ACT_CLOSE,      /* close the link to `peer` for `reason` (TW_AGAIN: the peer is silent);
                          PEER_DOWN follows */
    TW_ACT_SEND_CHUNK, /* send chunk `idx` of the held payload to `peer` on its bulk link */
    TW_ACT_EXPECT,     /* make room for payload `hash` of `bytes` bytes; its chunks will arrive */
    TW_ACT_VERIFY,     /* all chunks have arrived: check SHA-256, then trial-decode unless OPAQUE */
    TW_ACT_DROP,       /* payload `hash` is no longer needed */
    TW_ACT_ENCODE,     /* encode Delta of `fragment` at the next step boundary, one payload per
                          part */
    TW_ACT_REDUCE, /* merge `inputs` (held payloads, in this order) and encode the result once */
    TW_ACT_APPLY,  /* take the outer step with committed results, then mix or shift theta */
    TW_ACT_SOLO,   /* phi := theta and u := 0 for `fragment`, in a lineage of one */
    TW_ACT_PAIR_ENCODE, /* encode Delta and phi of `fragment` at the next step boundary, a payload
                           each */
    TW_ACT_PAIR_APPLY,  /* take the outer step with our and the partner's payloads, or alone */
    TW_ACT_EXPORT,      /* pack (phi, u) of `fragment` into a payload */
    TW_ACT_LOAD,        /* replace (phi, u) of `fragment` by the packed payload */
    TW_ACT_STORE_VOTE,  /* write `vote` durably, then answer STORED with `store_seq` */
    TW_ACT_CLOCK,       /* send the run clock to the worker */
    TW_ACT_FINISH,      /* the run is over: stop stepping, keep serving. With `goes_on` it is not
                           over: step again. Applies to later workers too */
    TW_ACT_REPORT,      /* pass `report` to operators and checkers */
    TW_ACT_JUDGE,       /* check that `inputs`, a contribution, were trained on the sender's data */
};

struct tw_action {
    enum tw_action_kind kind;
    uint16_t peer;
    union {
        struct tw_message *message; /* SEND; borrowed until the next call of next_action */
        enum tw_status reason;      /* CLOSE */
        struct {
            struct tw_id hash;
            uint32_t bytes, idx;
            uint64_t elements; /* 0 when OPAQUE */
            enum tw_content content;
            uint32_t fragment; /* RESULT: fragment and first element of the merged part */
            uint64_t begin;
        } payload; /* SEND_CHUNK, EXPECT, VERIFY, DROP */
        struct tw_wmsg_encode
            encode; /* bytes_max is 0 here; a runtime with a byte budget sets it */
        struct tw_wmsg_reduce reduce;
        struct tw_wmsg_apply apply;
        struct tw_wmsg_solo solo;
        struct tw_wmsg_pair_encode pair_encode;
        struct tw_wmsg_pair_apply pair_apply;
        struct tw_wmsg_export export;
        struct tw_wmsg_load load;
        struct {
            uint64_t seq;
            const struct tw_vote *vote; /* borrowed until the next event */
        } store;
        struct tw_wmsg_judge judge;
        struct tw_wmsg_clock clock;
        struct tw_wmsg_finish
            finish; /* goes_on: this node is now in a lineage that has tokens left to train */
        struct tw_report report;
    } u;
    /* Hashes of the payloads that the request reads. REDUCE: one per input. APPLY: one per part,
     * zero when ABSENT. JUDGE: one per part. PAIR_APPLY: indexed by TW_PAIR_*. LOAD: one, or zero
     * if (phi, u) are already right. */
    struct tw_id inputs[TW_MEMBERS_MAX];
    struct tw_id partner; /* PAIR_ENCODE: node that receives Delta */
};

#endif
