/* generations.h - which of the two generations on disk are from before the newest change that made
 * the anchor worse. Pure.
 *
 * A generation is good once a later state of the model was: its held-out loss was as low as before,
 * or a wild result came only then. When a good generation is about to be replaced, it is kept as
 * the pinned one. So the pinned one moves on while all is well, and stands still otherwise. */
#ifndef TW_DAEMON_STORE_GENERATIONS_H
#define TW_DAEMON_STORE_GENERATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* All zero at the start: both generations are those of the last process. */
struct tw_generations {
    uint64_t older_us,
        newest_us; /* times of the two generations' states; 0: from before this start */
    bool has_good, is_bad, is_wild;
    uint64_t good_us;   /* generations with states not younger than this are good */
    uint64_t judged_us; /* time of the newest evaluation */
    uint64_t least_e6;  /* lowest loss of the anchor, in millionths; 0: none yet */
};

/* Goes on with `least_e6` and `is_wild` of the loaded generation: a restart forgets nothing that
 * would take a spoilt model for a good one. */
void tw_generations_resume(struct tw_generations *generations, uint64_t least_e6, bool is_wild);

/* The state of `frozen_us` is on disk, in place of the older generation. */
void tw_generations_saved(struct tw_generations *generations, uint64_t frozen_us);

/* The anchor's held-out loss was measured (NaN: it was not). `is_hurt`: other signs say that
 * merging makes this node worse. Bad: that, or a loss above TW_HEALTH_RISEN times the lowest one
 * and TW_HEALTH_RISEN_NATS above it. */
void tw_generations_judge(struct tw_generations *generations, float loss, bool is_hurt,
                          uint64_t now_us);

/* An extreme result came (kernels/outlier.h). The anchor does not contain it yet. */
void tw_generations_wild(struct tw_generations *generations, uint64_t now_us);

/* Whether the older generation is good. If nothing was ever evaluated, it is, until an extreme
 * result comes. */
bool tw_generations_is_older_good(const struct tw_generations *generations, bool has_evaluations);

#endif
