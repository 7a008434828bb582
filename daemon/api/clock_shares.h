/* clock_shares.h - how much of the run clock each member moved in the newest rounds. Pure.
 *
 * The clock counts a member's claims up to a bound (tw_record_tokens), which a machine far faster
 * than the others and a liar reach alike. So a high share is told to people, and no rule depends on
 * it. Every node computes it from decided records. */
#ifndef TW_DAEMON_API_CLOCK_SHARES_H
#define TW_DAEMON_API_CLOCK_SHARES_H

#include "base/id.h"
#include "proto/record.h"

enum {
    TW_CLOCK_ROUNDS = 64,  /* a round's weight falls to 1/e over so many rounds */
    TW_CLOCK_TRAINERS = 5, /* of fewer trainers, no share is high: one of four may move 30 % */
};

/* All zero is empty. */
struct tw_clock_shares {
    struct tw_id lineage, tip_digest; /* of the newest record noted; zero: none */
    struct tw_record tip;
    uint32_t count;
    struct {
        struct tw_id id;
        double tokens; /* counted by the clock, weighted by age */
    } rows[TW_MEMBERS_MAX];
};

/* Notes a committed record. Counts it if the previous record was noted before it. */
void tw_clock_shares_note(struct tw_clock_shares *shares, const struct tw_record *record);

/* Returns the member's share of the clock's advance in the newest rounds, or NaN if none is known.
 */
double tw_clock_share(const struct tw_clock_shares *shares, const struct tw_id *id);

/* Returns true if the member moved more than 30 % of the clock, and more than twice an equal share
 * of the members that moved it. */
bool tw_clock_share_is_high(const struct tw_clock_shares *shares, const struct tw_id *id);

#endif
