/* penalty.h - the rows of what this node holds against others. */
#ifndef TW_SYNC_CORE_STATE_PENALTY_H
#define TW_SYNC_CORE_STATE_PENALTY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

enum tw_stall_kind { TW_STALL_OWNER, TW_STALL_PROPOSER, TW_STALL_KINDS };

struct tw_stall {
    struct tw_id id;
    uint32_t count; /* lately; 0: a free row */
    uint64_t until_us;
};

/* What this node found out about an owner. */
struct strike {
    struct tw_id id;
    uint32_t count; /* ever; 0: a free row */
    uint64_t until_us, false_until_us;
    bool is_false; /* its result is no merge, which is proven; else it was insane */
    uint64_t round;
    uint32_t part; /* of the newest */
};

/* A member whose contributions to our part were too large to be merged. */
struct unmerged {
    struct tw_id id;
    uint32_t rounds; /* in a row; 0: a free row */
};

struct penalties {
    struct strike strikes[TW_MEMBERS_MAX];
    struct tw_stall stalls[TW_STALL_KINDS][TW_MEMBERS_MAX];
    struct unmerged unmerged[TW_MEMBERS_MAX];
    uint64_t unmerged_count; /* contributions, ever */
};

#endif
