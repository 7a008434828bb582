#include "daemon/pause/pauses.h"

#include <math.h>
#include <stdio.h>

#include "daemon/api/view_sentence.h"

/* ==== the rules =============================================================================== */

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

/* ==== measuring and acting ==================================================================== */

enum {
    SAMPLE_US = 400 * 1000, /* two samples per second, at four ticks per second */
    LOOK_US = 1000 * 1000,  /* interval between checks of worker.hours */
    PAIRS_BYTES = TW_VIEW_TEXT_BYTES + 64,
};

void tw_pauses_init(struct tw_pauses *pauses, const struct tw_pauses_config *config) {
    *pauses = (struct tw_pauses){.config = *config};
    tw_manners_init(&pauses->manners);
}

struct tw_view_pause tw_pauses_view(const struct tw_pauses *pauses, uint64_t now_us) {
    const struct tw_manners *manners = &pauses->manners;
    return (struct tw_view_pause){
        .is_by_user = (manners->reasons & TW_PAUSE_USER) != 0,
        .is_by_hours = (manners->reasons & TW_PAUSE_HOURS) != 0,
        .is_by_owner = (manners->reasons & TW_PAUSE_OWNER) != 0,
        .is_by_run = (manners->reasons & TW_PAUSE_RUN) != 0,
        .until_min = pauses->hours.until_min,
        .yield_percent = manners->yield_percent,
        .quiet_us = tw_manners_quiet_us(manners, now_us),
        .age_us = manners->reasons != 0 ? now_us - manners->paused_us : TW_VIEW_NEVER,
        .others_cpu = manners->cpu.others,
        .others_gpu = manners->gpu.others,
        .is_gpu = manners->is_gpu,
    };
}

/* ---- changes -----------------------------------------------------------------------------------
 */

/* Reports one event for a reason that has begun or ended. */
static void note_change(const struct tw_pauses *pauses, uint32_t reason, uint64_t now_us) {
    const struct tw_view_pause pause = tw_pauses_view(pauses, now_us);
    const uint32_t reasons = pauses->manners.reasons;
    const bool has_begun = (reasons & reason) != 0;
    const char *const name = tw_pause_name(reason);
    char text[TW_VIEW_TEXT_BYTES], pairs[PAIRS_BYTES];
    tw_view_pause_text(&pause, text);
    if (has_begun ? reason == TW_PAUSE_USER : reasons == 0)
        (void)snprintf(pairs, sizeof(pairs), "by=%s", name);
    else
        (void)snprintf(pairs, sizeof(pairs), "%s=%s text=\"%s\"", has_begun ? "by" : "ended", name,
                       text);
    pauses->config.note(pauses->config.user, false,
                        has_begun      ? "paused"
                        : reasons == 0 ? "resumed"
                                       : "still_paused",
                        pairs);
}

/* Pauses or resumes training after the reason `changed` began or ended. */
static void take_change(struct tw_pauses *pauses, uint32_t changed, uint64_t now_us) {
    const uint32_t reasons = pauses->manners.reasons;
    if (changed == 0) return;
    const bool was_paused = (reasons ^ changed) != 0, is_paused = reasons != 0;
    if (!is_paused) pauses->is_resting = false;
    if (was_paused != is_paused) pauses->config.pause(pauses->config.user, is_paused);
    note_change(pauses, changed, now_us);
}

/* ---- measurements ------------------------------------------------------------------------------
 */

static void look_at_hours(struct tw_pauses *pauses, uint64_t now_us) {
    pauses->look_due_us = now_us + LOOK_US;
    pauses->hours =
        tw_hours_at(&pauses->config.config->manners.hours, pauses->config.minute_of_day());
    take_change(pauses, tw_manners_hours(&pauses->manners, pauses->hours.is_off, now_us), now_us);
}

static void look_at_others(struct tw_pauses *pauses, uint64_t now_us) {
    struct tw_cpu_look look;
    struct tw_error err = {0};
    char pairs[PAIRS_BYTES];
    pauses->sample_due_us = now_us + SAMPLE_US;
    const bool is_seen =
        tw_cpu_look(&look, pauses->config.worker(pauses->config.user), &err) == TW_OK;
    (void)snprintf(pairs, sizeof(pairs), "text=\"worker.yield has no effect: %.200s\"",
                   err.message);
    if (!is_seen && !pauses->is_blind)
        pauses->config.note(pauses->config.user, true, "yield_blind", pairs);
    pauses->is_blind = !is_seen;
    const bool has_share = is_seen && pauses->has_look;
    const double share = has_share ? tw_cpu_others(&pauses->look, &look) : (double)NAN;
    pauses->has_look = is_seen;
    if (is_seen) pauses->look = look;
    const double gpu = pauses->config.gpu_others(pauses->config.user);
    take_change(pauses, tw_manners_sample(&pauses->manners, share, gpu, now_us), now_us);
}

void tw_pauses_tick(struct tw_pauses *pauses, uint64_t now_us) {
    if (now_us >= pauses->look_due_us) look_at_hours(pauses, now_us);
    if (pauses->manners.yield_percent > 0 && now_us >= pauses->sample_due_us)
        look_at_others(pauses, now_us);
    if (!pauses->is_resting && tw_manners_may_free(&pauses->manners, now_us))
        pauses->is_resting = pauses->config.rest(pauses->config.user);
}

/* ---- interface ---------------------------------------------------------------------------------
 */

void tw_pauses_apply(struct tw_pauses *pauses, uint64_t now_us) {
    const uint32_t percent = pauses->config.config->manners.yield_percent;
    if (percent == 0) pauses->has_look = false;
    take_change(pauses, tw_manners_yield(&pauses->manners, percent, now_us), now_us);
    look_at_hours(pauses, now_us);
}

void tw_pauses_run(struct tw_pauses *pauses, bool is_paused, uint64_t now_us) {
    take_change(pauses, tw_manners_run(&pauses->manners, is_paused, now_us), now_us);
}

void tw_pauses_user(struct tw_pauses *pauses, bool is_paused, uint64_t now_us,
                    struct tw_error *answer) {
    char text[TW_VIEW_TEXT_BYTES];
    take_change(pauses, tw_manners_user(&pauses->manners, is_paused, now_us), now_us);
    const struct tw_view_pause pause = tw_pauses_view(pauses, now_us);
    tw_view_pause_text(&pause, text);
    if (is_paused)
        (void)snprintf(answer->message, sizeof(answer->message), "training is paused");
    else if (pauses->manners.reasons == 0)
        (void)snprintf(answer->message, sizeof(answer->message), "training goes on");
    else
        (void)snprintf(answer->message, sizeof(answer->message), "training is still %.200s", text);
}
