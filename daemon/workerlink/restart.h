/* restart.h - rules for restarting a worker, and for detecting that it hangs. Pure: the caller
 * passes the time.
 *
 * The pause before the n-th consecutive restart is 0, 1, 2, 4, ... 60 s, with 20 % jitter either
 * way. Ten healthy minutes reset the count.
 *
 * If a crash is caused by the state or the data, plain restarts would repeat it for ever. Deaths
 * without a newer snapshot or ten healthy minutes in between therefore escalate. After every third
 * of them the daemon takes the next measure (rung):
 *   resume from the snapshot -> also skip the next batches -> start from the anchor -> give up.
 * The anchor is the newest state that the whole run agrees on. A checkpoint would not help, because
 * it contains the same bad theta.
 *
 * If another program starts the worker, the daemon never gives up: the host may be short of memory
 * for a while, and its operator expects a restart to help. The last measure is then to start from
 * the anchor, with the longest pause. A death before the first step is too little reason to discard
 * theta and the moments. So deaths before READY do not escalate, and deaths between READY and the
 * first step escalate only to skipping batches. */
#ifndef TW_DAEMON_WORKERLINK_RESTART_H
#define TW_DAEMON_WORKERLINK_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

enum {
    TW_RESTART_PAUSE_MAX_US = 60 * 1000 * 1000,
    TW_RESTART_HEALTHY_US = 600 * 1000 * 1000,
    TW_RESTART_RUNG = 3, /* deaths without progress until the next measure */
    TW_HANG_FLOOR_US = 60 * 1000 * 1000,
    TW_HANG_FACTOR = 10, /* multiple of the mean step time after which a worker
                            counts as hanging */
    TW_HANG_FIRST_US =
        600 * 1000 * 1000, /* time allowed for loading, compiling and the first step */
};

enum tw_restart_rung {
    TW_RESTART_PLAIN,
    TW_RESTART_SKIP,    /* resume from the snapshot, but discard `skip` batches */
    TW_RESTART_ANCHOR,  /* ignore the snapshots: theta := phi, moments zero */
    TW_RESTART_GIVE_UP, /* the node continues without a worker */
};

struct tw_restart {
    struct tw_rng rng;      /* for jitter */
    uint32_t row;           /* deaths since the last ten healthy minutes */
    uint32_t stuck;         /* deaths since the last newer snapshot or ten healthy minutes */
    uint64_t snapshot_step; /* step of the newest snapshot when the worker last died */
    uint64_t started_us;
    uint64_t alive_us;     /* time of the last sign of life */
    uint64_t step_mean_us; /* moving average of the step time, weight 1/8; 0 = none yet */
    bool has_stepped;
    bool is_ready;   /* the worker sent READY */
    bool is_foreign; /* another program starts the worker */
};

struct tw_restart_verdict {
    enum tw_restart_rung rung;
    uint64_t pause_us;
    uint64_t skip; /* batches */
};

void tw_restart_init(struct tw_restart *restart, uint64_t seed, bool is_foreign);
void tw_restart_started(struct tw_restart *restart, uint64_t now_us);
void tw_restart_ready(struct tw_restart *restart, uint64_t now_us);
void tw_restart_stepped(struct tw_restart *restart, uint64_t step_us, uint64_t now_us);

/* Notes a sign of life other than a step, such as an evaluation, or that no step is due. */
void tw_restart_alive(struct tw_restart *restart, uint64_t now_us);

/* Notes a death. `snapshot_step`: step of the newest snapshot, 0 = none. */
struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step);

/* Notes a death caused by a failure of the compute device. Snapshots and batches are not the cause,
 * so there is no escalation: restarts continue without limit, with the usual pauses. */
struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart);

/* Returns the time at which the worker counts as hanging unless it gives a sign of life. */
uint64_t tw_restart_hang_us(const struct tw_restart *restart);

#endif
