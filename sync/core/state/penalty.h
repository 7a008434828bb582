/* penalty.h - the rows of what this node holds against others: trust/penalty.h. */
#ifndef TW_SYNC_CORE_STATE_PENALTY_H
#define TW_SYNC_CORE_STATE_PENALTY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum tw_penalty_kind {
    TW_PENALTY_STRIKE,         /* a wrong result; in pairs, an unreadable or far too large share */
    TW_PENALTY_STALL_OWNER,    /* held up rounds: announced a contribution, gave no result */
    TW_PENALTY_STALL_PROPOSER, /* held up rounds: let its turn pass, or ended ballots for nothing */
    TW_PENALTY_UNMERGED,       /* its contribution was too large to be merged: counted alone */
    TW_PENALTY_DONOR,          /* pairs: its state was taken over, so its clock may be a lie */
    TW_PENALTY_FETCH,          /* gave wrong bytes of the dataset */
    TW_PENALTY_KINDS
};

/* One offender. The kind is that of the table that the row is in. */
struct tw_penalty {
    struct tw_id id;
    uint32_t count;    /* offences; 0: a free row */
    uint64_t until_us; /* end of the penalty */
};

/* The newest strike of the same row, for reports. */
struct strike_cause {
    uint64_t round;
    uint32_t part;
    bool is_proven;           /* its bytes do not decode, or an audit came to another result */
    uint64_t proven_until_us; /* end of the penalty of the newest proven strike */
};

enum { DONORS_KEPT = 8 };

struct penalties {
    struct tw_penalty strikes[TW_MEMBERS_MAX];
    struct strike_cause causes[TW_MEMBERS_MAX]; /* by row of `strikes` */
    struct tw_penalty owner_stalls[TW_MEMBERS_MAX], proposer_stalls[TW_MEMBERS_MAX];
    struct tw_penalty unmerged[TW_MEMBERS_MAX];
    struct tw_penalty donors[DONORS_KEPT];
    uint64_t unmerged_count; /* contributions left out here, ever */
};

#endif
