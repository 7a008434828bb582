/* round.h - the state of the open round: contributions, results, votes on its record. */
#ifndef TW_SYNC_CORE_STATE_ROUND_H
#define TW_SYNC_CORE_STATE_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"
#include "proto/record.h"

enum { ARRIVALS_KEPT = 32 };

/* The contribution of one member. */
struct contribution {
    bool has;       /* CONTRIB was received */
    bool is_absent; /* CONTRIB of zero bytes: the member sits the round out */
    bool is_bad;    /* cannot be merged here */
    uint64_t received_us;
    uint64_t ready_us; /* when all bytes for our part were here and checked; 0: not yet */
    struct tw_msg_contrib announced;
};

enum own_state {
    OWN_IDLE,
    OWN_ENCODING,
    OWN_READY, /* encoded before it was due */
    OWN_SENT,
    OWN_REFUSED, /* could not encode; tried again until the round is active, then announced */
};
enum proposer_phase { PROPOSER_IDLE, PROPOSER_STORING, PROPOSER_PREPARING, PROPOSER_PROPOSING };

/* The one round that is being decided: number node->at.rounds. Sets of members are bit masks by
 * roster index, sets of parts by part number, sets of ranks by rank. */
struct round {
    uint64_t active_us; /* when the first sign of it was received, or when it is due; 0: not yet */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX]; /* elements of each part */
    uint32_t owners[TW_PARTS_MAX], owners_count;
    uint32_t rank[TW_MEMBERS_MAX];      /* rank[i]: roster index of the i-th proposer */
    int self_idx, self_part, self_rank; /* -1: not in the roster, no owner */

    enum own_state own;
    uint64_t own_step, own_tokens; /* own counts at the point where Delta was taken */
    uint64_t own_retry_us;
    struct contribution contributions[TW_MEMBERS_MAX];

    /* owner */
    bool intake_closed, is_reducing, is_reduced;
    uint64_t merged; /* set of members whose contribution is merged into our part */
    uint64_t intake_closed_us;
    struct {
        bool has;
        uint64_t announced_us;
        struct tw_msg_result announced;
    } results[TW_PARTS_MAX];
    uint64_t results_us; /* since when every result is announced; 0: not yet */

    /* acceptor: the offer, a proposal that is accepted once its results are here */
    bool has_offer;
    bool is_lost;         /* one of its results cannot be had from anybody */
    bool is_offer_leased; /* its proposer got the ballot lease for it */
    uint16_t offer_from;  /* NO_PEER: this node */
    uint64_t offer_ballot;
    struct tw_record offer;

    /* vetoes: veto.c */
    uint32_t left_out;                 /* set of parts that this proposer leaves out */
    uint64_t refused_by[TW_PARTS_MAX]; /* sets of members that refused the part in our ballot */
    uint64_t refused_ranks;            /* proposers whose proposals this node refused */
    uint64_t empty_ranks;              /* of these: proposals that left out most of the round */
    uint64_t refused_us;               /* when the first of them was refused */
    bool has_refused_late;             /* one of them may carry on a value accepted by others */
    uint64_t reported;                 /* set of owners whose results were reported */

    /* proposer */
    enum proposer_phase phase;
    uint32_t attempt;
    uint64_t ballot, ballot_seq, phase_us, retry_us;
    uint64_t promised_by, accepted_by, nacked_by; /* sets of members: of this ballot */
    bool has_best; /* a member accepted `best` at an earlier ballot, the highest known */
    uint64_t best_ballot;
    struct tw_id promised_digest[TW_MEMBERS_MAX]; /* record that each accepted; zero: none */
    struct tw_record best, proposal;
};

/* What rounds before this one taught about time. */
struct pace {
    uint64_t last_commit_us;
    bool was_active;      /* this node saw the last committed round while it was open */
    uint64_t patience_us; /* the longest wait for the parts of a round */
    /* How late contributions were after the first of their round: a ring. */
    uint64_t arrivals_us[ARRIVALS_KEPT];
    uint32_t arrivals_count; /* ever */
};

/* One seat of the roster, by roster index. */
struct seat {
    uint64_t seen_us; /* when its member was last here under the nonce of the roster */
    uint64_t live_us; /* when its member was last worth waiting for */
    bool has_left;    /* its member sent LEAVE, and is not back under its nonce */
    uint8_t missed;   /* rounds in a row that it announced a contribution and did not deliver */
};

#endif
