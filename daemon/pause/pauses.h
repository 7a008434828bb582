/* pauses.h - when training pauses for the owner of the machine or of the run: the rules, and the
 * measurements that they judge. */
#ifndef TW_DAEMON_PAUSE_PAUSES_H
#define TW_DAEMON_PAUSE_PAUSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "daemon/api/status_view.h"
#include "daemon/config/config.h"
#include "daemon/process/cpu_use.h"

/* ==== the rules =============================================================================== */

/* When training pauses for the owner of the machine or of the run. Pure: the caller passes times
 * and measurements.
 *
 * A pause has up to four reasons, which begin and end independently. Training resumes when the last
 * one has ended.
 *
 *   USER    `thinwire pause`, until `thinwire resume`
 *   HOURS   worker.hours
 *   OWNER   worker.yield: other programs use a larger share of the CPUs, or of the GPU, than the
 *           threshold, as a mean of the last two samples. It ends after TW_MANNERS_QUIET_US below
 *           half of the threshold. A worker that has exited does not see its GPU: if the GPU was
 *           in use, training goes on after TW_MANNERS_BLIND_US to look again.
 *   RUN     `thinwire pause --run`, by the owner of the run, until `thinwire resume --run`
 *
 * After TW_MANNERS_FREE_US of a pause, the worker may exit to free its memory. This is not done
 * while RUN holds: a worker that has exited also suspends the links, and the node would then not
 * receive the resume of the run. */

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
    TW_MANNERS_BLIND_US = 300 * 1000 * 1000,
    /* Pause after which the worker exits to free its memory. Its restart costs only seconds, and an
     * owner who is still at work by then gains more from the memory. */
    TW_MANNERS_FREE_US = 120 * 1000 * 1000,
};

/* Share that other programs use. */
struct tw_manners_use {
    double last;   /* last sample, a fraction; NaN: none */
    double others; /* mean of the last two samples; NaN: none */
};

struct tw_manners {
    uint32_t reasons;               /* set of TW_PAUSE_* */
    uint32_t yield_percent;         /* threshold of OWNER; 0: the worker does not yield */
    struct tw_manners_use cpu, gpu; /* cpu: of all CPUs */
    bool is_gpu;                    /* while OWNER holds: the GPU was used more than the CPUs */
    uint64_t loud_us;   /* while OWNER holds: time of the last sample that was not quiet */
    uint64_t paused_us; /* time at which the present pause began; 0: training is not paused */
};

void tw_manners_init(struct tw_manners *manners);

/* Each of these processes one fact and returns the set of reasons that begin or end because of it.
 */
uint32_t tw_manners_user(struct tw_manners *manners, bool is_paused, uint64_t now_us);
uint32_t tw_manners_hours(struct tw_manners *manners, bool is_off, uint64_t now_us);
uint32_t tw_manners_run(struct tw_manners *manners, bool is_paused, uint64_t now_us);
/* Sets the threshold in percent; 0 ends OWNER at once. */
uint32_t tw_manners_yield(struct tw_manners *manners, uint32_t percent, uint64_t now_us);
/* Adds a sample: the fractions of all CPUs and of the GPU that other programs use. NaN (not
 * measurable) counts as quiet, so that a broken measurement does not hold up training. */
uint32_t tw_manners_sample(struct tw_manners *manners, double cpu, double gpu, uint64_t now_us);

/* Returns the time until OWNER ends if the machine stays quiet, or 0 if OWNER does not hold. */
uint64_t tw_manners_quiet_us(const struct tw_manners *manners, uint64_t now_us);

/* Returns whether the pause is long enough for the worker to exit and free its memory. */
bool tw_manners_may_free(const struct tw_manners *manners, uint64_t now_us);

/* Returns "user", "hours", "owner" or "run" for one reason. */
const char *tw_pause_name(uint32_t reason);

/* ==== measuring and acting ==================================================================== */

/* Pauses of training: measures CPU use, asks for that of the GPU, checks worker.hours, accepts
 * `thinwire pause`, and lets the rules decide. The caller's callbacks carry out the decisions.
 *
 * A paused node stays in its group: its worker answers requests. After TW_MANNERS_FREE_US the
 * worker may exit with a snapshot, so that its memory is free for the machine's owner. */

struct tw_pauses_config {
    const struct tw_config *config;  /* borrowed; after a change, call tw_pauses_apply */
    uint32_t (*minute_of_day)(void); /* minutes since midnight by this machine's clock */
    /* Returns the worker's process, which does not count as another program; 0: none. */
    pid_t (*worker)(void *user);
    /* Returns the fraction of the worker's GPU that other programs use. NaN: none, or not known. */
    double (*gpu_others)(void *user);
    /* Pauses or resumes training. To resume, a worker that has exited must be started again. */
    void (*pause)(void *user, bool is_paused);
    /* Lets the worker exit to free its memory. Called at each tick until it returns true. */
    bool (*rest)(void *user);
    /* Reports an event to people: its name, and at least one key=value pair. */
    void (*note)(void *user, bool is_warning, const char *name, const char *pairs);
    void *user;
};

struct tw_pauses {
    struct tw_pauses_config config;
    struct tw_manners manners;
    struct tw_hours_now hours;
    struct tw_cpu_look look; /* last measurement of CPU use */
    bool has_look, is_blind; /* is_blind: the last measurement failed */
    bool is_resting;         /* `rest` has returned true in this pause */
    uint64_t sample_due_us, look_due_us;
};

void tw_pauses_init(struct tw_pauses *pauses, const struct tw_pauses_config *config);
/* Applies the configuration's present hours and threshold. */
void tw_pauses_apply(struct tw_pauses *pauses, uint64_t now_us);
/* Begins or ends the user's pause. Writes the reply for the user to *answer. */
void tw_pauses_user(struct tw_pauses *pauses, bool is_paused, uint64_t now_us,
                    struct tw_error *answer);
/* Begins or ends the pause of the whole run. Repeated calls change nothing. */
void tw_pauses_run(struct tw_pauses *pauses, bool is_paused, uint64_t now_us);
/* Call about four times a second. */
void tw_pauses_tick(struct tw_pauses *pauses, uint64_t now_us);
/* Returns the pause for the status, without is_memory_back. */
struct tw_view_pause tw_pauses_view(const struct tw_pauses *pauses, uint64_t now_us);

#endif
