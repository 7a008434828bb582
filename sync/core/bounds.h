/* bounds.h - times and bounds that several folders of sync/ share.
 *
 * A bound that only one file uses is defined in that file. Sizes on the wire and of tables are in
 * base/limits.h. Some times adapt to measurements; this file has their floors and ceilings. */
#ifndef TW_SYNC_CORE_BOUNDS_H
#define TW_SYNC_CORE_BOUNDS_H

#include <stdint.h>

#include "base/limits.h"

enum {
    NO_PEER = 0xFFFF,  /* no peer; as a sender: this node itself */
    PULL_RUN_MAX = 16, /* chunks of one PULL */
    SOURCES_MAX = 4,   /* peers that send chunks of one payload at a time */
};

/* Upper bounds of numbers that a peer sends. An honest number is never larger, and sums of larger
 * ones could overflow. */
#define ROUNDS_MAX (UINT64_C(1) << 40)
#define TOKENS_MAX (UINT64_C(1) << 48) /* tokens of one contribution */
/* Most by which a ballot may exceed the highest ballot so far of its round. */
#define BALLOT_LEAP_MAX (TW_MEMBERS_MAX * 1024)

#define NOT_HELD UINT64_MAX /* value of fragment_rounds: (phi, u) belong to another lineage */

#define SECOND_US UINT64_C(1000000)
#define RETRY_US (2 * SECOND_US)
#define ASK_US (SECOND_US / 2) /* time between two equal requests to one peer */
#define PATIENCE_FLOOR_US                                                                          \
    (10 * SECOND_US) /* least wait for contributions and results of a round                        \
                      */
/* Timeout of a ballot; doubles with each failed ballot of a round. */
#define BALLOT_TIMEOUT_US (5 * SECOND_US)
#define TAKEOVER_STEP_US (5 * SECOND_US) /* extra wait of each rank beyond the rank before it */
#define MEMBER_DEAD_US (15 * SECOND_US)  /* silence after which the next roster omits a member */
#define JOIN_VALID_US (5 * SECOND_US)    /* validity of a JOIN */
#define SOLO_HOLD_US (5 * SECOND_US)     /* pause of solo rounds while a peer copies the state */
/* Time for which solo rounds do not wait for a peer that was refused chunks: it gets the rest too
 * slowly. */
#define REFUSED_US (120 * SECOND_US)
/* Time for which a packed state is kept after a peer last pulled from it. */
#define STATE_KEEP_US (30 * SECOND_US)
/* Time after which a receiver without a linked donor (a member that serves the state) looks for
 * another lineage. */
#define LINEAGE_LOST_US (10 * SECOND_US)
#define FULL_US (600 * SECOND_US) /* time between two reports that the roster is full */

static inline uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

static inline uint32_t tw_bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

#endif
