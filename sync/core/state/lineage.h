/* lineage.h - state: the log of committed rounds, a change to another lineage, requests to join. */
#ifndef TW_SYNC_CORE_STATE_LINEAGE_H
#define TW_SYNC_CORE_STATE_LINEAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "proto/record.h"

enum { JOINS_MAX = TW_JOINS_MAX };

/* Committed rounds. */
struct log {
    struct tw_record records[TW_ROUNDS_KEPT]; /* record of round r in row r % TW_ROUNDS_KEPT */
    struct tw_proof proofs[TW_ROUNDS_KEPT];   /* votes that prove the record in the same row */
    /* Round r, in row r % TW_ROUNDS_KEPT: an owner left this node's contribution out because it was
     * too large. */
    bool was_refused[TW_ROUNDS_KEPT];
    uint64_t begin;     /* rounds [begin, at.rounds) are in `records` */
    bool is_begin_told; /* the oldest record came from the peer whose lineage this node adopted, so
                           no earlier record of this log proves it */
    uint64_t contributed_count, missed_count; /* committed rounds with and without this node's work;
                                                 a node without steps misses none */
    uint64_t refused_count;                   /* committed rounds for which was_refused was set */
    struct tw_id refused_by;                  /* the owner that refused last; zero: none yet */
    bool is_reported;    /* a report of the current event borrows a row of `records`, so none may be
                            overwritten */
    bool is_finish_sent; /* FINISH was sent: the run is over */
    struct {
        struct tw_id id;
        uint64_t round;      /* number of the newest round with that node's work, plus 1; 0: free
                                row */
    } mixed[TW_MEMBERS_MAX]; /* nodes whose work entered this node's anchor */
};

/* Nodes that had a vote in a roster with a seat of this node: they are not strangers if they lost
 * their seat for a while, or meet again in a child lineage. The oldest row is replaced. */
struct elders {
    uint64_t noted_count; /* rosters noted so far */
    struct {
        struct tw_id id;
        uint64_t noted; /* value of noted_count when the node last had a vote; 0: free row */
    } rows[TW_MEMBERS_MAX];
};

/* Supporters of a lineage: nodes that signed its newest records. */
struct support {
    uint32_t met; /* supporters that this node is linked to, or that are in its own roster */
    uint32_t all;
    bool is_ours; /* this node itself, which is not counted, has signed one as a voter */
};

/* The claim of one peer that its lineage is better than ours: history/claim.c. */
struct claim {
    enum { CLAIM_NONE, CLAIM_ASKED, CLAIM_PROVEN } phase;
    uint16_t peer;
    struct tw_id from;           /* id of the peer */
    struct tw_id lineage;        /* the lineage that the peer claims to be in */
    uint64_t asked_us;           /* when LOG_GET was sent */
    uint64_t next_round, rounds; /* rounds [next_round, rounds) have yet to arrive */
    bool has_record;
    struct tw_record record; /* the newest record received; once PROVEN, the tip of that lineage */
    struct tw_proof proof;   /* votes that prove `record` */
    struct tw_id digest;     /* digest of `record` */
    uint64_t signers;        /* set of members of record.next that signed a record so far */
};

struct lineage {
    bool needs_tip;       /* this node follows a lineage whose newest record has not arrived yet */
    bool was_shared;      /* this node's state is, or once was, merged by a group */
    bool is_settling;     /* the lineage is about to change: no more of its rounds are applied */
    bool is_shut_out;     /* this node is a RECEIVER that asks to join a full roster */
    uint64_t majority_us; /* last time at which a majority of the roster was live */
    uint64_t donor_us;    /* last time at which a donor (member that serves the state) was live */
    struct support support; /* supporters of our lineage: its roster, or the supporters that it had
                               when it was adopted */
    struct claim claim;     /* the claim about another lineage that is being checked */
    struct tw_id leader;    /* peer on whose claim the lineage was adopted; zero: none */
    uint64_t moved_us;      /* last time at which a chunk arrived, or this node was owed no data */
    /* Time before which no solo round may start, and the start of that hold. */
    uint64_t solo_hold_us, hold_began_us;
    uint64_t fed_us; /* when a peer last received a chunk of our state that was new to it */
    uint64_t join_us, join_round; /* time and round of the last JOIN */
    uint64_t seatless_us; /* time of the first JOIN since this node has had no seat; 0: it does not
                             ask for one */
    struct {
        struct tw_id id;
        struct tw_msg_join join;
        uint64_t received_us;
        uint64_t full_us; /* when the full roster was last reported */
        uint64_t claimed; /* number, plus 1, of the round in which this node last proposed it as an
                             elder, in vain so far; 0: never */
    } joins[JOINS_MAX];
};

#endif
