/* pauses.h - pauses of training: measures CPU use, asks for that of the GPU, checks worker.hours,
 * accepts `thinwire pause`, and lets manners.h decide. The caller's callbacks carry out the
 * decisions.
 *
 * A paused node stays in its group: its worker answers requests. After TW_MANNERS_FREE_US the
 * worker may exit with a snapshot, so that its memory is free for the machine's owner. */
#ifndef TW_DAEMON_PAUSE_PAUSES_H
#define TW_DAEMON_PAUSE_PAUSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "daemon/api/status_view.h"
#include "daemon/config/config.h"
#include "daemon/pause/manners.h"
#include "daemon/process/cpu_use.h"

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
