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
    bool is_absent; /* CONTRIB had zero bytes: the member sits the round out */
    bool is_bad;    /* this node cannot merge the contribution */
    uint64_t received_us;
    uint64_t
        ready_us; /* when the payload for our part had arrived and passed its check; 0: not yet */
    struct tw_msg_contrib announced;
};

enum own_state {
    OWN_IDLE,
    OWN_ENCODING,
    OWN_READY, /* encoded, but the round is neither due nor active */
    OWN_SENT,
    OWN_REFUSED, /* encoding failed; retried until the round is active, then announced as absent */
};
enum proposer_phase {
    PROPOSER_IDLE,
    PROPOSER_STORING,
    PROPOSER_PREPARING,
    PROPOSER_PROPOSING,
    PROPOSER_LOCKING,
};

/* The one round that is being decided: number node->at.rounds. Sets of members are bit masks by
 * roster index, sets of parts by part number, sets of ranks by rank. */
struct round {
    uint64_t active_us; /* when the round began for this node (round.c); 0: not yet */
    uint64_t begun;     /* set of members that sent a message about the round */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX]; /* first element and number of elements of
                                                          each part */
    uint32_t owners[TW_PARTS_MAX], owners_count;
    uint32_t rank[TW_MEMBERS_MAX];      /* rank[i]: roster index of the voter with rank i */
    int self_idx, self_part, self_rank; /* roster index, part and rank of this node; -1: none */

    enum own_state own;
    uint64_t own_step, own_tokens; /* this node's step and token counts when Delta was computed */
    uint64_t own_retry_us;
    struct contribution contributions[TW_MEMBERS_MAX];

    /* owner */
    bool intake_closed, is_reducing, is_reduced;
    bool has_waited_in_vain; /* intake ended after pace.patience_us, with contributions still
                                missing */
    uint64_t merged;         /* set of members whose contribution is merged into our part */
    uint64_t refused; /* set of members whose contribution the worker left out for its size */
    uint64_t intake_closed_us;
    struct {
        bool has;
        bool is_shown;     /* known from a proposal alone: the owner has not sent the result to this
                              node */
        uint64_t bare;     /* set of contributors whose signatures are missing */
        uint64_t asked_us; /* when the owner was asked for these signatures; 0: not yet */
        uint64_t announced_us;
        struct tw_msg_result announced;
    } results[TW_PARTS_MAX];
    uint64_t result_seq; /* number of the STORE_VOTE that records our signed result; 0: not
                            requested */
    uint64_t results_us; /* when the last result was announced; 0: some are missing */
    uint64_t turn_us;    /* when it became this node's turn to propose; 0: not yet */

    /* acceptor: the offer is a proposal that is accepted once this node holds its results */
    bool has_offer;
    bool is_lost;                    /* no peer can serve one of the offer's results */
    bool is_offer_leased;            /* the offer's proposer got the ballot lease */
    uint16_t offer_from;             /* NO_PEER: this node */
    uint64_t offer_ballot, offer_us; /* offer_us: arrival of the offer */
    struct tw_record offer;
    bool is_offer_carried;      /* a lock requires this record */
    uint64_t voted_us;          /* when we last voted for another member's proposal; 0: its outcome
                                   is not awaited */
    struct tw_proof offer_lock; /* votes of phase 1 at offer_ballot, if LOCK arrived before the
                                   results */

    /* vetoes: veto.c */
    uint32_t left_out;                 /* set of parts that our proposals leave out */
    uint64_t refused_by[TW_PARTS_MAX]; /* sets of members that refused the part in our ballot */
    uint64_t refused_ranks;            /* ranks of proposers that this node refused */
    uint64_t empty_ranks; /* ranks refused because their proposals left out most of the round */
    uint64_t refused_us;  /* when the first proposal was refused */
    uint64_t reported;    /* set of owners whose refused results were reported */

    /* proposer */
    enum proposer_phase phase;
    uint32_t attempt;
    uint64_t ballot, ballot_seq, phase_us, retry_us;
    uint64_t promised_by, accepted_by, nacked_by; /* sets of members that answered this ballot */
    struct tw_promises promises;                  /* promises of the members in promised_by */
    struct tw_proof best_lock;                    /* the newest lock in a promise; none: ballot 0 */
    struct tw_record best;                        /* record of best_lock */
    struct tw_record proposal;
    uint32_t joins_count; /* signed JOINs of the new members of proposal.next, in their order */
    uint8_t joins[TW_JOINS_MAX][TW_SIGNATURE_BYTES];
    struct tw_proof lock,
        proof; /* votes for `proposal` by accepted_by, of phase 1 and of phase 2 */
};

/* Times learned from earlier rounds. */
struct pace {
    uint64_t last_commit_us;
    bool was_active;      /* this node saw the last committed round while it was open */
    uint64_t patience_us; /* longest wait for the parts of a round */
    /* Ring buffer of the delays of contributions after the first one of their round. */
    uint64_t arrivals_us[ARRIVALS_KEPT];
    uint32_t arrivals_count; /* since the start */
};

/* This node's knowledge about a member of the roster, by roster index. */
struct seat {
    uint64_t seen_us; /* last time at which its member was linked under the nonce of the roster */
    uint64_t live_us; /* last time at which its member was live */
    bool has_left;    /* its member sent LEAVE and has not returned under its nonce */
    uint8_t unlisted; /* rounds in a row without its member's work, or its vote where members take
                         no steps; 255: or more */
    uint8_t missed;   /* rounds in a row with a contribution announced but not delivered */
};

#endif
