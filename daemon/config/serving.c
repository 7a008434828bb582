#include "daemon/config/serving.h"

#include <string.h>

#include "base/assert.h"

#define HOUR_US (UINT64_C(3600) * 1000 * 1000)
#define DAY_US (24 * HOUR_US)

/* Periods over which the budgets of control messages are paid back. */
#define CONTROL_US (UINT64_C(1024) * 1000 * 1000)
#define CONTROL_ALL_US (UINT64_C(2048) * 1000 * 1000)
#define COPY_IDLE_US                                                                               \
    (UINT64_C(600) * 1000 * 1000) /* time after which a copy counts as given up                    \
                                   */

enum {
    TIMES = 2,                       /* states, datasets or payloads that one node may always get */
    MEMBER_STATES = 64,              /* states that a member may get in an hour without a quota */
    OUTSIDE_NODE_STATES = 8,         /* states that one node outside may get then */
    OUTSIDE_STATES = TW_MEMBERS_MAX, /* states that all nodes outside may get in an hour */
    OUTSIDE_SHARE = 300,             /* parts of a quota, of which they get one a day */
    CONTROL = 2 << 20,               /* bytes of control messages of one node outside */
    CONTROL_ALL = 8 << 20,           /* and of all of them */
    CONTROL_LITTLE = 128 << 10,      /* that end no link, even if all have used up their budget */
    NODE_SHARE = 60,                 /* parts of a quota, of which a member gets one a day */
};

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void tw_serving_init(struct tw_serving *serving, uint64_t state_bytes) {
    memset(serving, 0, sizeof(*serving));
    serving->state_bytes = larger(state_bytes, TW_SERVING_BYTES_MIN);
    serving->data_bytes = TW_SERVING_BYTES_MIN;
}

void tw_serving_set_data(struct tw_serving *serving, uint64_t bytes) {
    serving->data_bytes = larger(bytes, TW_SERVING_BYTES_MIN);
}

void tw_serving_set_line(struct tw_serving *serving, uint64_t bytes_per_s) {
    serving->line_bytes_s = bytes_per_s;
}

void tw_serving_set_left(struct tw_serving *serving, const struct tw_serving_left *left) {
    serving->left = *left;
}

uint64_t tw_serving_take(struct tw_serving *serving, uint64_t *outside) {
    const uint64_t month = serving->month_fresh;
    *outside = serving->outside_fresh;
    serving->month_fresh = serving->outside_fresh = 0;
    return month;
}

/* ---- levels -------------------------------------------------------------------------------- */

/* Returns the bytes not paid back yet, if `most` bytes are paid back in a period. */
static uint64_t level_at(const struct tw_serving_level *level, uint64_t most, uint64_t period_us,
                         uint64_t now_us) {
    const uint64_t passed_us = now_us > level->at_us ? now_us - level->at_us : 0;
    if (passed_us >= period_us) return 0;
    const uint64_t paid = (uint64_t)((double)most * (double)passed_us / (double)period_us);
    return level->bytes > paid ? level->bytes - paid : 0;
}

static void level_add(struct tw_serving_level *level, uint64_t most, uint64_t period_us,
                      uint64_t bytes, uint64_t now_us) {
    level->bytes = level_at(level, most, period_us, now_us) + bytes;
    level->at_us = now_us;
}

static void level_subtract(struct tw_serving_level *level, uint64_t bytes) {
    level->bytes -= bytes < level->bytes ? bytes : level->bytes;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static bool is_member(const struct tw_serving_row *row, uint64_t now_us) {
    return row->member_us != 0 && now_us - row->member_us < DAY_US;
}

/* Returns the node's row. A new one replaces that of the least recently served node outside. */
static struct tw_serving_row *row_take(struct tw_serving *serving, const struct tw_id *id,
                                       uint64_t now_us) {
    struct tw_serving_row *oldest = &serving->rows[0];
    for (uint32_t i = 0; i < TW_SERVING_ROWS; i++) {
        struct tw_serving_row *const row = &serving->rows[i];
        if (tw_id_equal(&row->id, id)) return row;
        const bool is_kept = is_member(row, now_us), was_kept = is_member(oldest, now_us);
        if (is_kept == was_kept ? row->used_us < oldest->used_us : was_kept) oldest = row;
    }
    *oldest = (struct tw_serving_row){.id = *id, .used_us = now_us};
    return oldest;
}

void tw_serving_member(struct tw_serving *serving, const struct tw_id *id, uint64_t now_us) {
    row_take(serving, id, now_us)->member_us = larger(now_us, 1);
}

/* Returns the number of chunks of this payload that the node was sent. A payload that took the
 * pool's row of another one is counted anew. */
static uint16_t *find_given(struct tw_serving *serving, struct tw_serving_row *row,
                            const struct tw_serving_ask *ask) {
    TW_ASSERT(ask->kind == TW_SERVING_PAYLOAD);
    TW_ASSERT(ask->row < TW_PAYLOADS_MAX);
    if (!tw_id_equal(&serving->payloads[ask->row], ask->payload)) {
        serving->payloads[ask->row] = *ask->payload;
        for (uint32_t i = 0; i < TW_SERVING_ROWS; i++) serving->rows[i].given[ask->row] = 0;
    }
    return &row->given[ask->row];
}

/* The rows that a request is charged to. */
struct charge {
    struct tw_serving_row *row, *other; /* `other`: NULL, or the other end, also a member */
    bool is_outside;
    bool is_round; /* a payload's first or second delivery */
    bool is_free;  /* part of a round with a member: no budget */
};

static struct charge weigh(struct tw_serving *serving, const struct tw_serving_ask *ask,
                           uint64_t now_us) {
    struct charge charge = {.row = row_take(serving, ask->id, now_us)};
    charge.is_outside = !ask->is_wanted && !is_member(charge.row, now_us);
    charge.row->used_us = now_us;
    if (ask->other != NULL) {
        /* An end outside pays alone: it must not use up the budget of the member that it calls. */
        struct tw_serving_row *const other = row_take(serving, ask->other, now_us);
        const bool is_other_outside = !ask->is_other_wanted && !is_member(other, now_us);
        other->used_us = now_us;
        if (is_other_outside && !charge.is_outside) charge.row = other;
        if (!is_other_outside && !charge.is_outside && other != charge.row) charge.other = other;
        charge.is_outside |= is_other_outside;
    }
    charge.is_round = ask->kind == TW_SERVING_PAYLOAD &&
                      *find_given(serving, charge.row, ask) < TIMES * (uint64_t)ask->chunks;
    charge.is_free = charge.is_round && !charge.is_outside;
    return charge;
}

static bool is_state(const struct tw_serving_ask *ask, const struct charge *charge) {
    return ask->kind == TW_SERVING_STATE || (ask->kind == TW_SERVING_PAYLOAD && !charge->is_round);
}

static uint64_t day_bytes(const struct tw_serving *serving, const struct tw_serving_row *row) {
    return row->day == serving->left.day ? row->day_bytes : 0;
}

/* ---- judging ------------------------------------------------------------------------------- */

/* Returns the bytes of states that one node may get in an hour. A node that is restarted again and
 * again must come back each time. With a quota the shares of a day bound it, too. */
static uint64_t states_most(const struct tw_serving *serving, bool is_outside) {
    const uint64_t least = TIMES * serving->state_bytes;
    uint64_t most = (is_outside ? OUTSIDE_NODE_STATES : MEMBER_STATES) * serving->state_bytes;
    const uint64_t line = serving->line_bytes_s / 2 * (HOUR_US / 1000000);
    if (serving->line_bytes_s > 0 && most > line) most = line;
    return larger(most, least);
}

/* Returns the bytes that nodes outside may have used on this day after a request of this kind. */
static uint64_t outside_most(const struct tw_serving *serving, enum tw_serving_kind kind) {
    const uint64_t share = serving->left.quota_bytes / OUTSIDE_SHARE;
    const uint64_t low = larger(share / 2, TW_SERVING_BYTES_MIN);
    if (kind == TW_SERVING_DATA || kind == TW_SERVING_RELAY) return low;
    return larger(share, low + serving->state_bytes);
}

static enum tw_serving_verdict judge_rates(struct tw_serving *serving,
                                           const struct tw_serving_ask *ask,
                                           const struct charge *charge, uint64_t now_us) {
    const uint64_t states = states_most(serving, charge->is_outside);
    const uint64_t data = TIMES * serving->data_bytes;
    const uint64_t all = OUTSIDE_STATES * serving->state_bytes;
    const struct tw_serving_row *row = charge->row;
    if (ask->kind == TW_SERVING_DATA &&
        level_at(&row->data, data, DAY_US, now_us) + ask->bytes > data)
        return TW_SERVING_NODE;
    if (!is_state(ask, charge)) return TW_SERVING_GRANTED;
    if (level_at(&row->states, states, HOUR_US, now_us) + ask->bytes > states)
        return TW_SERVING_NODE;
    if (charge->is_outside &&
        level_at(&serving->outside_states, all, HOUR_US, now_us) + ask->bytes > all)
        return TW_SERVING_OUTSIDE;
    return TW_SERVING_GRANTED;
}

/* Returns the bytes of a day's share of nodes outside that are kept for others of them: the rest of
 * the states that they began to copy earlier than this one. */
static uint64_t kept_for_earlier(const struct tw_serving *serving,
                                 const struct tw_serving_row *asking, uint64_t now_us) {
    const bool has_begun = asking->copy.day == serving->left.day && asking->copy.bytes > 0;
    uint64_t kept = 0;
    for (uint32_t i = 0; i < TW_SERVING_ROWS; i++) {
        const struct tw_serving_row *const row = &serving->rows[i];
        if (row == asking || row->copy.day != serving->left.day || is_member(row, now_us)) continue;
        if (row->copy.bytes == 0 || row->copy.bytes >= serving->state_bytes) continue;
        if (now_us - row->used_us >= COPY_IDLE_US) continue;
        if (has_begun && (row->copy.began_us > asking->copy.began_us ||
                          (row->copy.began_us == asking->copy.began_us && row > asking)))
            continue; /* it began later */
        kept += serving->state_bytes - row->copy.bytes;
    }
    return kept;
}

static enum tw_serving_verdict judge_quota(const struct tw_serving *serving,
                                           const struct tw_serving_ask *ask,
                                           const struct charge *charge, uint64_t now_us) {
    const struct tw_serving_left *left = &serving->left;
    /* One node gets one state a day at the least, however small the quota. */
    const uint64_t most = larger(left->quota_bytes / NODE_SHARE, serving->state_bytes);
    if (left->quota_bytes == 0) return TW_SERVING_GRANTED;
    if (left->month_bytes + ask->bytes > left->quota_bytes / 2) return TW_SERVING_HALF;
    if (day_bytes(serving, charge->row) + ask->bytes > most) return TW_SERVING_NODE;
    if (charge->other != NULL && day_bytes(serving, charge->other) + ask->bytes > most)
        return TW_SERVING_NODE;
    if (!charge->is_outside) return TW_SERVING_GRANTED;
    const uint64_t kept =
        is_state(ask, charge) ? kept_for_earlier(serving, charge->row, now_us) : 0;
    if (left->outside_bytes + ask->bytes + kept > outside_most(serving, ask->kind))
        return TW_SERVING_OUTSIDE;
    return TW_SERVING_GRANTED;
}

enum tw_serving_verdict tw_serving_look(struct tw_serving *serving,
                                        const struct tw_serving_ask *ask, uint64_t now_us) {
    const struct charge charge = weigh(serving, ask, now_us);
    if (charge.is_free) return TW_SERVING_GRANTED;
    const enum tw_serving_verdict verdict = judge_rates(serving, ask, &charge, now_us);
    return verdict != TW_SERVING_GRANTED ? verdict : judge_quota(serving, ask, &charge, now_us);
}

/* Returns the seconds until so many more bytes fit into a level. */
static uint64_t level_wait_s(const struct tw_serving_level *level, uint64_t bytes, uint64_t most,
                             uint64_t period_us, uint64_t now_us) {
    const uint64_t used = level_at(level, most, period_us, now_us) + bytes;
    if (used <= most) return 0;
    return (uint64_t)((double)(used - most) / (double)most * (double)period_us / 1e6) + 1;
}

uint32_t tw_serving_wait_s(struct tw_serving *serving, const struct tw_serving_ask *ask,
                           enum tw_serving_verdict verdict, uint64_t now_us, uint32_t day_left_s,
                           uint32_t month_left_s) {
    const struct charge charge = weigh(serving, ask, now_us);
    const uint64_t states = states_most(serving, charge.is_outside);
    uint64_t wait_s = 0;
    if (verdict == TW_SERVING_HALF) return month_left_s > 0 ? month_left_s : 1;
    if (ask->kind == TW_SERVING_DATA) {
        wait_s = level_wait_s(&charge.row->data, ask->bytes, TIMES * serving->data_bytes, DAY_US,
                              now_us);
    } else if (is_state(ask, &charge)) {
        wait_s = level_wait_s(&charge.row->states, ask->bytes, states, HOUR_US, now_us);
        if (wait_s == 0 && charge.is_outside)
            wait_s = level_wait_s(&serving->outside_states, ask->bytes,
                                  OUTSIDE_STATES * serving->state_bytes, HOUR_US, now_us);
    }
    if (wait_s == 0) wait_s = day_left_s; /* the shares of a quota are those of a day */
    if (wait_s > DAY_US / 1000000) wait_s = DAY_US / 1000000;
    return wait_s > 0 ? (uint32_t)wait_s : 1;
}

/* ---- charging ------------------------------------------------------------------------------ */

static void day_add(const struct tw_serving *serving, struct tw_serving_row *row, uint64_t bytes) {
    if (row == NULL) return;
    row->day_bytes = day_bytes(serving, row) + bytes;
    row->day = serving->left.day;
}

static void take_off(uint64_t *sum, uint64_t bytes) {
    *sum -= bytes < *sum ? bytes : *sum;
}

static void copy_add(const struct tw_serving *serving, struct tw_serving_row *row, uint64_t bytes,
                     uint64_t now_us) {
    if (row->copy.day != serving->left.day) row->copy.bytes = 0;
    if (row->copy.bytes == 0) row->copy.began_us = now_us;
    row->copy.day = serving->left.day;
    row->copy.bytes += bytes;
}

void tw_serving_charge(struct tw_serving *serving, const struct tw_serving_ask *ask,
                       uint64_t now_us) {
    const struct charge charge = weigh(serving, ask, now_us);
    struct tw_serving_row *row = charge.row;
    const uint64_t states = states_most(serving, charge.is_outside);
    const uint64_t data = TIMES * serving->data_bytes;
    if (ask->kind == TW_SERVING_PAYLOAD) {
        uint16_t *given = find_given(serving, row, ask);
        *given = (uint16_t)(*given + (*given < UINT16_MAX));
    }
    if (charge.is_free) return;
    if (ask->kind == TW_SERVING_DATA) level_add(&row->data, data, DAY_US, ask->bytes, now_us);
    if (is_state(ask, &charge)) {
        level_add(&row->states, states, HOUR_US, ask->bytes, now_us);
        if (charge.is_outside) {
            level_add(&serving->outside_states, OUTSIDE_STATES * serving->state_bytes, HOUR_US,
                      ask->bytes, now_us);
            copy_add(serving, row, ask->bytes, now_us);
        }
    }
    day_add(serving, row, ask->bytes);
    day_add(serving, charge.other, ask->bytes);
    serving->bytes += ask->bytes;
    serving->month_fresh += ask->bytes;
    serving->left.month_bytes += ask->bytes;
    if (!charge.is_outside) return;
    serving->outside_fresh += ask->bytes;
    serving->left.outside_bytes += ask->bytes;
}

void tw_serving_refund(struct tw_serving *serving, const struct tw_serving_ask *ask,
                       uint64_t now_us) {
    struct charge charge = weigh(serving, ask, now_us);
    if (ask->kind == TW_SERVING_PAYLOAD) {
        uint16_t *given = find_given(serving, charge.row, ask);
        if (*given > 0) (*given)--;
        charge = weigh(serving, ask, now_us); /* as it was when it was charged */
    }
    if (charge.is_free) return;
    if (ask->kind == TW_SERVING_DATA) level_subtract(&charge.row->data, ask->bytes);
    if (is_state(ask, &charge)) {
        level_subtract(&charge.row->states, ask->bytes);
        if (charge.is_outside) level_subtract(&serving->outside_states, ask->bytes);
        if (charge.is_outside && charge.row->copy.day == serving->left.day)
            take_off(&charge.row->copy.bytes, ask->bytes);
    }
    if (charge.row->day == serving->left.day) take_off(&charge.row->day_bytes, ask->bytes);
    take_off(&serving->bytes, ask->bytes);
    take_off(&serving->month_fresh, ask->bytes);
    take_off(&serving->left.month_bytes, ask->bytes);
    if (!charge.is_outside) return;
    take_off(&serving->outside_fresh, ask->bytes);
    take_off(&serving->left.outside_bytes, ask->bytes);
}

bool tw_serving_control(struct tw_serving *serving, const struct tw_id *id, bool is_wanted,
                        uint64_t bytes, uint64_t now_us) {
    if (serving->left.quota_bytes == 0 || is_wanted || bytes == 0) return false;
    struct tw_serving_row *const row = row_take(serving, id, now_us);
    if (is_member(row, now_us)) return false;
    row->used_us = now_us;
    level_add(&row->control, CONTROL, CONTROL_US, bytes, now_us);
    level_add(&serving->outside_control, CONTROL_ALL, CONTROL_ALL_US, bytes, now_us);
    return row->control.bytes > CONTROL ||
           (serving->outside_control.bytes > CONTROL_ALL && row->control.bytes > CONTROL_LITTLE);
}

/* ---- refusals ------------------------------------------------------------------------------ */

const struct tw_id *tw_serving_refuse(struct tw_serving *serving, const struct tw_serving_ask *ask,
                                      enum tw_serving_verdict verdict, uint64_t now_us) {
    TW_ASSERT(verdict > TW_SERVING_GRANTED && verdict < TW_SERVING_VERDICTS);
    struct tw_serving_row *row = weigh(serving, ask, now_us).row;
    serving->refused[verdict]++;
    if (row->logged_us != 0 && now_us - row->logged_us < HOUR_US) return NULL;
    row->logged_us = larger(now_us, 1);
    return &row->id;
}

const char *tw_serving_sentence(enum tw_serving_verdict verdict) {
    static const char *const SENTENCES[TW_SERVING_VERDICTS] = {
        [TW_SERVING_GRANTED] = "granted",
        [TW_SERVING_NODE] = "this node has given that node as much as it gives one node",
        [TW_SERVING_OUTSIDE] = "nodes outside the roster have used up their share of this node",
        [TW_SERVING_HALF] = "the half of this node's quota that serves others is used up",
    };
    TW_ASSERT(verdict < TW_SERVING_VERDICTS);
    return SENTENCES[verdict];
}
