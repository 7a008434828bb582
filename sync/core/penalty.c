/* penalty.c - the rules of each kind of penalty, and the table operations. */
#include "sync/core/penalty.h"

#include "base/assert.h"

#include <stddef.h>

#define MINUTE_US UINT64_C(60000000)

const struct tw_penalty_rule tw_penalty_rules[TW_PENALTY_KINDS] = {
    /* A false result costs the group a part of a round. Ten minutes are many rounds of most runs,
     * and an honest node with a broken GPU may return once repaired. */
    [TW_PENALTY_STRIKE] = {.base_us = 10 * MINUTE_US, .doublings_max = 6},
    /* A single stall is an accident: a worker died, or a link was full. After ten minutes without
     * another one, stalls are forgotten. */
    [TW_PENALTY_STALL_OWNER] = {.base_us = MINUTE_US,
                                .forget_us = 10 * MINUTE_US,
                                .free_count = 1,
                                .doublings_max = 5},
    [TW_PENALTY_STALL_PROPOSER] = {.base_us = MINUTE_US,
                                   .forget_us = 10 * MINUTE_US,
                                   .free_count = 1,
                                   .doublings_max = 5},
    /* Only counted, because the contributor sends less the next time (worker/merge/merger.h). */
    [TW_PENALTY_UNMERGED] = {.base_us = 0},
    /* Short, because most donors are honest, and a newcomer needs one soon. */
    [TW_PENALTY_DONOR] = {.base_us = MINUTE_US / 6, .doublings_max = 6},
    /* An honest node that could not be reached for a minute must be believed again later. */
    [TW_PENALTY_CLAIM] = {.base_us = MINUTE_US, .doublings_max = 6},
    /* As long as for a strike: the only honest cause of wrong bytes is a broken disk. */
    [TW_PENALTY_FETCH] = {.base_us = 10 * MINUTE_US, .doublings_max = 6},
    /* As long as for a strike. A member that goes on is found again after a few checks. */
    [TW_PENALTY_UNTRAINED] = {.base_us = 10 * MINUTE_US, .doublings_max = 6},
};

struct tw_penalty *tw_penalty_find(struct tw_penalty *rows, uint32_t rows_count,
                                   const struct tw_id *id) {
    for (uint32_t i = 0; i < rows_count; i++) {
        if (rows[i].count > 0 && tw_id_equal(&rows[i].id, id)) return &rows[i];
    }
    return NULL;
}

uint64_t tw_penalty_left_us(const struct tw_penalty *rows, uint32_t rows_count,
                            const struct tw_id *id, uint64_t now_us) {
    for (uint32_t i = 0; i < rows_count; i++) {
        if (rows[i].count > 0 && rows[i].until_us > now_us && tw_id_equal(&rows[i].id, id))
            return rows[i].until_us - now_us;
    }
    return 0;
}

static bool gives_way(const struct tw_penalty *row, const struct tw_penalty *other) {
    if (row->until_us != other->until_us) return row->until_us < other->until_us;
    return row->count < other->count;
}

struct tw_penalty *tw_penalty_take(struct tw_penalty *rows, uint32_t rows_count,
                                   const struct tw_id *id) {
    struct tw_penalty *row = tw_penalty_find(rows, rows_count, id);
    TW_ASSERT(rows_count > 0);
    if (row != NULL) return row;
    row = &rows[0];
    for (uint32_t i = 1; i < rows_count; i++) {
        if (gives_way(&rows[i], row)) row = &rows[i];
    }
    *row = (struct tw_penalty){.id = *id};
    return row;
}

void tw_penalty_add(struct tw_penalty *row, enum tw_penalty_kind kind, uint64_t now_us) {
    const struct tw_penalty_rule *rule = &tw_penalty_rules[kind];
    TW_ASSERT(kind < TW_PENALTY_KINDS);
    if (rule->forget_us > 0 && row->count > 0 && now_us >= row->until_us + rule->forget_us)
        row->count = 0;
    row->until_us = rule->base_us > 0 ? now_us : 0;
    if (row->count >= rule->free_count) {
        const uint32_t punished = row->count - rule->free_count;
        const uint32_t doublings = punished < rule->doublings_max ? punished : rule->doublings_max;
        row->until_us += rule->base_us << doublings;
    }
    if (row->count < UINT32_MAX) row->count++;
    TW_ASSERT(row->count > 0); /* a row with an offence is not free */
}
