/* generations.h - when a checkpoint is taken, and which generation is pinned. Pure. */
#ifndef TW_DAEMON_STORE_GENERATIONS_H
#define TW_DAEMON_STORE_GENERATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* ==== when ==================================================================================== */

/* When the next checkpoint is due: the promise of checkpoint_interval, and its cost. Pure.
 *
 *   promise   at most `interval` of work is lost in a power cut
 *   hurry     soon, if something just made the state worth more than the interval says: the first
 *             merge since the start, or peers that died
 *   cost      writing takes at most a twentieth of the time, and the bytes of a default interval at
 *             most TW_CHECKPOINT_BYTES_S on average; a longer interval is then in force
 *
 * An interval below TW_CHECKPOINT_STRICT_US is taken as it is: a user who sets it wants no less. */

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

/* ==== which =================================================================================== */

/* Which of the two generations on disk precede the newest change that made the anchor worse. Pure.
 *
 * A generation is good once a later state has proved good: its held-out loss did not rise, or an
 * extreme result arrived only after it. When a good generation is about to be replaced, it is kept
 * as the pinned one. So the pinned generation advances while all is well, and stays otherwise. */

/* All zero at the start: both generations are those of the previous process. */
struct tw_generations {
    uint64_t older_us,
        newest_us; /* times of the states in the two generations; 0: before this start */
    bool has_good, is_bad, is_wild;
    uint64_t good_us;   /* generations whose state is not younger than this time are good */
    uint64_t judged_us; /* time of the newest evaluation */
    uint64_t least_e6;  /* lowest anchor loss, in millionths of a nat; 0: none yet */
};

/* Continues with `least_e6` and `is_wild` of the loaded generation, so that a restart does not make
 * a spoilt model look good. */
void tw_generations_resume(struct tw_generations *generations, uint64_t least_e6, bool is_wild);

/* Notes that the state of time `frozen_us` has replaced the older generation on disk, or with
 * `is_older_kept` the newest one. */
void tw_generations_saved(struct tw_generations *generations, uint64_t frozen_us,
                          bool is_older_kept);

/* Judges an evaluation. `loss` is the anchor's held-out loss, or NaN if it was not measured.
 * `is_hurt`: other signs show that merging makes this node worse. The model is bad if is_hurt, or
 * if the loss exceeds both TW_HEALTH_RISEN times the lowest one and the lowest one +
 * TW_HEALTH_RISEN_NATS. */
void tw_generations_judge(struct tw_generations *generations, float loss, bool is_hurt,
                          uint64_t now_us);

/* Notes that an extreme result arrived (kernels/outlier.h). The anchor does not contain it yet. */
void tw_generations_wild(struct tw_generations *generations, uint64_t now_us);

/* Returns whether the older generation is good. Without any evaluations, it is good until an
 * extreme result arrives. */
bool tw_generations_is_older_good(const struct tw_generations *generations, bool has_evaluations);

/* Returns whether the older generation should stay until an evaluation has judged it: checkpoints
 * are more frequent than evaluations, and no generation would ever be pinned otherwise. False after
 * an hour, so that it does not become ever older where nothing is evaluated. */
bool tw_generations_awaits_judgement(const struct tw_generations *generations, bool has_evaluations,
                                     uint64_t now_us);

#endif
