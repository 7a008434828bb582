/* ledger.h - tokens, rounds and merged parts of each node, by the committed rounds that this node
 * saw.
 *
 * A committed record names its contributors with their tokens, signed by each of them, and the
 * owners of the merged parts. All nodes thus count the same for a round that they saw. Rounds that
 * this node never saw, because it was away and took over the state, are counted as unseen. The
 * ledger is for people: nothing in a run depends on it.
 *
 * Rounds of a lineage that the run left later stay counted. A record says which round it follows,
 * and its members are seats in the roster that the round before it chose. So a round is counted
 * only when the one before it is known. Pure. */
#ifndef TW_DAEMON_API_LEDGER_H
#define TW_DAEMON_API_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/record.h"

enum {
    TW_LEDGER_ROWS = 512,
    TW_LEDGER_LINE_BYTES = 256,
    TW_LEDGER_TEXT_MAX = (TW_LEDGER_ROWS + 3) * TW_LEDGER_LINE_BYTES,
};

struct tw_ledger_row {
    struct tw_id id;
    uint64_t tokens;       /* each token that the node trained on and a record lists, once */
    uint64_t rounds;       /* rounds that list it as a contributor */
    uint64_t parts;        /* merged parts of which it was the owner */
    uint64_t merged_bytes; /* size of these parts: each other member fetched them */
    uint64_t first_round, last_round; /* of its contributions */
};

struct tw_ledger {
    uint64_t first_round;        /* oldest round that was counted */
    uint64_t rounds;             /* rounds counted */
    uint64_t unseen;             /* rounds in between that were not */
    uint64_t next_round;         /* the round to count next, in `lineage` */
    struct tw_id lineage;        /* zero: no round was counted yet */
    struct tw_ledger_row others; /* the sum of nodes whose rows had to go; its id is zero */
    uint32_t rows_count;
    struct tw_ledger_row rows[TW_LEDGER_ROWS];
    /* the newest record seen; not saved */
    struct tw_id tip;        /* its digest; zero: none yet */
    struct tw_roster roster; /* the roster that it chose */
};

/* `tip` is the newest record that this node holds; the records after it follow. NULL: none. */
void tw_ledger_begin(struct tw_ledger *ledger, const struct tw_record *tip);

/* Counts a committed record. Rounds that a restart repeats are counted once. When the table is
 * full, the row with the fewest tokens goes into `others`. */
void tw_ledger_note(struct tw_ledger *ledger, const struct tw_record *record);

/* As text, of which the daemon keeps a file. Returns the number of bytes. */
size_t tw_ledger_encode(const struct tw_ledger *ledger, char text[TW_LEDGER_TEXT_MAX]);

/* Reads a text of tw_ledger_encode. TW_CORRUPT: it is damaged, and the ledger is empty. */
enum tw_status tw_ledger_decode(struct tw_ledger *ledger, const char *text, size_t size);

/* /v1/ledger, the node with the most tokens first. `self`: this node. A new reference; NULL without
 * memory. */
json_t *tw_ledger_json(const struct tw_ledger *ledger, const struct tw_id *self);

#endif
