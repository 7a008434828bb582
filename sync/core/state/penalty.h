/* penalty.h - the tables of penalties that this node keeps against others: trust/penalty.h. */
#ifndef TW_SYNC_CORE_STATE_PENALTY_H
#define TW_SYNC_CORE_STATE_PENALTY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum tw_penalty_kind {
    TW_PENALTY_STRIKE,         /* wrong result; in pairs, unreadable or far too large payloads */
    TW_PENALTY_STALL_OWNER,    /* owner that held up rounds: it announced a contribution, but
                                  delivered no result in time */
    TW_PENALTY_STALL_PROPOSER, /* proposer that held up rounds: it missed its turn, or ended others'
                                  ballots without a decision */
    TW_PENALTY_UNMERGED,       /* contribution too large to be merged: only counted */
    TW_PENALTY_DONOR,          /* pairs: node whose state this node took over, so its clock may be
                                  false */
    TW_PENALTY_CLAIM,          /* the member's claim about its lineage was false */
    TW_PENALTY_FETCH,          /* wrong bytes of the dataset */
    TW_PENALTY_UNTRAINED,      /* checks show that the member does not train on its data */
    TW_PENALTY_KINDS
};

/* One offender. Each table holds penalties of one kind. */
struct tw_penalty {
    struct tw_id id;
    uint32_t count;    /* offences; 0: free row */
    uint64_t until_us; /* end of the penalty */
};

/* Cause of the newest strike of the member in the same row of `strikes`, for reports. */
struct strike_cause {
    uint64_t round;
    uint32_t part;
    bool is_proven;           /* the bytes do not decode, or an audit had another result */
    uint64_t proven_until_us; /* end of the penalty of the newest proven strike */
};

enum { DONORS_KEPT = 8, CLAIMS_KEPT = 16 };

struct penalties {
    struct tw_penalty strikes[TW_MEMBERS_MAX];
    struct strike_cause causes[TW_MEMBERS_MAX];
    struct tw_penalty owner_stalls[TW_MEMBERS_MAX], proposer_stalls[TW_MEMBERS_MAX];
    struct tw_penalty unmerged[TW_MEMBERS_MAX];
    struct tw_penalty donors[DONORS_KEPT];
    struct tw_penalty claims[CLAIMS_KEPT];
    struct tw_penalty untrained[TW_MEMBERS_MAX];
    uint64_t unmerged_count; /* contributions that this owner left out since the start */
};

#endif
