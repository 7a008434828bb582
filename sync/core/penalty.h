/* penalty.h - penalties: tables of offenders, and the rule by which penalties get longer.
 *
 * A row is (id, count, until_us) in a table of one kind. The penalty of an offence lasts base_us *
 * 2^n, where n counts the earlier offences that were punished. penalty.c has the constants of each
 * kind in one table.
 *
 * Nodes do not agree on penalties: each node keeps its own. */
#ifndef TW_SYNC_CORE_PENALTY_H
#define TW_SYNC_CORE_PENALTY_H

#include <stdint.h>

#include "base/id.h"

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

struct tw_penalty_rule {
    uint64_t base_us;    /* length of the first penalty; 0: offences are only counted */
    uint64_t forget_us;  /* time without a penalty after which offences are forgotten; 0: never */
    uint32_t free_count; /* number of first offences without a penalty */
    uint32_t doublings_max; /* number of doublings after which the length stays the same */
};

extern const struct tw_penalty_rule tw_penalty_rules[TW_PENALTY_KINDS];

/* Returns the row of `id` in a table, or NULL. */
struct tw_penalty *tw_penalty_find(struct tw_penalty *rows, uint32_t rows_count,
                                   const struct tw_id *id);

/* Returns the time until the penalty of `id` ends; 0 if there is none. */
uint64_t tw_penalty_left_us(const struct tw_penalty *rows, uint32_t rows_count,
                            const struct tw_id *id, uint64_t now_us);

/* Returns the row of `id`. A new offender gets a free row, or the row whose penalty ends first; of
 * equal rows, the one with the fewest offences. Its count is then 0. */
struct tw_penalty *tw_penalty_take(struct tw_penalty *rows, uint32_t rows_count,
                                   const struct tw_id *id);

/* Counts an offence and sets the end of the penalty by the rule of the kind. */
void tw_penalty_add(struct tw_penalty *row, enum tw_penalty_kind kind, uint64_t now_us);

#endif
