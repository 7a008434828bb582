/* penalty.h - penalties: tables of offenders, and the rule by which penalties get longer.
 *
 * A row is (id, count, until_us) in a table of one kind. The penalty of an offence lasts base_us *
 * 2^n, where n counts the earlier offences that were punished. penalty.c has the constants of each
 * kind in one table.
 *
 * Nodes do not agree on penalties: each node keeps its own. */
#ifndef TW_SYNC_TRUST_PENALTY_H
#define TW_SYNC_TRUST_PENALTY_H

#include <stdint.h>

#include "sync/core/state/penalty.h"

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
