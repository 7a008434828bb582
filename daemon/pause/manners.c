#include "daemon/pause/manners.h"

#include <math.h>

static const struct tw_manners_use NOTHING = {.last = (double)NAN, .others = (double)NAN};

void tw_manners_init(struct tw_manners *manners) {
    *manners = (struct tw_manners){.cpu = NOTHING, .gpu = NOTHING};
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
    manners->cpu = manners->gpu = NOTHING;
    return set_reason(manners, TW_PAUSE_OWNER, false, now_us);
}

static void add_sample(struct tw_manners_use *use, double share) {
    use->others = isnan(use->last) ? share : (use->last + share) / 2;
    if (isnan(share)) use->others = share;
    use->last = share;
}

uint32_t tw_manners_sample(struct tw_manners *manners, double cpu, double gpu, uint64_t now_us) {
    if (manners->yield_percent == 0) return 0;
    const double threshold = manners->yield_percent / 100.0;
    const bool holds = (manners->reasons & TW_PAUSE_OWNER) != 0;
    add_sample(&manners->cpu, cpu);
    add_sample(&manners->gpu, gpu);
    const double others = fmax(manners->cpu.others, manners->gpu.others); /* passes over NaN */
    if (holds ? others >= threshold / 2 : others > threshold) {           /* NaN is neither */
        manners->loud_us = now_us;
        manners->is_gpu = !(manners->cpu.others >= others);
        return set_reason(manners, TW_PAUSE_OWNER, true, now_us);
    }
    if (!holds || tw_manners_quiet_us(manners, now_us) > 0) return 0;
    return set_reason(manners, TW_PAUSE_OWNER, false, now_us);
}

uint64_t tw_manners_quiet_us(const struct tw_manners *manners, uint64_t now_us) {
    if ((manners->reasons & TW_PAUSE_OWNER) == 0) return 0;
    const bool is_blind = manners->is_gpu && isnan(manners->gpu.others);
    const uint64_t end_us =
        manners->loud_us + (is_blind ? TW_MANNERS_BLIND_US : TW_MANNERS_QUIET_US);
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
