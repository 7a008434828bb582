/* generations.h - which of the two generations on disk precede the newest change that made the
 * anchor worse. Pure.
 *
 * A generation is good once a later state has proved good: its held-out loss did not rise, or an
 * extreme result arrived only after it. When a good generation is about to be replaced, it is kept
 * as the pinned one. So the pinned generation advances while all is well, and stays otherwise. */
#ifndef TW_DAEMON_STORE_GENERATIONS_H
#define TW_DAEMON_STORE_GENERATIONS_H

#include <stdbool.h>
#include <stdint.h>

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
