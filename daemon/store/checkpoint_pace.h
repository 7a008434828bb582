/* checkpoint_pace.h - when the next checkpoint is due: the promise of checkpoint_interval, and its
 * cost. Pure.
 *
 *   promise   at most `interval` of work is lost in a power cut
 *   hurry     soon, if something just made the state worth more than the interval says: the first
 *             merge since the start, or peers that died
 *   cost      writing takes at most a twentieth of the time, and the bytes of a default interval at
 *             most TW_CHECKPOINT_BYTES_S on average; a longer interval is then in force
 *
 * An interval below TW_CHECKPOINT_STRICT_US is taken as it is: a user who sets it wants no less. */
#ifndef TW_DAEMON_STORE_CHECKPOINT_PACE_H
#define TW_DAEMON_STORE_CHECKPOINT_PACE_H

#include <stdint.h>

enum { TW_CHECKPOINT_BYTES_S = 4000 * 1000 };

#define TW_CHECKPOINT_STRICT_US UINT64_C(60000000)
/* Longest interval for the sake of bytes, and for the sake of time; a longer one that was
 * configured stays. */
#define TW_CHECKPOINT_WORN_US UINT64_C(600000000)
#define TW_CHECKPOINT_SLOW_US UINT64_C(3600000000)
/* Shortest time from one checkpoint to a hurried one. At most a quarter of the interval in force.
 */
#define TW_CHECKPOINT_HURRY_US UINT64_C(30000000)

enum tw_checkpoint_cost {
    TW_CHECKPOINT_CHEAP, /* the configured interval is in force */
    TW_CHECKPOINT_WEARS, /* the file is large: a longer interval spares the disk */
    TW_CHECKPOINT_SLOW,  /* writing takes long: a longer interval leaves the disk to others */
};

struct tw_checkpoint_pace {
    uint64_t interval_us;         /* configured; 0: no periodic checkpoints */
    uint64_t spaced_us;           /* in force; at least interval_us */
    uint64_t began_us;            /* start of the newest checkpoint; 0: none since the start */
    uint64_t due_us;              /* UINT64_MAX: never */
    enum tw_checkpoint_cost cost; /* why spaced_us exceeds interval_us */
};

/* Begins at `now_us`: the first checkpoint is due after one interval. */
void tw_checkpoint_pace_init(struct tw_checkpoint_pace *pace, uint64_t interval_us,
                             uint64_t now_us);

/* A checkpoint begins, for whatever reason. */
void tw_checkpoint_pace_began(struct tw_checkpoint_pace *pace, uint64_t now_us);

/* Writing `bytes` took `took_us`. Chooses the interval in force, which also moves the next one. */
void tw_checkpoint_pace_wrote(struct tw_checkpoint_pace *pace, uint64_t took_us, uint64_t bytes);

/* Moves the next checkpoint to `delay_us` from now, or as soon after the last one as is allowed.
 * Never later than it was due. */
void tw_checkpoint_pace_hurry(struct tw_checkpoint_pace *pace, uint64_t delay_us, uint64_t now_us);

#endif
