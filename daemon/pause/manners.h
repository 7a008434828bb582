/* manners.h - when training pauses because the owner of the machine, or of the run, wants it so.
 * Pure: the caller passes times and measurements.
 *
 * A pause has up to four reasons, which begin and end on their own. Training goes on when the last
 * one has ended.
 *
 *   USER    `thinwire pause`, until `thinwire resume`
 *   HOURS   worker.hours
 *   OWNER   worker.yield: others use more of the processors than the threshold, as a mean of the
 *           last two samples. It ends after TW_MANNERS_QUIET_US below half of the threshold.
 *
 *   RUN     `thinwire pause --run`, by the owner of the run, until `thinwire resume --run`
 *
 * After TW_MANNERS_FREE_US of a pause, the worker's memory may be given back. Not while RUN holds:
 * the links rest with the memory, and then the node would not hear the order to go on. */
#ifndef TW_DAEMON_PAUSE_MANNERS_H
#define TW_DAEMON_PAUSE_MANNERS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TW_PAUSE_USER = 1,
    TW_PAUSE_HOURS = 2,
    TW_PAUSE_OWNER = 4,
    TW_PAUSE_RUN = 8,
    TW_PAUSE_REASONS = 4, /* number of reasons */
};

enum {
    TW_MANNERS_SAMPLE_US = 500 * 1000, /* least time between two samples */
    TW_MANNERS_QUIET_US = 30 * 1000 * 1000,
    /* A restart costs seconds. An owner who still works after two minutes gains more by memory. */
    TW_MANNERS_FREE_US = 120 * 1000 * 1000,
};

struct tw_manners {
    uint32_t reasons;       /* set of TW_PAUSE_* */
    uint32_t yield_percent; /* threshold; 0: the worker does not yield */
    double last;            /* the last sample, a share of all processors; NaN: none */
    double others;          /* mean of the last two samples; NaN: none */
    uint64_t loud_us;       /* time of the last sample that was not quiet, while OWNER holds */
    uint64_t paused_us;     /* when the present pause began; 0: training is not paused */
};

void tw_manners_init(struct tw_manners *manners);

/* Each of these takes one fact and returns the set of reasons that begin or end by it. */
uint32_t tw_manners_user(struct tw_manners *manners, bool is_paused, uint64_t now_us);
uint32_t tw_manners_hours(struct tw_manners *manners, bool is_off, uint64_t now_us);
uint32_t tw_manners_run(struct tw_manners *manners, bool is_paused, uint64_t now_us);
/* The threshold in percent; 0 ends OWNER at once. */
uint32_t tw_manners_yield(struct tw_manners *manners, uint32_t percent, uint64_t now_us);
/* One sample: the share of all processors that others use. NaN: it cannot be measured, which counts
 * as quiet, so that a broken measurement holds up no training. */
uint32_t tw_manners_sample(struct tw_manners *manners, double share, uint64_t now_us);

/* Time until OWNER ends if it stays quiet. 0: OWNER does not hold. */
uint64_t tw_manners_quiet_us(const struct tw_manners *manners, uint64_t now_us);

/* Whether the pause is long enough to give the worker's memory back. */
bool tw_manners_may_free(const struct tw_manners *manners, uint64_t now_us);

/* "user", "hours", "owner" or "run", for one reason of the set. */
const char *tw_pause_name(uint32_t reason);

#endif
