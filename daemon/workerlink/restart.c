#include "daemon/workerlink/restart.h"

void tw_restart_init(struct tw_restart *restart, uint64_t seed, bool is_foreign) {
    *restart = (struct tw_restart){.is_foreign = is_foreign};
    tw_rng_seed(&restart->rng, seed);
}

void tw_restart_started(struct tw_restart *restart, uint64_t now_us) {
    restart->started_us = now_us;
    restart->alive_us = now_us;
    restart->step_mean_us = 0;
    restart->has_stepped = false;
    restart->is_ready = false;
}

void tw_restart_ready(struct tw_restart *restart, uint64_t now_us) {
    restart->is_ready = true;
    restart->alive_us = now_us;
}

void tw_restart_stepped(struct tw_restart *restart, uint64_t step_us, uint64_t now_us) {
    const uint64_t mean = restart->step_mean_us;
    restart->step_mean_us = mean == 0 ? step_us : mean - mean / 8 + step_us / 8;
    restart->alive_us = now_us;
    restart->has_stepped = true;
}

void tw_restart_alive(struct tw_restart *restart, uint64_t now_us) {
    restart->alive_us = now_us;
}

static uint64_t pause_of(struct tw_restart *restart) {
    if (restart->row <= 1) return 0;
    const uint32_t doublings = restart->row - 2 < 6 ? restart->row - 2 : 6;
    uint64_t pause = (uint64_t)1000 * 1000 << doublings;
    if (pause > TW_RESTART_PAUSE_MAX_US) pause = TW_RESTART_PAUSE_MAX_US;
    return pause - pause / 5 + tw_rng_below(&restart->rng, 2 * pause / 5 + 1);
}

/* Counts a death. After a healthy stretch, counting begins anew. A stretch ends with the last sign
 * of life, because the time in which a worker hangs is not healthy. */
static void count_death(struct tw_restart *restart) {
    if (restart->alive_us - restart->started_us >= TW_RESTART_HEALTHY_US) {
        restart->row = 0;
        restart->stuck = 0;
    }
    restart->row++;
}

/* Limit of `stuck`, which keeps a worker of another program from measures that are not allowed for
 * it yet. */
static uint32_t stuck_max(const struct tw_restart *restart) {
    if (!restart->is_foreign) return UINT32_MAX;
    return (restart->has_stepped ? 3 : 2) * TW_RESTART_RUNG - 1;
}

struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart) {
    count_death(restart);
    return (struct tw_restart_verdict){.rung = TW_RESTART_PLAIN, .pause_us = pause_of(restart)};
}

struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step) {
    if (restart->is_foreign && !restart->is_ready) return tw_restart_device_died(restart);
    count_death(restart);
    if (snapshot_step > restart->snapshot_step) restart->stuck = 0;
    restart->snapshot_step = snapshot_step;
    if (restart->stuck < stuck_max(restart)) restart->stuck++;
    struct tw_restart_verdict verdict = {.pause_us = pause_of(restart)};
    if (restart->stuck < TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_PLAIN;
    } else if (restart->stuck < 2 * TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_SKIP;
        verdict.skip = restart->stuck - TW_RESTART_RUNG + 1;
    } else if (restart->stuck < 3 * TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_ANCHOR;
    } else {
        verdict.rung = TW_RESTART_GIVE_UP;
    }
    return verdict;
}

uint64_t tw_restart_hang_us(const struct tw_restart *restart) {
    if (!restart->has_stepped) return restart->alive_us + TW_HANG_FIRST_US;
    const uint64_t patience = TW_HANG_FACTOR * restart->step_mean_us;
    return restart->alive_us + (patience > TW_HANG_FLOOR_US ? patience : TW_HANG_FLOOR_US);
}
