#include "daemon/api/health.h"

#include <math.h>

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
