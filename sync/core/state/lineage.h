/* lineage.h - the state of a node's place among lineages: its log, its way into another, joins. */
#ifndef TW_SYNC_CORE_STATE_LINEAGE_H
#define TW_SYNC_CORE_STATE_LINEAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "proto/record.h"

enum { JOINS_MAX = 16 };

/* Committed rounds. */
struct log {
    struct tw_record records[TW_ROUNDS_KEPT]; /* round r at r % TW_ROUNDS_KEPT */
    uint64_t begin;                           /* rounds [begin, at.rounds) are in `records` */
    uint64_t contributed_count, missed_count; /* committed rounds that list this node / do not */
    bool is_finish_sent;                      /* the runtime knows that the run is over */
    struct {
        struct tw_id id;
        uint64_t round;      /* + 1; 0: free */
    } mixed[TW_MEMBERS_MAX]; /* nodes whose work entered our anchor, and when last */
};

struct lineage {
    bool needs_tip;   /* following a lineage whose newest record is not here yet */
    bool was_shared;  /* the state held has been the merge of a group */
    bool is_settling; /* the lineage is about to change: none of its rounds is applied any more */
    bool is_shut_out; /* a RECEIVER that asks to join a full roster */
    uint64_t majority_us; /* when a majority of the roster was last here */
    uint64_t donor_us;    /* when a donor of the lineage was last here */
    /* No solo round before solo_hold_us; the hold began at hold_began_us. */
    uint64_t solo_hold_us, hold_began_us;
    uint64_t fed_us;  /* when a peer last got a chunk of our state that it had not got before */
    uint64_t join_us; /* when JOIN was sent last */
    struct {
        struct tw_id id;
        struct tw_msg_join join;
        uint64_t received_us;
        uint64_t full_us; /* when the full roster was reported last */
    } joins[JOINS_MAX];
};

#endif
