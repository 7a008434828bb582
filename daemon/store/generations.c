#include "daemon/store/generations.h"

#include <math.h>

/* ==== when ==================================================================================== */

enum { SHARE = 20 /* writing takes at most this fraction of the time: one twentieth */ };

static uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

void tw_checkpoint_pace_init(struct tw_checkpoint_pace *pace, uint64_t interval_us,
                             uint64_t now_us) {
    *pace = (struct tw_checkpoint_pace){.interval_us = interval_us, .spaced_us = interval_us};
    pace->due_us = interval_us == 0 ? UINT64_MAX : now_us + interval_us;
}

void tw_checkpoint_pace_began(struct tw_checkpoint_pace *pace, uint64_t now_us) {
    pace->began_us = now_us;
    pace->due_us = pace->interval_us == 0 ? UINT64_MAX : now_us + pace->spaced_us;
}

void tw_checkpoint_pace_wrote(struct tw_checkpoint_pace *pace, uint64_t took_us, uint64_t bytes) {
    const uint64_t worn_us =
        at_most(bytes / TW_CHECKPOINT_BYTES_S, TW_CHECKPOINT_WORN_US / 1000000) * 1000000;
    const uint64_t slow_us = at_most(took_us, TW_CHECKPOINT_SLOW_US / SHARE) * SHARE;
    pace->spaced_us = pace->interval_us;
    pace->cost = TW_CHECKPOINT_CHEAP;
    if (pace->interval_us < TW_CHECKPOINT_STRICT_US) return;
    if (worn_us > pace->spaced_us) {
        pace->spaced_us = worn_us;
        pace->cost = TW_CHECKPOINT_WEARS;
    }
    if (slow_us > pace->spaced_us) {
        pace->spaced_us = slow_us;
        pace->cost = TW_CHECKPOINT_SLOW;
    }
    pace->due_us = pace->began_us + pace->spaced_us;
}

void tw_checkpoint_pace_hurry(struct tw_checkpoint_pace *pace, uint64_t delay_us, uint64_t now_us) {
    uint64_t soon_us = now_us + delay_us;
    if (pace->interval_us == 0) return;
    if (pace->began_us != 0) {
        const uint64_t gap_us =
            pace->began_us + (pace->cost == TW_CHECKPOINT_CHEAP
                                  ? at_most(pace->spaced_us / 4, TW_CHECKPOINT_HURRY_US)
                                  : pace->spaced_us / 4);
        if (soon_us < gap_us) soon_us = gap_us;
    }
    if (soon_us < pace->due_us) pace->due_us = soon_us;
}

/* ==== which =================================================================================== */

/* Signs of a rising loss, as in daemon/api/health.h. Losses are in millionths of a nat. */
enum { RISEN_PERCENT = 125, RISEN_E6 = 100 * 1000 };

/* Time for which an older generation may wait to be judged. */
#define AWAITED_US UINT64_C(3600000000)

#define LOSS_E6_MAX (UINT64_C(1) << 40)

/* Converts a loss to millionths of a nat, rounded up. Never returns 0, which means "no loss yet".
 */
static uint64_t millionths(float loss) {
    const double value = ceil((double)loss * 1e6);
    if (value < 1) return 1;
    return value < (double)LOSS_E6_MAX ? (uint64_t)value : LOSS_E6_MAX;
}

void tw_generations_resume(struct tw_generations *generations, uint64_t least_e6, bool is_wild) {
    generations->least_e6 = least_e6 < LOSS_E6_MAX ? least_e6 : LOSS_E6_MAX;
    generations->is_wild = is_wild;
}

void tw_generations_saved(struct tw_generations *generations, uint64_t frozen_us,
                          bool is_older_kept) {
    if (!is_older_kept) generations->older_us = generations->newest_us;
    generations->newest_us = frozen_us;
}

void tw_generations_judge(struct tw_generations *generations, float loss, bool is_hurt,
                          uint64_t now_us) {
    if (isnan(loss)) return;
    const uint64_t least = generations->least_e6, now = millionths(loss);
    const bool is_risen = now == LOSS_E6_MAX || (least > 0 && now > least / 100 * RISEN_PERCENT &&
                                                 now > least + RISEN_E6);
    if (!is_risen && (least == 0 || now < least)) generations->least_e6 = now;
    generations->is_bad = is_risen || is_hurt;
    if (!generations->is_bad) {
        /* The evaluated state is younger than the previous evaluation, so all states up to that
         * evaluation are good. */
        generations->good_us = generations->judged_us;
        generations->has_good = true;
        generations->is_wild = false;
    }
    generations->judged_us = now_us;
}

void tw_generations_wild(struct tw_generations *generations, uint64_t now_us) {
    if (!generations->is_bad && !generations->is_wild) {
        generations->good_us = now_us;
        generations->has_good = true;
    }
    generations->is_wild = true;
}

bool tw_generations_is_older_good(const struct tw_generations *generations, bool has_evaluations) {
    if (!has_evaluations && !generations->is_wild) return true;
    return generations->has_good && generations->older_us <= generations->good_us;
}

bool tw_generations_awaits_judgement(const struct tw_generations *generations, bool has_evaluations,
                                     uint64_t now_us) {
    const uint64_t older_us = generations->older_us;
    if (!has_evaluations || generations->is_bad || generations->is_wild || older_us == 0)
        return false;
    return now_us < older_us + AWAITED_US &&
           !tw_generations_is_older_good(generations, has_evaluations);
}
