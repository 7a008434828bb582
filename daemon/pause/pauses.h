/* pauses.h - pauses of training: measures the processors, looks at worker.hours, takes `thinwire
 * pause`, and has manners.h decide. The caller carries the decisions out.
 *
 * A paused node stays in its group: its worker answers requests. After TW_MANNERS_FREE_US the
 * worker may end with a snapshot, so that its memory is free for the owner. */
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
    const struct tw_config *config;  /* borrowed; may change before tw_pauses_apply */
    uint32_t (*minute_of_day)(void); /* by the clock of this machine */
    /* The process whose work is not that of others; 0: none. */
    pid_t (*worker)(void *user);
    /* Training pauses or goes on. If it goes on, a worker that has ended must be started again. */
    void (*pause)(void *user, bool is_paused);
    /* The worker's memory may be given back. Called at each tick until it returns true. */
    bool (*rest)(void *user);
    /* One event for people: its name, and key=value pairs with at least one key. */
    void (*note)(void *user, bool is_warning, const char *name, const char *pairs);
    void *user;
};

struct tw_pauses {
    struct tw_pauses_config config;
    struct tw_manners manners;
    struct tw_hours_now hours;
    struct tw_cpu_look look; /* the last look at the processors */
    bool has_look, is_blind; /* is_blind: the last look failed */
    bool is_resting;         /* rest returned true in this pause */
    uint64_t sample_due_us, look_due_us;
};

void tw_pauses_init(struct tw_pauses *pauses, const struct tw_pauses_config *config);
/* Takes hours and threshold from the configuration. */
void tw_pauses_apply(struct tw_pauses *pauses, uint64_t now_us);
/* Begins or ends the user's pause. *answer gets the sentence for the user. */
void tw_pauses_user(struct tw_pauses *pauses, bool is_paused, uint64_t now_us,
                    struct tw_error *answer);
/* Begins or ends the pause of the whole run; repeats change nothing. */
void tw_pauses_run(struct tw_pauses *pauses, bool is_paused, uint64_t now_us);
/* To be called about four times a second. */
void tw_pauses_tick(struct tw_pauses *pauses, uint64_t now_us);
/* All but is_memory_back. */
struct tw_view_pause tw_pauses_view(const struct tw_pauses *pauses, uint64_t now_us);

#endif
