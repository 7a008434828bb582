/* supervisor.h - keeps one worker process running: starts it, notices that it died or hangs, starts
 * it again by the rules of restart.h.
 *
 * Where somebody else (systemd) starts it, the link to it stands for the process: it runs from its
 * WELCOME to the end of its link, `pausing` is kept by not welcoming whoever comes, of one that
 * hangs the link is cut where signals do not end it, and it never becomes `failed`. A worker of
 * ours that attached has ended when its process and its link have; a link that goes on, for a child
 * of its may have it, is cut 5 s after the process, or at once by stop.
 *
 *   stopped --start--> running --exit--> pausing --timer--> running
 *                        |  \--hang: SIGTERM, 5 s, SIGKILL--> exit
 *                        \--stop: SIGTERM after a grace, 5 s, SIGKILL--> stopped
 *   pausing --gives up--> failed */
#ifndef TW_DAEMON_WORKERLINK_SUPERVISOR_H
#define TW_DAEMON_WORKERLINK_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/status.h"
#include "daemon/workerlink/restart.h"

enum { TW_KILL_AFTER_US = 5 * 1000 * 1000 };

enum tw_supervisor_state {
    TW_SUPERVISOR_STOPPED,
    TW_SUPERVISOR_RUNNING,
    TW_SUPERVISOR_PAUSING,
    TW_SUPERVISOR_FAILED,
};

struct tw_worker_death {
    bool is_wanted;  /* the end of tw_supervisor_stop */
    int exit_status; /* meaningful when signal is 0; -1: not known */
    int signal;
    bool was_hanging;
    struct tw_restart_verdict verdict;
};

struct tw_supervisor_config {
    uv_loop_t *loop;
    const char *worker_path; /* borrowed; NULL: somebody else starts it */
    const char *socket_path; /* borrowed */
    uint64_t seed;
    /* Called by the loop after each end; the next start comes after verdict.pause_us. */
    void (*died)(void *user, const struct tw_worker_death *death);
    /* Of a worker somebody else starts, whom nobody is to welcome after `died`: the pause is over,
     * the next may come. */
    void (*admit)(void *user);
    /* The link is to be closed, whatever became of who has it: tw_supervisor_unlinked follows. */
    void (*cut)(void *user);
    void *user;
};

struct tw_supervisor {
    struct tw_supervisor_config config;
    enum tw_supervisor_state state;
    struct tw_restart restart;
    pid_t pid;       /* while it runs; 0: of another namespace, or gone */
    uint32_t deaths; /* ever, the wanted one not counted */
    uint64_t snapshot_step, pause_us;
    bool is_stopping, is_hanging, is_killed;
    bool is_idle;   /* paused or finished: no step is due */
    bool is_on_gpu; /* a hang is then a fault of the device */
    bool is_process_open;
    bool is_attached; /* a worker of ours has its link */
    bool has_exited;  /* so, and its process is gone while the link is not: with these */
    int exit_status, exit_signal;
    uv_process_t process;
    uv_timer_t timer; /* pause, or kill escalation */
    uv_timer_t watch; /* looks for a hang once a second */
};

void tw_supervisor_init(struct tw_supervisor *supervisor,
                        const struct tw_supervisor_config *config);

/* Starts the first worker, or waits for it. TW_IO: cannot be executed; the sentence names it. */
enum tw_status tw_supervisor_start(struct tw_supervisor *supervisor, struct tw_error *err);

/* What the worker does, for the rules. */
void tw_supervisor_ready(struct tw_supervisor *supervisor);
void tw_supervisor_stepped(struct tw_supervisor *supervisor, uint64_t step_us);
void tw_supervisor_alive(struct tw_supervisor *supervisor);
void tw_supervisor_snapshot(struct tw_supervisor *supervisor, uint64_t step);
void tw_supervisor_set_idle(struct tw_supervisor *supervisor, bool is_idle);

/* What it computes on, as far as is known. */
void tw_supervisor_set_gpu(struct tw_supervisor *supervisor, bool is_on_gpu);

/* The process with this id has the link to us. When it is the worker we started, `died` waits for
 * tw_supervisor_unlinked: what it said last may still be unread. */
void tw_supervisor_attached(struct tw_supervisor *supervisor, pid_t pid);

/* It was welcomed: a worker that somebody else started runs. */
void tw_supervisor_linked(struct tw_supervisor *supervisor, pid_t pid);

/* The link to it is gone. Its process is ended if it is still there in 5 s; a worker that somebody
 * else started is dead, with the exit status that its last words tell (-1: not known). */
void tw_supervisor_unlinked(struct tw_supervisor *supervisor, int exit_status);

/* Ends it for good: SIGTERM after `grace_us` (it may have been asked nicely), 5 s later SIGKILL.
 * `died` with is_wanted follows if it runs; returns false when nothing ran. */
bool tw_supervisor_stop(struct tw_supervisor *supervisor, uint64_t grace_us);

/* Kills at once what still runs and closes the handles; no callback follows. */
void tw_supervisor_close(struct tw_supervisor *supervisor);

bool tw_supervisor_is_running(const struct tw_supervisor *supervisor);

#endif
