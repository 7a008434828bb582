/* reach.h - the state of the graph of links, as far as this node knows it. */
#ifndef TW_SYNC_CORE_STATE_REACH_H
#define TW_SYNC_CORE_STATE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

struct reach {
    uint64_t of[TW_MEMBERS_MAX];      /* set of members that member i is linked to, and i itself */
    uint64_t present;                 /* set of present members: see tw_reach_is_present */
    uint16_t peers[TW_MEMBERS_MAX];   /* link to member i, or NO_PEER: see tw_reach_peer */
    struct tw_id ids[TW_MEMBERS_MAX]; /* members of the roster to which `of` belongs */
    uint32_t ids_count;
    bool is_due;           /* the links of this node changed since LINKS was sent */
    uint64_t announced_us; /* when LINKS was sent last; 0: never */
};

#endif
