#include "daemon/pause/manners.h"

#include <math.h>

void tw_manners_init(struct tw_manners *manners) {
    *manners = (struct tw_manners){.last = (double)NAN, .others = (double)NAN};
}

/* Sets or clears one reason. Returns the reason if it begins or ends, else 0. */
static uint32_t set_reason(struct tw_manners *manners, uint32_t reason, bool holds,
                           uint64_t now_us) {
    if (((manners->reasons & reason) != 0) == holds) return 0;
    if (manners->reasons == 0) manners->paused_us = now_us;
    manners->reasons ^= reason;
    if (manners->reasons == 0) manners->paused_us = 0;
    return reason;
}

uint32_t tw_manners_user(struct tw_manners *manners, bool is_paused, uint64_t now_us) {
    return set_reason(manners, TW_PAUSE_USER, is_paused, now_us);
}

uint32_t tw_manners_hours(struct tw_manners *manners, bool is_off, uint64_t now_us) {
    return set_reason(manners, TW_PAUSE_HOURS, is_off, now_us);
}

uint32_t tw_manners_run(struct tw_manners *manners, bool is_paused, uint64_t now_us) {
    return set_reason(manners, TW_PAUSE_RUN, is_paused, now_us);
}

uint32_t tw_manners_yield(struct tw_manners *manners, uint32_t percent, uint64_t now_us) {
    manners->yield_percent = percent;
    if (percent > 0) return 0;
    manners->last = manners->others = (double)NAN;
    return set_reason(manners, TW_PAUSE_OWNER, false, now_us);
}

uint32_t tw_manners_sample(struct tw_manners *manners, double share, uint64_t now_us) {
    if (manners->yield_percent == 0) return 0;
    const double threshold = manners->yield_percent / 100.0;
    manners->others = isnan(manners->last) ? share : (manners->last + share) / 2;
    if (isnan(share)) manners->others = share;
    manners->last = share;
    if ((manners->reasons & TW_PAUSE_OWNER) == 0) {
        if (!(manners->others > threshold)) return 0; /* NaN is not above */
        manners->loud_us = now_us;
        return set_reason(manners, TW_PAUSE_OWNER, true, now_us);
    }
    if (manners->others >= threshold / 2) manners->loud_us = now_us;
    if (tw_manners_quiet_us(manners, now_us) > 0) return 0;
    return set_reason(manners, TW_PAUSE_OWNER, false, now_us);
}

uint64_t tw_manners_quiet_us(const struct tw_manners *manners, uint64_t now_us) {
    if ((manners->reasons & TW_PAUSE_OWNER) == 0) return 0;
    const uint64_t end_us = manners->loud_us + TW_MANNERS_QUIET_US;
    return now_us < end_us ? end_us - now_us : 0;
}

bool tw_manners_may_free(const struct tw_manners *manners, uint64_t now_us) {
    if ((manners->reasons & TW_PAUSE_RUN) != 0) return false;
    return manners->reasons != 0 && now_us - manners->paused_us >= TW_MANNERS_FREE_US;
}

const char *tw_pause_name(uint32_t reason) {
    switch (reason) {
    case TW_PAUSE_USER: return "user";
    case TW_PAUSE_HOURS: return "hours";
    case TW_PAUSE_OWNER: return "owner";
    case TW_PAUSE_RUN: return "run";
    default: return "unknown";
    }
}
