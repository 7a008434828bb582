/* ledger.h - each node's share of the run: of its rounds, and of its clock. */
#ifndef TW_DAEMON_API_LEDGER_H
#define TW_DAEMON_API_LEDGER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/record.h"

/* ==== rounds ================================================================================== */

/* Tokens, rounds and merged parts of each node, counted from the committed rounds that
 * this node saw.
 *
 * A committed record names its contributors with their tokens, signed by each of them, and the
 * owners of the merged parts. So all nodes count the same for a round that they saw. Rounds that
 * passed while this node was away are counted as unseen. The ledger is for people: nothing in a run
 * depends on it.
 *
 * Rounds stay counted even if the run later leaves their lineage; those that a new lineage repeats
 * are counted as undone. A record names its members only
 * by their seats in the roster that the previous record chose. So a round is counted only if this
 * node has the previous record. Pure. */

enum {
    TW_LEDGER_ROWS = 512,
    TW_LEDGER_LINE_BYTES = 256,
    TW_LEDGER_TEXT_MAX = (TW_LEDGER_ROWS + 3) * TW_LEDGER_LINE_BYTES,
};

struct tw_ledger_row {
    struct tw_id id;
    uint64_t tokens;       /* tokens that the node trained on, as listed in records; none counts
                              twice */
    uint64_t rounds;       /* rounds that list the node as a contributor */
    uint64_t parts;        /* merged parts that the node owned */
    uint64_t merged_bytes; /* size of these parts, each fetched by every other member */
    uint64_t first_round, last_round; /* first and last round with a contribution of the node */
};

struct tw_ledger {
    uint64_t first_round;        /* number of the oldest counted round */
    uint64_t rounds;             /* rounds counted */
    uint64_t unseen;             /* later rounds that were not counted */
    uint64_t undone;             /* counted rounds that the run lost, as it went back */
    uint64_t next_round;         /* number of the next round to count, in `lineage` */
    struct tw_id lineage;        /* lineage of the newest counted round; zero: none yet */
    struct tw_ledger_row others; /* sum of the nodes that lost their rows; its id is zero */
    uint32_t rows_count;
    struct tw_ledger_row rows[TW_LEDGER_ROWS];
    /* The newest record seen. It is not saved. */
    struct tw_id tip;  /* digest of the record; zero: none yet */
    struct tw_id base; /* its base (proto/record.h); zero: not told */
    uint64_t base_round;
    struct tw_roster roster; /* roster that the record chose */
};

/* Sets the newest record that this node holds; the next record noted should follow it. NULL: none.
 */
void tw_ledger_begin(struct tw_ledger *ledger, const struct tw_record *tip);

/* Counts a committed record. Rounds repeated after a restart are counted once. If the table is
 * full, the row with the fewest tokens is added to `others`. */
void tw_ledger_note(struct tw_ledger *ledger, const struct tw_record *record);

/* Writes the ledger as text, for the daemon's ledger file. Returns the number of bytes. */
size_t tw_ledger_encode(const struct tw_ledger *ledger, char text[TW_LEDGER_TEXT_MAX]);

/* Reads a text of tw_ledger_encode. Returns TW_CORRUPT and empties the ledger if the text is
 * damaged. */
enum tw_status tw_ledger_decode(struct tw_ledger *ledger, const char *text, size_t size);

/* Answer to /v1/ledger, the node with the most tokens first. `self` is this node. Returns a new
 * reference, or NULL if memory runs out. */
json_t *tw_ledger_json(const struct tw_ledger *ledger, const struct tw_id *self);

/* ==== the clock =============================================================================== */

/* How much of the run clock each member moved in the newest rounds. Pure.
 *
 * The clock counts a member's claims up to a bound (tw_record_tokens), which a machine far faster
 * than the others and a liar reach alike. So a high share is told to people, and no rule depends on
 * it. Every node computes it from decided records. */

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
