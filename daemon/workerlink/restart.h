/* restart.h - rules for restarting a worker, and for detecting that it hangs. Pure: the caller
 * passes the time.
 *
 * The pause before the n-th restart in a row is 0, 1, 2, 4, ... 60 s, with 20 % jitter either way.
 * After ten healthy minutes the count starts again. A crash whose cause is in the state or the data
 * would repeat for ever. Deaths without a newer snapshot or ten healthy minutes in between
 * therefore escalate. After each three of them the daemon takes the next measure (rung):
 *   resume from the snapshot -> also skip the next batches -> start from the anchor -> give up.
 * The anchor is the newest state that the whole run agrees on. A checkpoint would not help, because
 * it contains the same bad theta.
 *
 * If another program starts the worker, the daemon never gives up: the host may lack memory for a
 * while, and its operator expects a restart to help. The last measure is then to start from the
 * anchor, with the longest pause. A death of such a worker before the first step is too little
 * reason to give up theta and the moments. Before READY its deaths therefore do not escalate.
 * Between READY and the first step they escalate only to skipping batches. */
#ifndef TW_DAEMON_WORKERLINK_RESTART_H
#define TW_DAEMON_WORKERLINK_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

enum {
    TW_RESTART_PAUSE_MAX_US = 60 * 1000 * 1000,
    TW_RESTART_HEALTHY_US = 600 * 1000 * 1000,
    TW_RESTART_RUNG = 3, /* deaths without progress before the next measure */
    TW_HANG_FLOOR_US = 60 * 1000 * 1000,
    TW_HANG_FACTOR = 10,                  /* a worker hangs after this many times its mean step */
    TW_HANG_FIRST_US = 600 * 1000 * 1000, /* time for loading, compiling and the first step */
};

enum tw_restart_rung {
    TW_RESTART_PLAIN,
    TW_RESTART_SKIP,    /* resume from the snapshot, and discard `skip` batches */
    TW_RESTART_ANCHOR,  /* start without the snapshots: theta := phi, moments zero */
    TW_RESTART_GIVE_UP, /* the node continues without a worker */
};

struct tw_restart {
    struct tw_rng rng;      /* for jitter */
    uint32_t row;           /* deaths since the last healthy stretch */
    uint32_t stuck;         /* deaths since the last newer snapshot or healthy stretch */
    uint64_t snapshot_step; /* step of the newest snapshot at the last death */
    uint64_t started_us;
    uint64_t alive_us;     /* time of the last sign of life */
    uint64_t step_mean_us; /* exponential mean of the step time, weight 1/8; 0 = none yet */
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

/* Notes a sign of life other than a step (an evaluation, a resume), or that no step is due. */
void tw_restart_alive(struct tw_restart *restart, uint64_t now_us);

/* The worker died. `snapshot_step`: step of the newest snapshot (0 = none). */
struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step);

/* The worker died because its compute device failed. Snapshots and batches are not the cause, so
 * the ladder is not climbed: restarts continue without limit, with the usual pauses. */
struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart);

/* Time after which a worker without a sign of life counts as hanging. */
uint64_t tw_restart_hang_us(const struct tw_restart *restart);

#endif
