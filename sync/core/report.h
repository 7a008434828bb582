/* report.h - reports of the core: facts for logs, status, metrics and the simulator's checkers. */
#ifndef TW_SYNC_CORE_REPORT_H
#define TW_SYNC_CORE_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/message.h"
#include "proto/record.h"

enum tw_report_kind {
    TW_REPORT_PEER_DEAD,       /* peer `id` was silent for TW_PEER_SILENCE_US */
    TW_REPORT_ROUND_COMMITTED, /* this node learnt that `record` is committed */
    TW_REPORT_LINEAGE,         /* this node is now in lineage `id` (fork or adoption) */
    TW_REPORT_STATE,           /* `state` changed */
    TW_REPORT_MISBEHAVED,      /* node `id` broke the rules: `reason` */
    TW_REPORT_REFUSED, /* this owner did not merge the contribution of member `id`, because it was
                          too large; sent at the 1st, 2nd, 4th, 8th ... time in a row */
    TW_REPORT_STRUCK, /* member `id` owns no part for a while. `reason`: TW_CORRUPT if its result is
                         not the merge, TW_LIMIT if its result was an outlier. In pairs: its
                         payloads were unreadable or outliers, and this node does not merge with it
                         for a while */
    TW_REPORT_STALLED, /* member `id` held up rounds: this node does not wait for it for a while */
    TW_REPORT_INSANE,  /* this node refused a result of member `id`, because it is an outlier. It
                          audits one (check/audit.c), because a size proves nothing */
    TW_REPORT_FULL,    /* node `id`, perhaps this one, asks to join a full roster */
    TW_REPORT_PAIRED,  /* the round just committed merged with node `id` */
    TW_REPORT_FORGED,  /* peer `id` sent a record that its group did not decide */
    TW_REPORT_LEFT, /* this node leaves its lineage for that of peer `id`, although most members of
                       its roster are linked and still in the old lineage. Not sent if the old
                       lineage has just begun, nor on a return to the lineage that it came from */
    TW_REPORT_OUTLIER,   /* a committed record lists a result of member `id` that this node refuses;
                            it is applied nevertheless */
    TW_REPORT_TWO_FACED, /* node `id` signed two contradicting statements about one ballot: every
                            node bans it */
    TW_REPORT_ONE_SIDED, /* this node merged with node `id`, which did not merge with it */
    TW_REPORT_DIFFERS,   /* if `id` is this node: most members have another anchor of fragment
                            `part`, and this node fetches theirs. Otherwise: member `id` has another
                            anchor than this node, which does not merge its work in this round */
    TW_REPORT_FALSE_STATE, /* node `id` gave a state of fragment `part` that is not the members' */
    TW_REPORT_UNTRAINED, /* checks show that member `id` does not train on the data that it says, so
                            this owner leaves its contributions out for a while. `reason`:
                            TW_CORRUPT, or TW_LIMIT if it never says where it is in its data */
    TW_REPORT_LARGE, /* an audited merge is correct, and far larger than the usual ones because of
                        the contribution of member `id` */
};

struct tw_report {
    enum tw_report_kind kind;
    enum tw_status reason;
    enum tw_node_state state;
    struct tw_id id;
    const struct tw_record *record; /* borrowed until the next event */
    uint64_t round; /* STRUCK: round of the result; REFUSED: round of the contribution; DIFFERS:
                       open round */
    uint32_t part;  /* STRUCK: part of the result; DIFFERS, FALSE_STATE: the fragment */
    uint32_t times; /* REFUSED: number of refusals in a row */
};

/* True if the report charges node `id` with a breach of the rules. Each of these has a proof that
 * no load, sleep or lost message can make: signatures, a merge done again, bytes that differ from
 * the members', or measured work. Other reports are facts that accuse nobody. */
static inline bool tw_report_is_charge(const struct tw_report *report) {
    return report->kind == TW_REPORT_MISBEHAVED || report->kind == TW_REPORT_FORGED ||
           report->kind == TW_REPORT_TWO_FACED || report->kind == TW_REPORT_FALSE_STATE ||
           report->kind == TW_REPORT_UNTRAINED ||
           (report->kind == TW_REPORT_STRUCK && report->reason == TW_CORRUPT);
}

#endif
