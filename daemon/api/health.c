#include "daemon/api/health.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* ==== health of the model ===================================================================== */

static bool is_worth(const struct tw_health *health, const struct tw_health_look *look) {
    const struct tw_health_look *last = &health->rounds_look;
    const uint64_t rounds = look->listed + look->missed - last->listed - last->missed;
    return rounds >= look->fragments && rounds >= TW_HEALTH_ROUNDS;
}

static bool is_far(struct tw_health *health, const struct tw_health_look *look) {
    const float distance = look->distance;
    if (look->is_alone) {
        health->distances_count = 0;
        health->distance_most = 0.0f;
        return false;
    }
    if (!isfinite(distance)) return true;
    const bool is_known = health->distances_count >= TW_HEALTH_LOOKS;
    if (is_known && distance > TW_HEALTH_FAR &&
        distance > TW_HEALTH_FURTHER * health->distance_most)
        return true;
    if (!is_known) health->distances_count++;
    if (distance > health->distance_most) health->distance_most = distance;
    return false;
}

static bool is_risen(struct tw_health *health, float live) {
    if (!isfinite(live)) return true;
    if (health->live_least == 0.0f || live < health->live_least) health->live_least = live;
    return live > TW_HEALTH_RISEN * health->live_least &&
           live > TW_HEALTH_RISEN_NATS + health->live_least;
}

/* Counts the consecutive bad signs of one finding. Returns the finding's bit if it began or ended.
 */
static uint32_t sign_note(struct tw_health *health, enum tw_finding finding, bool is_bad) {
    const bool was = tw_health_has(health, finding);
    uint32_t *signs = &health->signs[finding];
    *signs = !is_bad ? 0 : *signs < TW_HEALTH_SIGNS ? *signs + 1 : *signs;
    return tw_health_has(health, finding) != was ? UINT32_C(1) << finding : 0;
}

static uint32_t rounds_note(struct tw_health *health, const struct tw_health_look *look) {
    const struct tw_health_look last = health->rounds_look;
    const uint64_t listed = look->listed - last.listed, missed = look->missed - last.missed;
    const uint64_t refused = look->refused - last.refused;
    const bool is_refused = refused >= 2 && 2 * refused >= listed + missed;
    const bool is_unpaid = look->budget_left_out != last.budget_left_out;
    health->rounds_look = *look;
    return sign_note(health, TW_FINDING_REFUSED, is_refused) |
           sign_note(health, TW_FINDING_LEFT_OUT, listed == 0 && !is_unpaid && !is_refused);
}

uint32_t tw_health_note(struct tw_health *health, const struct tw_health_look *look) {
    uint32_t changed = is_worth(health, look) ? rounds_note(health, look) : 0;
    const bool took_over = look->states - health->states >= look->fragments;
    health->states = look->states;
    changed |= sign_note(health, TW_FINDING_TAKES_OVER, took_over);
    changed |= sign_note(health, TW_FINDING_FAR, is_far(health, look));
    return changed | sign_note(health, TW_FINDING_RISING, is_risen(health, look->live));
}

/* Begins or ends a finding about a long wait. Returns whether it began or ended. */
static bool wait_note(struct tw_health *health, enum tw_finding finding, uint64_t waited_us,
                      uint64_t period_us) {
    const bool was = tw_health_has(health, finding);
    uint64_t usual_us = TW_HEALTH_STUCK_PERIODS * period_us;
    if (period_us == 0) usual_us = TW_HEALTH_UNKNOWN_PERIODS * TW_HEALTH_STUCK_US;
    const bool is_long = waited_us > TW_HEALTH_STUCK_US && waited_us > usual_us;
    health->signs[finding] = is_long ? TW_HEALTH_SIGNS : 0;
    return is_long != was;
}

bool tw_health_note_open(struct tw_health *health, uint64_t open_us, uint64_t period_us) {
    return wait_note(health, TW_FINDING_STUCK, open_us, period_us);
}

bool tw_health_note_seat(struct tw_health *health, uint64_t seatless_us, uint64_t period_us) {
    return wait_note(health, TW_FINDING_NO_SEAT, seatless_us, period_us);
}

static void forget_differences(struct tw_health *health, uint64_t now_us) {
    if (now_us - health->differed_us > TW_HEALTH_DIFFERS_US) health->signs[TW_FINDING_DIFFERS] = 0;
}

bool tw_health_note_differs(struct tw_health *health, uint64_t now_us) {
    forget_differences(health, now_us);
    health->differed_us = now_us;
    return sign_note(health, TW_FINDING_DIFFERS, true) != 0;
}

bool tw_health_tick(struct tw_health *health, uint64_t now_us) {
    const bool was = tw_health_has(health, TW_FINDING_DIFFERS);
    forget_differences(health, now_us);
    return was && !tw_health_has(health, TW_FINDING_DIFFERS);
}

bool tw_health_has(const struct tw_health *health, enum tw_finding finding) {
    return health->signs[finding] >= TW_HEALTH_SIGNS;
}

const char *tw_finding_name(enum tw_finding finding) {
    static const char *const NAMES[TW_FINDINGS] = {
        [TW_FINDING_REFUSED] = "refused",       [TW_FINDING_LEFT_OUT] = "left_out",
        [TW_FINDING_TAKES_OVER] = "takes_over", [TW_FINDING_FAR] = "far",
        [TW_FINDING_RISING] = "rising",         [TW_FINDING_STUCK] = "stuck",
        [TW_FINDING_DIFFERS] = "differs",       [TW_FINDING_NO_SEAT] = "no_seat"};
    return NAMES[finding];
}

/* ==== merging ================================================================================= */

static bool is_worse(float loss, float than, float fraction) {
    return loss > than * (1.0f + fraction) && loss > than + TW_MERGE_LEAST;
}

static bool has_risen(const struct tw_merge_health *health, float live, float anchor) {
    if (!is_worse(anchor, live, TW_MERGE_WORSE)) return false;
    for (uint32_t i = 0; i < health->points_count; i++) {
        if (is_worse(anchor, health->points[i].loss, TW_MERGE_WORSE)) return true;
    }
    return false;
}

static bool stands(const struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                   uint32_t fragments) {
    if (!is_worse(anchor, live, TW_MERGE_BEHIND)) return false;
    const uint64_t window = (uint64_t)TW_MERGE_CYCLES * fragments;
    for (uint32_t i = 0; i < health->points_count; i++) {
        const struct tw_merge_point *const point = &health->points[i];
        if (rounds >= point->rounds + window)
            return point->loss - anchor < TW_MERGE_PROGRESS * (anchor - live);
    }
    return false;
}

static void keep_point(struct tw_merge_health *health, float anchor, uint64_t rounds) {
    struct tw_merge_point *const points = health->points;
    memmove(&points[1], &points[0], (TW_MERGE_CYCLES - 1) * sizeof(points[0]));
    points[0] = (struct tw_merge_point){isfinite(anchor) ? anchor : INFINITY, rounds};
    if (health->points_count < TW_MERGE_CYCLES) health->points_count++;
}

static void note_sign(struct tw_merge_health *health, bool is_bad_sign, uint64_t rounds,
                      uint32_t fragments) {
    if (!is_bad_sign) {
        health->bad_signs = 0;
        return;
    }
    if (health->bad_signs++ == 0) health->bad_since = rounds;
    const uint64_t settles = (uint64_t)TW_MERGE_SETTLES * fragments;
    if (health->bad_signs >= TW_MERGE_SIGNS && rounds >= health->bad_since + settles)
        health->is_bad = true;
}

bool tw_merge_health_note(struct tw_merge_health *health, float live, float anchor, uint64_t rounds,
                          uint32_t fragments) {
    const bool was_bad = health->is_bad;
    if (!isfinite(live)) return false;
    if (health->points_count > 0 && rounds < health->points[0].rounds)
        *health = (struct tw_merge_health){0}; /* another lineage */
    if (anchor <= live * (1.0f + TW_MERGE_BACK)) health->is_bad = false;
    /* Before every fragment has been merged again, the anchor cannot have caught up. */
    const uint64_t last = health->points_count > 0 ? health->points[0].rounds : 0;
    if (rounds < last + fragments) return health->is_bad != was_bad;
    const bool is_bad_sign =
        health->points_count > 0 && (!isfinite(anchor) || has_risen(health, live, anchor) ||
                                     stands(health, live, anchor, rounds, fragments));
    note_sign(health, is_bad_sign, rounds, fragments);
    keep_point(health, anchor, rounds);
    return health->is_bad != was_bad;
}

/* ==== attacks ================================================================================= */

/* Warning for each kind of attack: a sentence in which "%s" is the node, and advice to a person. */
static const struct {
    const char *text, *way_out;
} SENTENCES[TW_ATTACKS] = {
    [TW_ATTACK_FORGED] = {"Node %s sent a round that its group did not decide; it was refused",
                          "ask its operator; if it goes on, shut the node out: a new secret, or "
                          "`thinwire owner revoke`"},
    [TW_ATTACK_TWO_FACED] =
        {"Node %s signed two statements that exclude each other; every node bans it",
         "ask its operator: a copied or restored folder of a node does that "
         "too; `thinwire unban` lets it back in"},
    [TW_ATTACK_LEFT] =
        {"This node left its group for the history of node %s, though most members "
         "were linked",
         "groups that were apart come together like that; if that history is not the run's, shut "
         "the node out and go back: `thinwire rollback`"},
    [TW_ATTACK_MERGE] = {"Node %s made a result that is not the merge of its contributions; it "
                         "merges nothing for a while",
                         "ask its operator to test its memory and its build; if it goes on, shut "
                         "the node out"},
    [TW_ATTACK_OVERSIZED] = {"Node %s sends work far too large to be merged; it is left out",
                             "ask its operator to look at its data and its losses"},
    [TW_ATTACK_STATE] = {"Node %s gave this node a state that is not the run's",
                         "nothing to do: it is fetched from other members; if it repeats, ask the "
                         "node's operator, or shut it out"},
    [TW_ATTACK_UNTRAINED] =
        {"Node %s sends work that was not trained on its part of the data; this "
         "node leaves it out",
         "ask its operator for its data; if it goes on, shut the node out, as "
         "the guide says"},
    [TW_ATTACK_PROTOCOL] = {"Node %s broke the protocol; its link was ended or its message dropped",
                            "`thinwire events` has the reason; is its version the same?"},
};

static bool is_shown(const struct tw_attack *row, uint64_t now_us) {
    return row->count > 0 && now_us - row->at_us <= TW_ATTACK_SHOWN_US;
}

static uint32_t add_counts(uint32_t a, uint32_t b) {
    return a < UINT32_MAX - b ? a + b : UINT32_MAX;
}

static const struct tw_attack *find_newest(const struct tw_attack rows[TW_ATTACKS_PER_KIND]) {
    const struct tw_attack *newest = &rows[0];
    for (uint32_t i = 1; i < TW_ATTACKS_PER_KIND; i++) {
        if (rows[i].count > 0 && rows[i].at_us >= newest->at_us) newest = &rows[i];
    }
    return newest;
}

void tw_attacks_note(struct tw_attacks *attacks, enum tw_attack_kind kind, const struct tw_id *id,
                     uint64_t now_us) {
    struct tw_attack *const rows = attacks->rows[kind];
    /* The last row is the one that a crowd of nodes shares. */
    struct tw_attack *row = &rows[TW_ATTACKS_PER_KIND - 1];
    for (uint32_t i = TW_ATTACKS_PER_KIND; i-- > 0;) {
        if (rows[i].count > 0 && tw_id_equal(&rows[i].id, id)) {
            rows[i].count = add_counts(rows[i].count, 1);
            rows[i].at_us = now_us;
            return;
        }
        if (!is_shown(&rows[i], now_us)) row = &rows[i];
    }
    if (is_shown(row, now_us)) {
        const bool is_old = now_us - attacks->others[kind].at_us > TW_ATTACK_SHOWN_US;
        const uint32_t before = is_old ? 0 : attacks->others[kind].count;
        attacks->others[kind].count = add_counts(before, row->count);
        attacks->others[kind].at_us = now_us;
    }
    *row = (struct tw_attack){.kind = kind, .id = *id, .count = 1, .at_us = now_us};
}

/* Inserts a row behind the newer ones of rows[first .. count - 1]. */
static void insert(struct tw_attack *rows, uint32_t first, uint32_t count,
                   const struct tw_attack *row) {
    uint32_t place = count;
    for (; place > first && rows[place - 1].at_us < row->at_us; place--)
        rows[place] = rows[place - 1];
    rows[place] = *row;
}

uint32_t tw_attacks_recent(const struct tw_attacks *attacks, uint64_t now_us,
                           struct tw_attack *rows) {
    uint32_t count = 0;
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        struct tw_attack newest = *find_newest(attacks->rows[kind]);
        if (!is_shown(&newest, now_us)) continue;
        if (now_us - attacks->others[kind].at_us <= TW_ATTACK_SHOWN_US)
            newest.others = attacks->others[kind].count;
        insert(rows, 0, count++, &newest);
    }
    const uint32_t kinds = count;
    for (enum tw_attack_kind kind = 0; kind < TW_ATTACKS; kind++) {
        const struct tw_attack *const newest = find_newest(attacks->rows[kind]);
        for (uint32_t i = 0; i < TW_ATTACKS_PER_KIND; i++) {
            const struct tw_attack *const row = &attacks->rows[kind][i];
            if (row != newest && is_shown(row, now_us)) insert(rows, kinds, count++, row);
        }
    }
    return count;
}

void tw_attack_text(const struct tw_attack *attack, const char *label,
                    char text[TW_ATTACK_TEXT_BYTES]) {
    char sentence[TW_ATTACK_TEXT_BYTES - 64], times[24] = "", others[40] = "";
    const size_t length = strlen(label);
    TW_ASSERT(attack->kind < TW_ATTACKS && length < TW_ATTACK_LABEL_BYTES);
    const char *const fmt = SENTENCES[attack->kind].text;
    size_t used = 0;
    for (const char *at = fmt; *at != 0 && used + length + 1 < sizeof(sentence); at++) {
        if (at[0] == '%') {
            memcpy(sentence + used, label, length);
            used += length;
            at++;
        } else {
            sentence[used++] = *at;
        }
    }
    sentence[used] = 0;
    if (attack->count > 1) (void)snprintf(times, sizeof(times), " (%u times)", attack->count);
    if (attack->others > 0)
        (void)snprintf(others, sizeof(others), "; other nodes did so %u times", attack->others);
    (void)snprintf(text, TW_ATTACK_TEXT_BYTES, "%s%s%s", sentence, times, others);
}

const char *tw_attack_way_out(enum tw_attack_kind kind) {
    TW_ASSERT(kind < TW_ATTACKS);
    return SENTENCES[kind].way_out;
}
