/* report.h - reports: what happened, for operators, metrics and checkers. */
#ifndef TW_SYNC_CORE_REPORT_H
#define TW_SYNC_CORE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/message.h"
#include "proto/record.h"

/* What happened, for logs, /v1/rounds, metrics and the simulator's checkers. */
enum tw_report_kind {
    TW_REPORT_PEER_DEAD,       /* silent for TW_PEER_SILENCE_US */
    TW_REPORT_ROUND_COMMITTED, /* `close`: learnt that it is committed */
    TW_REPORT_LINEAGE,         /* now in lineage `id` (fork or adoption) */
    TW_REPORT_STATE,           /* `state` changed */
    TW_REPORT_MISBEHAVED,      /* `peer` broke the rules: `reason` */
    TW_REPORT_REFUSED,         /* what member `id` contributed was too large to be merged here, for
                                  the first, second, fourth, eighth ... time in a row */
    TW_REPORT_STRUCK,          /* `id` owns no part for a while: `reason` TW_CORRUPT, its result is
                                  not the merge; TW_LIMIT, it was insane. In pairs nothing is merged
                                  with it: its share could not be read, or was insane */
    TW_REPORT_STALLED,         /* `id` held up rounds, and is not waited for any more for a while */
    TW_REPORT_INSANE,          /* a result of member `id` was not taken here: `close` is NULL */
    TW_REPORT_FULL,            /* the roster has members_max members, and `id` asks to join it; it
                                  may be this node itself */
    TW_REPORT_PAIRED,          /* the round just committed merged with node `id` */
    TW_REPORT_ONE_SIDED,       /* we merged with node `id`, and it did not with us */
};

struct tw_report {
    enum tw_report_kind kind;
    enum tw_status reason;
    enum tw_node_state state;
    struct tw_id id;
    const struct tw_record *record; /* borrowed until the next event */
    uint64_t round;                 /* STRUCK: of the result, and its part; REFUSED */
    uint32_t part;
    uint32_t times; /* REFUSED: in a row */
};

#endif
