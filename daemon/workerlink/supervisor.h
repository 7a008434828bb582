/* supervisor.h - starts the worker, kills one that hangs, and starts it again. */
#ifndef TW_DAEMON_WORKERLINK_SUPERVISOR_H
#define TW_DAEMON_WORKERLINK_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/rng.h"
#include "base/status.h"

/* ==== when to start it again ================================================================== */

/* Rules for restarting a worker, and for detecting that it hangs. Pure: the caller passes the
 * time.
 *
 * The pause before the n-th consecutive restart is 0, 1, 2, 4, ... 60 s, with 20 % jitter either
 * way. Ten healthy minutes reset the count.
 *
 * If a crash is caused by the state or the data, plain restarts would repeat it for ever. Deaths
 * without a newer snapshot or ten healthy minutes in between therefore escalate. After every third
 * of them the daemon takes the next measure (rung):
 *   resume from the snapshot -> also skip the next batches -> start from the anchor -> give up.
 * The anchor is the newest state that the whole run agrees on. A checkpoint would not help, because
 * it contains the same bad theta.
 *
 * If another program starts the worker, the daemon never gives up: the host may be short of memory
 * for a while, and its operator expects a restart to help. The last measure is then to start from
 * the anchor, with the longest pause. A death before the first step is too little reason to discard
 * theta and the moments. So deaths before READY do not escalate, and deaths between READY and the
 * first step escalate only to skipping batches. */

enum {
    TW_RESTART_PAUSE_MAX_US = 60 * 1000 * 1000,
    TW_RESTART_HEALTHY_US = 600 * 1000 * 1000,
    TW_RESTART_RUNG = 3, /* deaths without progress until the next measure */
    TW_HANG_FLOOR_US = 60 * 1000 * 1000,
    TW_HANG_FACTOR = 10, /* multiple of the mean step time after which a worker
                            counts as hanging */
    TW_HANG_FIRST_US =
        600 * 1000 * 1000, /* time allowed for loading, compiling and the first step */
};

enum tw_restart_rung {
    TW_RESTART_PLAIN,
    TW_RESTART_SKIP,    /* resume from the snapshot, but discard `skip` batches */
    TW_RESTART_ANCHOR,  /* ignore the snapshots: theta := phi, moments zero */
    TW_RESTART_GIVE_UP, /* the node continues without a worker */
};

struct tw_restart {
    struct tw_rng rng;      /* for jitter */
    uint32_t row;           /* deaths since the last ten healthy minutes */
    uint32_t stuck;         /* deaths since the last newer snapshot or ten healthy minutes */
    uint64_t snapshot_step; /* step of the newest snapshot when the worker last died */
    uint64_t started_us;
    uint64_t alive_us;     /* time of the last sign of life */
    uint64_t step_mean_us; /* moving average of the step time, weight 1/8; 0 = none yet */
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

/* Notes a sign of life other than a step, such as an evaluation, or that no step is due. */
void tw_restart_alive(struct tw_restart *restart, uint64_t now_us);

/* Notes a death. `snapshot_step`: step of the newest snapshot, 0 = none. */
struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step);

/* Notes a death caused by a failure of the compute device. Snapshots and batches are not the cause,
 * so there is no escalation: restarts continue without limit, with the usual pauses. */
struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart);

/* Returns the time at which the worker counts as hanging unless it gives a sign of life. */
uint64_t tw_restart_hang_us(const struct tw_restart *restart);

/* ==== the process ============================================================================= */

/* Keeps one worker process running: starts it, detects that it died or hangs, and restarts it by
 * the rules above.
 *
 *   stopped --start--> running --exit--> pausing --timer--> running
 *                        |  \--hang: SIGTERM, 5 s, SIGKILL--> exit
 *                        |\--stop: SIGTERM after a grace, 5 s, SIGKILL--> stopped
 *                        \--rest: as stop--> stopped --wake--> running
 *   pausing --gives up--> failed
 *
 * A worker that the daemon started and that attached has ended once both its process and its link
 * have ended. If a child of the worker keeps the link open, the daemon closes the link 5 s after
 * the process ended, or at once on stop.
 *
 * A worker that another program (systemd) starts is represented by its link: it runs from WELCOME
 * to the end of the link. While `pausing`, no such worker gets a WELCOME. It never gets a signal:
 * if it hangs, or does not end when it should, its link is closed. It never becomes `failed`. If it
 * leaves in order, that is no death, and the next one is welcome at once. A worker that is part of
 * a user's program (is_patient) does not hang: it may do something else between steps for any time.
 */

enum {
    TW_KILL_AFTER_US = 5 * 1000 * 1000,
    /* time for a command to restart its trainer, as torchrun does when a rank dies */
    TW_COMMAND_AGAIN_US = 120 * 1000 * 1000,
};

enum tw_supervisor_state {
    TW_SUPERVISOR_STOPPED,
    TW_SUPERVISOR_RUNNING,
    TW_SUPERVISOR_PAUSING,
    TW_SUPERVISOR_FAILED,
};

struct tw_worker_death {
    bool is_wanted;  /* this end was requested by tw_supervisor_stop */
    bool is_rest;    /* this end was requested by tw_supervisor_rest */
    int exit_status; /* exit status if signal is 0; -1: not known */
    int signal;
    bool was_hanging;
    bool has_left; /* a worker that another program started left in order; it does not count as a
                      death */
    bool is_done;  /* the worker exited by itself after the run, with status 0 or an unknown one; it
                      is not restarted */
    struct tw_restart_verdict verdict;
};

struct tw_supervisor_config {
    uv_loop_t *loop;
    const char *worker_path; /* program of the worker, borrowed; NULL: another program starts the
                                worker */
    const char *command;     /* shell command that is or starts the worker, borrowed; worker_path is
                                then the shell; NULL: none */
    const char *socket_path; /* borrowed */
    uint32_t nice;           /* lowest nice value of a worker that the daemon starts */
    uint64_t seed;
    /* Called from the loop after each end of a worker. The next one starts after verdict.pause_us.
     */
    void (*died)(void *user, const struct tw_worker_death *death);
    /* The pause after `died` is over: a worker that another program starts may get its WELCOME. */
    void (*admit)(void *user);
    /* Must close the link, even if the worker's process has ended, and then call
     * tw_supervisor_unlinked. */
    void (*cut)(void *user);
    void *user;
};

struct tw_supervisor {
    struct tw_supervisor_config config;
    enum tw_supervisor_state state;
    struct tw_restart restart;
    pid_t pid;       /* pid of the running worker; 0: in another namespace, or ended */
    uint32_t deaths; /* total number of deaths, without requested ends */
    uint64_t snapshot_step, pause_us;
    bool is_stopping, is_hanging, is_killed;
    bool is_idle; /* paused or finished: no step is due */
    bool is_over; /* the run is finished */
    /* is_resting: no worker may run. is_ending: the worker is being ended because of that.
     * has_rested: it has ended because of that. */
    bool is_resting, is_ending, has_rested;
    bool is_patient; /* READY says that the worker is part of a user's program */
    bool is_on_gpu;  /* the worker uses a GPU, so a hang counts as a device fault */
    bool is_process_open;
    bool is_attached; /* a worker that the daemon started is attached */
    /* The worker's process has ended, but its link has not. The next two fields say how it ended.
     */
    bool has_exited;
    int exit_status, exit_signal;
    uv_process_t process;
    uv_timer_t timer; /* timer of a pause, or of the escalation to SIGKILL */
    uv_timer_t watch; /* checks for a hang once a second */
};

void tw_supervisor_init(struct tw_supervisor *supervisor,
                        const struct tw_supervisor_config *config);

/* Starts the first worker, or waits for one. Returns TW_IO if the program cannot be executed; the
 * error names its path. */
enum tw_status tw_supervisor_start(struct tw_supervisor *supervisor, struct tw_error *err);

/* Report signs of life of the worker, by which hangs and healthy stretches are judged. */
void tw_supervisor_ready(struct tw_supervisor *supervisor, bool is_patient);
void tw_supervisor_stepped(struct tw_supervisor *supervisor, uint64_t step_us);
void tw_supervisor_alive(struct tw_supervisor *supervisor);
void tw_supervisor_snapshot(struct tw_supervisor *supervisor, uint64_t step);
void tw_supervisor_set_idle(struct tw_supervisor *supervisor, bool is_idle);

/* Notes that the run is finished, or goes on after all. In the latter case a worker that had exited
 * is started again. */
void tw_supervisor_set_over(struct tw_supervisor *supervisor, bool is_over);

/* Notes whether the worker computes on a GPU, as far as known. */
void tw_supervisor_set_gpu(struct tw_supervisor *supervisor, bool is_on_gpu);

/* Notes that process `pid` has the link. If it is the worker that the daemon started, `died` waits
 * for tw_supervisor_unlinked, because the last messages may still be unread. */
void tw_supervisor_attached(struct tw_supervisor *supervisor, pid_t pid);

/* Notes that process `pid` got its WELCOME. A worker that another program started counts as running
 * from now on. */
void tw_supervisor_linked(struct tw_supervisor *supervisor, pid_t pid);

/* Notes that the link has ended. A process that the daemon started is killed if it still runs after
 * 5 s. A worker that another program started counts as dead. `exit_status` is from its FATAL, -1:
 * not known. */
void tw_supervisor_unlinked(struct tw_supervisor *supervisor, int exit_status);

/* Ends the worker for good: SIGTERM after `grace_us`, in which EXIT may end it, and SIGKILL 5 s
 * later. If a worker runs, `died` with is_wanted follows. Returns false if no worker runs. */
bool tw_supervisor_stop(struct tw_supervisor *supervisor, uint64_t grace_us);

/* Ends the worker as tw_supervisor_stop does, and starts none until tw_supervisor_wake. If a worker
 * runs, `died` with is_rest follows; it does not count as a death. */
void tw_supervisor_rest(struct tw_supervisor *supervisor, uint64_t grace_us);
/* Ends the rest: starts a worker, or accepts one that another program starts. If the old worker is
 * still ending, waits for its end first. */
void tw_supervisor_wake(struct tw_supervisor *supervisor);

/* Kills a running worker at once and closes the handles; no callback follows. */
void tw_supervisor_close(struct tw_supervisor *supervisor);

bool tw_supervisor_is_running(const struct tw_supervisor *supervisor);

/* Returns the time for which a patient worker has taken no step although steps are due, or 0 if
 * that is no longer than steps may take. */
uint64_t tw_supervisor_still_us(const struct tw_supervisor *supervisor);

#endif
