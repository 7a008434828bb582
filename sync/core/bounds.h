/* bounds.h - times and bounds that several rooms of sync/ share.
 *
 * A bound that one file uses stands in that file. Sizes of wire and tables are in base/limits.h.
 * Times that follow measured behaviour adapt; here are their floors and ceilings. */
#ifndef TW_SYNC_CORE_BOUNDS_H
#define TW_SYNC_CORE_BOUNDS_H

#include <stdint.h>

#include "base/limits.h"

enum {
    NO_PEER = 0xFFFF,  /* no peer; where a sender is meant: this node itself */
    PULL_RUN_MAX = 16, /* chunks of one PULL */
    SOURCES_MAX = 4,   /* peers that send chunks of one payload at a time */
};

/* Plausible limits of a peer's numbers. Larger ones are a lie, and sums of them could wrap. */
#define ROUNDS_MAX (UINT64_C(1) << 40)
#define TOKENS_MAX (UINT64_C(1) << 48)          /* of one contribution */
#define BALLOT_LEAP_MAX (TW_MEMBERS_MAX * 1024) /* above the highest ballot of the round so far */

#define NOT_HELD UINT64_MAX /* fragment_rounds: (phi, u) belong to another lineage */

#define SECOND_US UINT64_C(1000000)
#define RETRY_US (2 * SECOND_US)
#define ASK_US (SECOND_US / 2) /* between two equal questions to one peer */
#define PATIENCE_FLOOR_US (10 * SECOND_US)
#define BALLOT_TIMEOUT_US                                                                          \
    (5 * SECOND_US)                      /* of a ballot; doubled with each failed one of a round   \
                                          */
#define TAKEOVER_STEP_US (5 * SECOND_US) /* by which each rank waits longer than the one before */
#define JOIN_VALID_US (5 * SECOND_US)    /* a JOIN counts for so long */
#define SOLO_HOLD_US (5 * SECOND_US)     /* no solo round while a peer copies the state */
#define STATE_KEEP_US (30 * SECOND_US)   /* a packed state that a peer pulls is kept */
#define LINEAGE_LOST_US (10 * SECOND_US) /* without a donor; then a receiver looks elsewhere */
#define FULL_US (600 * SECOND_US)        /* between two reports that the roster is full */

static inline uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

static inline uint32_t tw_bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

#endif
