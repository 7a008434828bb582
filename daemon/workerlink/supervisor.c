#include "daemon/workerlink/supervisor.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/log.h"

/* ==== when to start it again ================================================================== */

void tw_restart_init(struct tw_restart *restart, uint64_t seed, bool is_foreign) {
    *restart = (struct tw_restart){.is_foreign = is_foreign};
    tw_rng_seed(&restart->rng, seed);
}

void tw_restart_started(struct tw_restart *restart, uint64_t now_us) {
    restart->started_us = now_us;
    restart->alive_us = now_us;
    restart->step_mean_us = 0;
    restart->has_stepped = false;
    restart->is_ready = false;
}

void tw_restart_ready(struct tw_restart *restart, uint64_t now_us) {
    restart->is_ready = true;
    restart->alive_us = now_us;
}

void tw_restart_stepped(struct tw_restart *restart, uint64_t step_us, uint64_t now_us) {
    const uint64_t mean = restart->step_mean_us;
    restart->step_mean_us = mean == 0 ? step_us : mean - mean / 8 + step_us / 8;
    restart->alive_us = now_us;
    restart->has_stepped = true;
}

void tw_restart_alive(struct tw_restart *restart, uint64_t now_us) {
    restart->alive_us = now_us;
}

static uint64_t pause_of(struct tw_restart *restart) {
    if (restart->row <= 1) return 0;
    const uint32_t doublings = restart->row - 2 < 6 ? restart->row - 2 : 6;
    uint64_t pause = (uint64_t)1000 * 1000 << doublings;
    if (pause > TW_RESTART_PAUSE_MAX_US) pause = TW_RESTART_PAUSE_MAX_US;
    return pause - pause / 5 + tw_rng_below(&restart->rng, 2 * pause / 5 + 1);
}

/* Counts a death. After a healthy stretch, counting begins anew. A stretch ends with the last sign
 * of life, because the time in which a worker hangs is not healthy. */
static void count_death(struct tw_restart *restart) {
    if (restart->alive_us - restart->started_us >= TW_RESTART_HEALTHY_US) {
        restart->row = 0;
        restart->stuck = 0;
    }
    restart->row++;
}

/* Limit of `stuck`, which keeps a worker of another program from measures that are not allowed for
 * it yet. */
static uint32_t stuck_max(const struct tw_restart *restart) {
    if (!restart->is_foreign) return UINT32_MAX;
    return (restart->has_stepped ? 3 : 2) * TW_RESTART_RUNG - 1;
}

struct tw_restart_verdict tw_restart_device_died(struct tw_restart *restart) {
    count_death(restart);
    return (struct tw_restart_verdict){.rung = TW_RESTART_PLAIN, .pause_us = pause_of(restart)};
}

struct tw_restart_verdict tw_restart_died(struct tw_restart *restart, uint64_t snapshot_step) {
    if (restart->is_foreign && !restart->is_ready) return tw_restart_device_died(restart);
    count_death(restart);
    if (snapshot_step > restart->snapshot_step) restart->stuck = 0;
    restart->snapshot_step = snapshot_step;
    if (restart->stuck < stuck_max(restart)) restart->stuck++;
    struct tw_restart_verdict verdict = {.pause_us = pause_of(restart)};
    if (restart->stuck < TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_PLAIN;
    } else if (restart->stuck < 2 * TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_SKIP;
        verdict.skip = restart->stuck - TW_RESTART_RUNG + 1;
    } else if (restart->stuck < 3 * TW_RESTART_RUNG) {
        verdict.rung = TW_RESTART_ANCHOR;
    } else {
        verdict.rung = TW_RESTART_GIVE_UP;
    }
    return verdict;
}

uint64_t tw_restart_hang_us(const struct tw_restart *restart) {
    if (!restart->has_stepped) return restart->alive_us + TW_HANG_FIRST_US;
    const uint64_t patience = TW_HANG_FACTOR * restart->step_mean_us;
    return restart->alive_us + (patience > TW_HANG_FLOOR_US ? patience : TW_HANG_FLOOR_US);
}

/* ==== the process ============================================================================= */

enum { WATCH_MS = 1000 };

static uint64_t now_us(void) {
    return uv_hrtime() / 1000;
}

/* Returns whether another program starts the worker. */
static bool is_foreign(const struct tw_supervisor *supervisor) {
    return supervisor->config.worker_path == NULL;
}

/* Signals the worker if it is running. Never signals pid 0, the daemon's own process group. A
 * worker that the daemon started leads a process group, which also holds its children. The process
 * of another program is not the daemon's to end. */
static void process_kill(struct tw_supervisor *supervisor, int signal) {
    if (supervisor->state != TW_SUPERVISOR_RUNNING || supervisor->pid <= 0) return;
    if (!is_foreign(supervisor)) (void)uv_kill(-supervisor->pid, signal);
}

/* ---- ending it ----------------------------------------------------------------------------- */

static void on_kill_timer(uv_timer_t *timer) {
    struct tw_supervisor *supervisor = timer->data;
    /* No signal can close a link that alone is left, and none may end another program's process. */
    if (supervisor->has_exited || is_foreign(supervisor)) {
        supervisor->config.cut(supervisor->config.user);
        return;
    }
    if (!supervisor->is_killed) {
        supervisor->is_killed = true;
        process_kill(supervisor, SIGTERM);
        TW_ASSERT(uv_timer_start(timer, on_kill_timer, TW_KILL_AFTER_US / 1000, 0) == 0);
        return;
    }
    process_kill(supervisor, SIGKILL);
}

static void kill_after(struct tw_supervisor *supervisor, uint64_t grace_us) {
    supervisor->is_killed = false;
    TW_ASSERT(uv_timer_start(&supervisor->timer, on_kill_timer, grace_us / 1000, 0) == 0);
}

static void on_watch(uv_timer_t *timer) {
    struct tw_supervisor *supervisor = timer->data;
    if (supervisor->state != TW_SUPERVISOR_RUNNING || supervisor->is_hanging) return;
    if (supervisor->has_exited) return; /* a process that has ended does not hang */
    if (is_foreign(supervisor) && supervisor->is_patient && !supervisor->is_idle) return;
    if (supervisor->is_idle || supervisor->is_stopping || supervisor->is_ending) {
        tw_restart_alive(&supervisor->restart, now_us());
        return;
    }
    if (now_us() < tw_restart_hang_us(&supervisor->restart)) return;
    supervisor->is_hanging = true;
    kill_after(supervisor, 0);
}

/* ---- starting it --------------------------------------------------------------------------- */

static void running_begin(struct tw_supervisor *supervisor, pid_t pid) {
    supervisor->state = TW_SUPERVISOR_RUNNING;
    supervisor->pid = pid;
    supervisor->is_hanging = false;
    supervisor->is_killed = false;
    supervisor->is_attached = false;
    supervisor->has_exited = false;
    supervisor->is_patient = false;
    supervisor->is_ending = supervisor->has_rested = false;
    tw_restart_started(&supervisor->restart, now_us());
}

static void on_exit(uv_process_t *process, int64_t exit_status, int signal);

/* Sets the nice value of the worker. All its threads inherit it: they start after WELCOME, which
 * this loop sends later. */
static void set_nice(const struct tw_supervisor *supervisor) {
    const int wanted = (int)supervisor->config.nice;
    const id_t group = (id_t)supervisor->process.pid;
    if (getpriority(PRIO_PROCESS, 0) >= wanted || setpriority(PRIO_PGRP, group, wanted) == 0)
        return;
    tw_log(TW_LOG_WARN, "worker_not_niced", "nice=%d text=\"%s\"", wanted, strerror(errno));
}

static enum tw_status process_start(struct tw_supervisor *supervisor, struct tw_error *err) {
    const struct tw_supervisor_config *config = &supervisor->config;
    char *args[] = {(char *)(uintptr_t)config->worker_path, (char *)(uintptr_t) "--socket",
                    (char *)(uintptr_t)config->socket_path, NULL};
    if (config->command != NULL) {
        args[1] = (char *)(uintptr_t) "-c";
        args[2] = (char *)(uintptr_t)config->command;
    }
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
    };
    const uv_process_options_t options = {
        .file = config->worker_path,
        /* Ctrl-C at a terminal must reach only the daemon, which takes a snapshot and then ends the
         * worker. */
        .flags = UV_PROCESS_DETACHED,
        .args = args,
        .stdio = stdio,
        .stdio_count = 3,
        .exit_cb = on_exit,
    };
    const int rc = uv_spawn(config->loop, &supervisor->process, &options);
    supervisor->process.data = supervisor;
    supervisor->is_process_open =
        true; /* after a failed uv_spawn, too, there is a handle to close */
    if (rc != 0) {
        return tw_fail(err, TW_IO, "cannot start the worker %s: %s (see node.worker_path)",
                       config->worker_path, uv_strerror(rc));
    }
    set_nice(supervisor);
    running_begin(supervisor, supervisor->process.pid);
    return TW_OK;
}

static void death_handle(struct tw_supervisor *supervisor, int exit_status, int signal);

static void on_pause_over(uv_timer_t *timer) {
    struct tw_supervisor *supervisor = timer->data;
    if (is_foreign(supervisor)) {
        supervisor->state = TW_SUPERVISOR_STOPPED;
        supervisor->config.admit(supervisor->config.user);
    } else if (process_start(supervisor, NULL) != TW_OK) {
        death_handle(supervisor, 127, 0);
    }
}

static void pause_begin(struct tw_supervisor *supervisor) {
    if (supervisor->state != TW_SUPERVISOR_PAUSING || supervisor->is_stopping) return;
    if (supervisor->is_resting) return; /* tw_supervisor_wake calls this again */
    const uint64_t pause_ms = (supervisor->pause_us + 999) / 1000;
    TW_ASSERT(uv_timer_start(&supervisor->timer, on_pause_over, pause_ms, 0) == 0);
}

/* Starts the next worker without a pause. */
static void begin_again(struct tw_supervisor *supervisor) {
    supervisor->pause_us = 0;
    supervisor->state = TW_SUPERVISOR_PAUSING;
    if (!supervisor->is_process_open) pause_begin(supervisor);
}

static void on_process_closed(uv_handle_t *handle) {
    struct tw_supervisor *supervisor = handle->data;
    supervisor->is_process_open = false;
    pause_begin(supervisor);
}

/* Returns whether the worker exited because the run is over, as a trainer may. The exit status of a
 * worker that another program started is not known: -1. */
static bool is_done(const struct tw_supervisor *supervisor, int exit_status, int signal) {
    const bool is_clean = signal == 0 && (exit_status == 0 || exit_status == -1);
    return supervisor->is_over && is_clean && !supervisor->is_hanging && !supervisor->is_stopping;
}

static void death_handle(struct tw_supervisor *supervisor, int exit_status, int signal) {
    const bool has_left = is_foreign(supervisor) && exit_status == 0 && !supervisor->is_hanging;
    struct tw_worker_death death = {.is_wanted = supervisor->is_stopping,
                                    .is_rest = supervisor->is_ending && !supervisor->is_stopping,
                                    .exit_status = exit_status,
                                    .signal = signal,
                                    .was_hanging = supervisor->is_hanging,
                                    .is_done = is_done(supervisor, exit_status, signal)};
    death.has_left = has_left && !death.is_wanted && !death.is_rest && !death.is_done;
    (void)uv_timer_stop(&supervisor->timer);
    supervisor->state = TW_SUPERVISOR_STOPPED;
    supervisor->is_ending = false;
    if (death.is_rest) {
        supervisor->has_rested = true;
        supervisor->pause_us = 0;
        if (!supervisor->is_resting)
            supervisor->state = TW_SUPERVISOR_PAUSING; /* woken meanwhile */
    } else if (!supervisor->is_stopping && !death.is_done && !death.has_left) {
        supervisor->deaths++;
        const bool is_device = (signal == 0 && exit_status == TW_EXIT_DEVICE) ||
                               (supervisor->is_hanging && supervisor->is_on_gpu);
        death.verdict = is_device
                            ? tw_restart_device_died(&supervisor->restart)
                            : tw_restart_died(&supervisor->restart, supervisor->snapshot_step);
        supervisor->state =
            death.verdict.rung == TW_RESTART_GIVE_UP ? TW_SUPERVISOR_FAILED : TW_SUPERVISOR_PAUSING;
        supervisor->pause_us = death.verdict.pause_us;
    }
    if (is_foreign(supervisor)) {
        pause_begin(supervisor);
    } else {
        uv_close((uv_handle_t *)&supervisor->process, on_process_closed);
    }
    supervisor->config.died(supervisor->config.user, &death);
}

/* Handles the end of the worker's process. Its last messages may still be unread, and no new worker
 * is accepted until its link ends. A forked child may keep the link open, so a timer closes it. */
static void on_exit(uv_process_t *process, int64_t exit_status, int signal) {
    struct tw_supervisor *supervisor = process->data;
    /* Processes that a command left behind would keep the device in use. */
    if (supervisor->config.command != NULL) process_kill(supervisor, SIGKILL);
    supervisor->pid = 0; /* the system may reuse the pid */
    if (!supervisor->is_attached || supervisor->is_stopping) {
        death_handle(supervisor, (int)exit_status, signal);
        return;
    }
    supervisor->has_exited = true;
    supervisor->exit_status = (int)exit_status;
    supervisor->exit_signal = signal;
    kill_after(supervisor, TW_KILL_AFTER_US);
}

/* ---- interface ----------------------------------------------------------------------------- */

void tw_supervisor_init(struct tw_supervisor *supervisor,
                        const struct tw_supervisor_config *config) {
    memset(supervisor, 0, sizeof(*supervisor));
    supervisor->config = *config;
    tw_restart_init(&supervisor->restart, config->seed, is_foreign(supervisor));
    TW_ASSERT(uv_timer_init(config->loop, &supervisor->timer) == 0);
    TW_ASSERT(uv_timer_init(config->loop, &supervisor->watch) == 0);
    supervisor->timer.data = supervisor;
    supervisor->watch.data = supervisor;
}

enum tw_status tw_supervisor_start(struct tw_supervisor *supervisor, struct tw_error *err) {
    TW_ASSERT(supervisor->state == TW_SUPERVISOR_STOPPED);
    if (supervisor->is_resting)
        supervisor->has_rested = true; /* tw_supervisor_wake starts the first worker */
    else if (!is_foreign(supervisor))
        TW_TRY(process_start(supervisor, err));
    TW_ASSERT(uv_timer_start(&supervisor->watch, on_watch, WATCH_MS, WATCH_MS) == 0);
    return TW_OK;
}

void tw_supervisor_linked(struct tw_supervisor *supervisor, pid_t pid) {
    if (!is_foreign(supervisor) || supervisor->is_stopping) return;
    TW_ASSERT(supervisor->state == TW_SUPERVISOR_STOPPED);
    running_begin(supervisor, pid);
}

void tw_supervisor_attached(struct tw_supervisor *supervisor, pid_t pid) {
    const bool has_process = !is_foreign(supervisor) && supervisor->pid > 0;
    supervisor->is_attached =
        has_process && (pid == supervisor->pid || getpgid(pid) == supervisor->pid);
    /* The command has restarted its trainer in time, and the trainer now attaches. */
    if (has_process && supervisor->config.command != NULL && !supervisor->is_hanging &&
        !supervisor->is_stopping)
        (void)uv_timer_stop(&supervisor->timer);
}

void tw_supervisor_ready(struct tw_supervisor *supervisor, bool is_patient) {
    supervisor->is_patient = is_patient;
    tw_restart_ready(&supervisor->restart, now_us());
}

void tw_supervisor_stepped(struct tw_supervisor *supervisor, uint64_t step_us) {
    tw_restart_stepped(&supervisor->restart, step_us, now_us());
}

void tw_supervisor_alive(struct tw_supervisor *supervisor) {
    tw_restart_alive(&supervisor->restart, now_us());
}

void tw_supervisor_snapshot(struct tw_supervisor *supervisor, uint64_t step) {
    supervisor->snapshot_step = step;
}

void tw_supervisor_set_idle(struct tw_supervisor *supervisor, bool is_idle) {
    supervisor->is_idle = is_idle;
    tw_restart_alive(&supervisor->restart, now_us());
}

void tw_supervisor_set_over(struct tw_supervisor *supervisor, bool is_over) {
    const bool goes_on = supervisor->is_over && !is_over;
    supervisor->is_over = is_over;
    if (!goes_on || is_foreign(supervisor) || supervisor->state != TW_SUPERVISOR_STOPPED) return;
    begin_again(supervisor);
}

void tw_supervisor_set_gpu(struct tw_supervisor *supervisor, bool is_on_gpu) {
    supervisor->is_on_gpu = is_on_gpu;
}

void tw_supervisor_unlinked(struct tw_supervisor *supervisor, int exit_status) {
    if (supervisor->state != TW_SUPERVISOR_RUNNING) return;
    supervisor->is_attached = false;
    if (is_foreign(supervisor)) {
        death_handle(supervisor, exit_status, 0);
        return;
    }
    if (supervisor->has_exited) {
        death_handle(supervisor, supervisor->exit_status, supervisor->exit_signal);
        return;
    }
    if (supervisor->is_stopping || supervisor->is_hanging) return;
    const bool starts_again = supervisor->config.command != NULL;
    kill_after(supervisor, starts_again ? TW_COMMAND_AGAIN_US : TW_KILL_AFTER_US);
}

bool tw_supervisor_stop(struct tw_supervisor *supervisor, uint64_t grace_us) {
    const bool runs = supervisor->state == TW_SUPERVISOR_RUNNING;
    supervisor->is_stopping = true;
    if (runs) {
        /* A dead process needs no grace. Messages that have arrived are read before the timer
         * fires. */
        kill_after(supervisor, supervisor->has_exited ? 0 : grace_us);
    } else {
        (void)uv_timer_stop(&supervisor->timer);
        supervisor->state = TW_SUPERVISOR_STOPPED;
    }
    return runs;
}

void tw_supervisor_rest(struct tw_supervisor *supervisor, uint64_t grace_us) {
    if (supervisor->is_stopping || supervisor->is_resting) return;
    supervisor->is_resting = true;
    if (supervisor->state == TW_SUPERVISOR_PAUSING) (void)uv_timer_stop(&supervisor->timer);
    if (supervisor->state != TW_SUPERVISOR_RUNNING) return;
    if (supervisor->is_hanging || supervisor->has_exited || supervisor->is_ending) return;
    supervisor->is_ending = true;
    kill_after(supervisor, grace_us);
}

void tw_supervisor_wake(struct tw_supervisor *supervisor) {
    if (!supervisor->is_resting) return;
    supervisor->is_resting = false;
    if (supervisor->state == TW_SUPERVISOR_STOPPED && supervisor->has_rested)
        begin_again(supervisor);
    else if (!supervisor->is_process_open)
        pause_begin(supervisor);
}

void tw_supervisor_close(struct tw_supervisor *supervisor) {
    supervisor->is_stopping = true;
    if (supervisor->is_process_open && !uv_is_closing((uv_handle_t *)&supervisor->process)) {
        process_kill(supervisor, SIGKILL);
        uv_close((uv_handle_t *)&supervisor->process, on_process_closed);
    }
    supervisor->state = TW_SUPERVISOR_STOPPED;
    uv_close((uv_handle_t *)&supervisor->timer, NULL);
    uv_close((uv_handle_t *)&supervisor->watch, NULL);
}

bool tw_supervisor_is_running(const struct tw_supervisor *supervisor) {
    return supervisor->state == TW_SUPERVISOR_RUNNING;
}

uint64_t tw_supervisor_still_us(const struct tw_supervisor *supervisor) {
    const struct tw_restart *const restart = &supervisor->restart;
    const bool is_due = supervisor->state == TW_SUPERVISOR_RUNNING && supervisor->is_patient &&
                        !supervisor->is_idle && restart->is_ready;
    const uint64_t now = now_us();
    if (!is_due || now < tw_restart_hang_us(restart)) return 0;
    return now - restart->alive_us;
}
