/* restart.h - when and how a worker is started again, and when it hangs: pure rules, time comes in.
 *
 * Pause before the n-th restart in a row: none, then 1, 2, 4, ... 60 s (20 % jitter either way);
 * ten healthy minutes begin the row again. A crash that comes back at the same place would repeat
 * for ever, so deaths without a newer snapshot or ten healthy minutes climb a ladder, three a rung:
 *   resume from the snapshot -> also skip the next batches -> start from the anchor -> give up.
 * The anchor is the newest state the whole run agrees on; a checkpoint holds the same bad theta.
 *
 * A worker that somebody else starts is never given up: its host may be short of memory for a
 * while, and whoever restarts it expects that to help. It stays one rung below, at the longest
 * pause. And what ends it before its first step says too little to give up theta and the moments: a
 * death before READY climbs nothing, one after it no further than to skipping. */
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
    TW_RESTART_SKIP,    /* and throw `skip` batches away */
    TW_RESTART_ANCHOR,  /* without the snapshots: theta := phi, moments zero */
    TW_RESTART_GIVE_UP, /* the node goes on without a worker */
};

struct tw_restart {
    struct tw_rng rng;      /* of the jitter */
    uint32_t row;           /* deaths since the last healthy stretch */
    uint32_t stuck;         /* deaths since the last newer snapshot or healthy stretch */
    uint64_t snapshot_step; /* newest at the last death */
    uint64_t started_us;
    uint64_t alive_us;     /* last sign of life: a step, or something else than a step */
    uint64_t step_mean_us; /* exponential mean, 1/8 each; 0 = none yet */
    bool has_stepped;
    bool is_ready;   /* it loaded the model */
    bool is_foreign; /* somebody else starts it */
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

/* Something else than a step showed that it works: an evaluation, a resume; or no step is due. */
void tw_restart_alive(struct tw_restart *restart, uint64_t now_us);

/* The worker died; `snapshot_step` is the newest snapshot's (0 = none). */
struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step);

/* The same where its compute device failed, which says nothing about snapshots and batches: it is
 * tried again for as long as it takes, with the pauses of any restart, and the ladder stays. */
struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart);

/* When it must be called hanging if nothing is heard until then. */
uint64_t tw_restart_hang_us(const struct tw_restart *restart);

#endif
