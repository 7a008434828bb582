#include "daemon/store/checkpoint_pace.h"

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
