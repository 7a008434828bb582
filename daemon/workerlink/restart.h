/* restart.h - rules for restarting a worker, and for telling that it hangs. Pure: time comes in.
 *
 * The pause before the n-th restart in a row is 0, 1, 2, 4, ... 60 s, with 20 % jitter either way.
 * Ten healthy minutes begin a new row. A crash with a cause in the state or data would repeat for
 * ever. So deaths without a newer snapshot or ten healthy minutes climb a ladder, three per rung:
 *   resume from the snapshot -> also skip the next batches -> start from the anchor -> give up.
 * The anchor is the newest state that the whole run agrees on; a checkpoint holds the same bad
 * theta.
 *
 * A worker that another program starts is never given up. Its host may lack memory for a while, and
 * its operator expects a restart to help. It stops one rung below, at the longest pause. Its death
 * before the first step says too little to give up theta and the moments. So before READY its
 * deaths do not climb, and between READY and the first step they climb no further than skipping. */
#ifndef TW_DAEMON_WORKERLINK_RESTART_H
#define TW_DAEMON_WORKERLINK_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

enum {
    TW_RESTART_PAUSE_MAX_US = 60 * 1000 * 1000,
    TW_RESTART_HEALTHY_US = 600 * 1000 * 1000,
    TW_RESTART_RUNG = 3, /* deaths without progress before the next rung */
    TW_HANG_FLOOR_US = 60 * 1000 * 1000,
    TW_HANG_FACTOR = 10,                  /* times the mean step */
    TW_HANG_FIRST_US = 600 * 1000 * 1000, /* loading, compiling, first step */
};

enum tw_restart_rung {
    TW_RESTART_PLAIN,
    TW_RESTART_SKIP,    /* and discard `skip` batches */
    TW_RESTART_ANCHOR,  /* without the snapshots: theta := phi, moments zero */
    TW_RESTART_GIVE_UP, /* the node goes on without a worker */
};

struct tw_restart {
    struct tw_rng rng;      /* for jitter */
    uint32_t row;           /* deaths since the last healthy stretch */
    uint32_t stuck;         /* deaths since the last newer snapshot or healthy stretch */
    uint64_t snapshot_step; /* of the newest snapshot at the last death */
    uint64_t started_us;
    uint64_t alive_us;     /* time of the last sign of life */
    uint64_t step_mean_us; /* exponential mean, 1/8 each; 0 = none yet */
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

/* The worker showed another sign of life than a step (an evaluation, a resume), or no step is due.
 */
void tw_restart_alive(struct tw_restart *restart, uint64_t now_us);

/* The worker died. `snapshot_step`: of the newest snapshot (0 = none). */
struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step);

/* The worker died because its compute device failed. That says nothing about snapshots and batches:
 * restarts go on without limit, with the usual pauses, and the ladder is not climbed. */
struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart);

/* Time after which a worker without a sign of life counts as hanging. */
uint64_t tw_restart_hang_us(const struct tw_restart *restart);

#endif
