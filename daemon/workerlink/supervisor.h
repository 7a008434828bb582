/* supervisor.h - keeps one worker process running: starts it, detects that it died or hangs, and
 * restarts it by the rules of restart.h.
 *
 *   stopped --start--> running --exit--> pausing --timer--> running
 *                        |  \--hang: SIGTERM, 5 s, SIGKILL--> exit
 *                        |\--stop: SIGTERM after a grace, 5 s, SIGKILL--> stopped
 *                        \--rest: as stop--> stopped --wake--> running
 *   pausing --gives up--> failed
 *
 * A worker that the daemon started and that attached counts as ended when both its process and its
 * link have ended. If a child of the worker keeps the link open, the link is cut 5 s after the
 * process ended, or at once by stop.
 *
 * A worker that another program (systemd) starts is represented by its link: it runs from WELCOME
 * to the end of the link. While `pausing`, no worker is welcomed. If such a worker hangs and
 * signals do not end it, its link is cut. It never becomes `failed`. */
#ifndef TW_DAEMON_WORKERLINK_SUPERVISOR_H
#define TW_DAEMON_WORKERLINK_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/status.h"
#include "daemon/workerlink/restart.h"

enum {
    TW_KILL_AFTER_US = 5 * 1000 * 1000,
    /* time in which a command may start its trainer again, as torchrun does when a rank dies */
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
    int exit_status; /* meaningful when signal is 0; -1: not known */
    int signal;
    bool was_hanging;
    bool is_done; /* the worker ended by itself after the run, with status 0 if that is known; it
                     is not started again */
    struct tw_restart_verdict verdict;
};

struct tw_supervisor_config {
    uv_loop_t *loop;
    const char *worker_path; /* borrowed; NULL: another program starts the worker */
    const char *command;     /* borrowed; not NULL: a command line for the shell that starts the
                                worker, or is it; worker_path is the shell */
    const char *socket_path; /* borrowed */
    uint32_t nice;           /* least nice value of a worker that the daemon starts */
    uint64_t seed;
    /* Called by the loop after each end; the next start comes after verdict.pause_us. */
    void (*died)(void *user, const struct tw_worker_death *death);
    /* The pause after `died` is over: a worker that another program starts may be welcomed. */
    void (*admit)(void *user);
    /* The receiver must close the link, even if its process has ended, and then call
     * tw_supervisor_unlinked. */
    void (*cut)(void *user);
    void *user;
};

struct tw_supervisor {
    struct tw_supervisor_config config;
    enum tw_supervisor_state state;
    struct tw_restart restart;
    pid_t pid;       /* pid of the running worker; 0: it is in another namespace, or has ended */
    uint32_t deaths; /* total number of deaths, without those that were requested */
    uint64_t snapshot_step, pause_us;
    bool is_stopping, is_hanging, is_killed;
    bool is_idle; /* paused or finished: no step is due */
    bool is_over; /* the run is finished */
    /* No worker is to run. has_rested: the last one was ended for that. is_ending: it is being
     * ended for that. */
    bool is_resting, is_ending, has_rested;
    bool is_on_gpu; /* the worker uses a GPU: a hang counts as a fault of the device */
    bool is_process_open;
    bool is_attached; /* a worker that the daemon started is attached */
    /* the worker's process has ended, but not its link; the next fields say how it ended */
    bool has_exited;
    int exit_status, exit_signal;
    uv_process_t process;
    uv_timer_t timer; /* pause, or kill escalation */
    uv_timer_t watch; /* checks for a hang once a second */
};

void tw_supervisor_init(struct tw_supervisor *supervisor,
                        const struct tw_supervisor_config *config);

/* Starts the first worker, or waits for one. TW_IO: cannot be executed; the sentence has the path.
 */
enum tw_status tw_supervisor_start(struct tw_supervisor *supervisor, struct tw_error *err);

/* Report signs of life of the worker, for the rules. */
void tw_supervisor_ready(struct tw_supervisor *supervisor);
void tw_supervisor_stepped(struct tw_supervisor *supervisor, uint64_t step_us);
void tw_supervisor_alive(struct tw_supervisor *supervisor);
void tw_supervisor_snapshot(struct tw_supervisor *supervisor, uint64_t step);
void tw_supervisor_set_idle(struct tw_supervisor *supervisor, bool is_idle);

/* The run is finished, or goes on after all: a worker that had left is then started again. */
void tw_supervisor_set_over(struct tw_supervisor *supervisor, bool is_over);

/* The kind of device the worker computes on, as far as known. */
void tw_supervisor_set_gpu(struct tw_supervisor *supervisor, bool is_on_gpu);

/* The process `pid` has the link. If it is the worker that we started, `died` waits for
 * tw_supervisor_unlinked, because the last messages may still be unread. */
void tw_supervisor_attached(struct tw_supervisor *supervisor, pid_t pid);

/* The process `pid` was welcomed: a worker that another program started counts as running. */
void tw_supervisor_linked(struct tw_supervisor *supervisor, pid_t pid);

/* The link has ended. A process that the daemon started is killed if it is still running after 5 s.
 * A worker that another program started counts as dead; `exit_status` comes from its FATAL (-1: not
 * known). */
void tw_supervisor_unlinked(struct tw_supervisor *supervisor, int exit_status);

/* Ends the worker for good: SIGTERM after `grace_us` (EXIT may end it earlier), SIGKILL 5 s later.
 * If it runs, `died` with is_wanted follows. Returns false when no worker ran. */
bool tw_supervisor_stop(struct tw_supervisor *supervisor, uint64_t grace_us);

/* Ends the worker, as tw_supervisor_stop does, and starts none until tw_supervisor_wake. `died`
 * with is_rest follows if it runs; that is no death. */
void tw_supervisor_rest(struct tw_supervisor *supervisor, uint64_t grace_us);
/* Starts a worker again, or admits that of another program; after the end of one that still ends.
 */
void tw_supervisor_wake(struct tw_supervisor *supervisor);

/* Kills a running worker at once and closes the handles; no callback follows. */
void tw_supervisor_close(struct tw_supervisor *supervisor);

bool tw_supervisor_is_running(const struct tw_supervisor *supervisor);

#endif
