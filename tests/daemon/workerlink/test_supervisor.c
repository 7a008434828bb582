/* Tests of supervisor.h: when to restart, under virtual time, and the process with real ones. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "daemon/workerlink/supervisor.h"
#include "tests/test.h"

enum { SECOND_US = 1000 * 1000 };

/* ---- rules --------------------------------------------------------------------------------- */

TEST(pauses_double_up_to_a_minute) {
    static const uint64_t expected_s[] = {0, 1, 2, 4, 8, 16, 32, 60, 60};
    struct tw_restart restart;
    uint64_t now = SECOND_US;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < sizeof(expected_s) / sizeof(expected_s[0]); i++) {
        tw_restart_started(&restart, now);
        const uint64_t pause = tw_restart_died(&restart, i + 1).pause_us;
        const uint64_t middle = expected_s[i] * SECOND_US;
        assert_in_range(pause, middle - middle / 5, middle + middle / 5);
        now += pause + SECOND_US;
    }
}

TEST(ten_healthy_minutes_begin_the_row_again) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < 5; i++) {
        tw_restart_started(&restart, SECOND_US);
        (void)tw_restart_died(&restart, i + 1);
    }
    tw_restart_started(&restart, SECOND_US);
    tw_restart_stepped(&restart, 1000, (uint64_t)600 * SECOND_US);
    assert_int_not_equal(tw_restart_died(&restart, 9).pause_us, 0);
    tw_restart_started(&restart, SECOND_US);
    tw_restart_stepped(&restart, 1000, (uint64_t)602 * SECOND_US);
    assert_int_equal(tw_restart_died(&restart, 10).pause_us, 0);
}

/* With snapshots off, no newer snapshot shows progress, and a waiting worker takes none. Long
 * healthy stretches are progress too. */
TEST(deaths_after_healthy_stretches_climb_no_ladder) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < 20; i++) {
        const bool is_idle = i % 2 == 1;
        tw_restart_started(&restart, SECOND_US);
        if (is_idle) tw_restart_alive(&restart, (uint64_t)3600 * SECOND_US);
        if (!is_idle) tw_restart_stepped(&restart, 1000, (uint64_t)3600 * SECOND_US);
        assert_int_equal(tw_restart_died(&restart, 0).rung, TW_RESTART_PLAIN);
    }
}

TEST(deaths_without_progress_climb_the_ladder) {
    static const enum tw_restart_rung expected[] = {
        TW_RESTART_PLAIN,  TW_RESTART_PLAIN,  TW_RESTART_SKIP,   TW_RESTART_SKIP,   TW_RESTART_SKIP,
        TW_RESTART_ANCHOR, TW_RESTART_ANCHOR, TW_RESTART_ANCHOR, TW_RESTART_GIVE_UP};
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        tw_restart_started(&restart, SECOND_US);
        const struct tw_restart_verdict verdict = tw_restart_died(&restart, 40);
        assert_int_equal(verdict.rung, expected[i]);
        if (verdict.rung == TW_RESTART_SKIP) assert_int_equal(verdict.skip, i - 1);
    }
}

TEST(newer_snapshot_is_progress) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < 100; i++) {
        tw_restart_started(&restart, SECOND_US);
        assert_int_equal(tw_restart_died(&restart, i).rung, TW_RESTART_PLAIN);
    }
}

/* A device may be unavailable for hours, while the saved state stays good. So the daemon keeps
 * trying. */
TEST(failed_device_is_tried_for_ever) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    for (unsigned i = 0; i < 100; i++) {
        tw_restart_started(&restart, SECOND_US);
        const struct tw_restart_verdict verdict = tw_restart_device_died(&restart);
        assert_int_equal(verdict.rung, TW_RESTART_PLAIN);
        if (i == 0) assert_int_equal(verdict.pause_us, 0);
        if (i > 0) assert_true(verdict.pause_us >= 800 * 1000);
        if (i > 10) assert_true(verdict.pause_us >= TW_RESTART_PAUSE_MAX_US / 5 * 4);
    }
    assert_int_equal(tw_restart_died(&restart, 0).rung, TW_RESTART_PLAIN);
}

TEST(patience_follows_the_steps) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, false);
    tw_restart_started(&restart, 1000);
    assert_int_equal(tw_restart_hang_us(&restart), 1000 + TW_HANG_FIRST_US);
    tw_restart_stepped(&restart, SECOND_US, 5 * SECOND_US);
    assert_int_equal(tw_restart_hang_us(&restart), 5 * SECOND_US + TW_HANG_FLOOR_US);
    for (unsigned i = 0; i < 100; i++) {
        tw_restart_stepped(&restart, 20 * SECOND_US, (uint64_t)100 * SECOND_US);
    }
    assert_in_range(tw_restart_hang_us(&restart), (uint64_t)295 * SECOND_US,
                    (uint64_t)301 * SECOND_US);
}

/* ---- processes ----------------------------------------------------------------------------- */

struct seen {
    uv_loop_t loop;
    struct tw_supervisor supervisor;
    unsigned deaths, wanted, admitted, cut;
    bool rests_at_death; /* whether to pause the worker as soon as its death is reported */
    struct tw_worker_death last;
    char path[64];
};

static void on_died(void *user, const struct tw_worker_death *death) {
    struct seen *seen = user;
    seen->last = *death;
    if (death->is_wanted) {
        seen->wanted++;
    } else {
        seen->deaths++;
    }
    if (seen->rests_at_death) tw_supervisor_rest(&seen->supervisor, 0);
}

static void on_admit(void *user) {
    struct seen *seen = user;
    seen->admitted++;
}

static void on_cut(void *user) {
    struct seen *seen = user;
    seen->cut++;
}

/* Makes the supervisor check for a hang every millisecond. */
static void watch_hurry(struct seen *seen) {
    uv_timer_t *watch = &seen->supervisor.watch;
    assert_int_equal(uv_timer_start(watch, watch->timer_cb, 1, 1), 0);
}

/* Opens a supervisor for workers that another program starts. */
static void foreign_open(struct seen *seen) {
    memset(seen, 0, sizeof(*seen));
    assert_int_equal(uv_loop_init(&seen->loop), 0);
    const struct tw_supervisor_config config = {.loop = &seen->loop,
                                                .socket_path = "/nowhere",
                                                .seed = 1,
                                                .died = on_died,
                                                .admit = on_admit,
                                                .cut = on_cut,
                                                .user = seen};
    tw_supervisor_init(&seen->supervisor, &config);
    assert_int_equal(tw_supervisor_start(&seen->supervisor, NULL), TW_OK);
    watch_hurry(seen);
}

/* Opens a supervisor that starts a shell command. */
static void command_open(struct seen *seen, const char *command) {
    memset(seen, 0, sizeof(*seen));
    assert_int_equal(uv_loop_init(&seen->loop), 0);
    const struct tw_supervisor_config config = {.loop = &seen->loop,
                                                .worker_path = "/bin/sh",
                                                .command = command,
                                                .socket_path = "/nowhere",
                                                .seed = 1,
                                                .died = on_died,
                                                .cut = on_cut,
                                                .user = seen};
    tw_supervisor_init(&seen->supervisor, &config);
}

static void seen_open(struct seen *seen, const char *script) {
    memset(seen, 0, sizeof(*seen));
    (void)strcpy(seen->path, "/tmp/tw-sup-XXXXXX");
    const int fd = mkstemp(seen->path);
    assert_true(fd >= 0);
    assert_int_equal(dprintf(fd, "#!/bin/sh\n%s\n", script), (int)strlen(script) + 11);
    assert_int_equal(fchmod(fd, 0700), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(uv_loop_init(&seen->loop), 0);
    const struct tw_supervisor_config config = {.loop = &seen->loop,
                                                .worker_path = seen->path,
                                                .socket_path = "/nowhere",
                                                .seed = 1,
                                                .died = on_died,
                                                .cut = on_cut,
                                                .user = seen};
    tw_supervisor_init(&seen->supervisor, &config);
}

static void seen_close(struct seen *seen) {
    tw_supervisor_close(&seen->supervisor);
    (void)uv_run(&seen->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&seen->loop), 0);
    (void)unlink(seen->path);
}

TEST(dead_worker_is_started_again_at_once) {
    struct seen seen;
    seen_open(&seen, "exit 3");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    while (seen.deaths < 2) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.last.exit_status, 3);
    assert_int_equal(seen.supervisor.deaths, 2);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_PAUSING);
    seen_close(&seen);
}

TEST(device_fault_is_no_death_without_progress) {
    struct seen seen;
    seen_open(&seen, "exit 11");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    while (seen.deaths < 1) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.last.exit_status, TW_EXIT_DEVICE);
    assert_int_equal(seen.supervisor.restart.row, 1);
    assert_int_equal(seen.supervisor.restart.stuck, 0);
    seen_close(&seen);
}

/* A hang in a GPU driver is no evidence against the snapshots. A hang on the CPU may be caused
 * by them. */
TEST(hang_on_a_gpu_is_a_device_fault) {
    for (unsigned is_on_gpu = 0; is_on_gpu < 2; is_on_gpu++) {
        struct seen seen;
        seen_open(&seen, "exec sleep 60");
        tw_supervisor_set_gpu(&seen.supervisor, is_on_gpu != 0);
        assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
        watch_hurry(&seen);
        seen.supervisor.restart.has_stepped = true;
        seen.supervisor.restart.alive_us -= TW_HANG_FLOOR_US;
        while (seen.deaths < 1) (void)uv_run(&seen.loop, UV_RUN_ONCE);
        assert_true(seen.last.was_hanging);
        assert_int_equal(seen.supervisor.restart.row, 1);
        assert_int_equal(seen.supervisor.restart.stuck, is_on_gpu == 0 ? 1 : 0);
        seen_close(&seen);
    }
}

TEST(stop_ends_it_for_good) {
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    assert_true(tw_supervisor_is_running(&seen.supervisor));
    assert_true(tw_supervisor_stop(&seen.supervisor, 0));
    while (seen.wanted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.last.signal, SIGTERM);
    assert_int_equal(seen.deaths, 0);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_STOPPED);
    assert_false(tw_supervisor_stop(&seen.supervisor, 0));
    seen_close(&seen);
}

/* ---- a pause that gives memory back ------------------------------------------------------------
 */

TEST(rest_ends_the_worker_and_wake_starts_another) {
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    for (unsigned i = 1; i <= 3; i++) {
        const pid_t pid = seen.supervisor.pid;
        tw_supervisor_rest(&seen.supervisor, 0);
        tw_supervisor_rest(&seen.supervisor, 0); /* asked again */
        while (seen.deaths < i) (void)uv_run(&seen.loop, UV_RUN_ONCE);
        assert_true(seen.last.is_rest);
        assert_int_equal(seen.supervisor.deaths, 0); /* neither a death nor a step of the ladder */
        assert_int_equal(seen.supervisor.restart.row, 0);
        for (unsigned k = 0; k < 20; k++) (void)uv_run(&seen.loop, UV_RUN_NOWAIT);
        assert_false(tw_supervisor_is_running(&seen.supervisor));
        tw_supervisor_wake(&seen.supervisor);
        tw_supervisor_wake(&seen.supervisor);
        while (!tw_supervisor_is_running(&seen.supervisor)) (void)uv_run(&seen.loop, UV_RUN_ONCE);
        assert_int_not_equal(seen.supervisor.pid, pid);
    }
    seen_close(&seen);
}

TEST(wake_of_a_worker_that_still_ends_starts_one_after_it) {
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    const pid_t pid = seen.supervisor.pid;
    tw_supervisor_rest(&seen.supervisor, 0);
    tw_supervisor_wake(&seen.supervisor);
    while (seen.deaths == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_true(seen.last.is_rest);
    while (!tw_supervisor_is_running(&seen.supervisor)) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_not_equal(seen.supervisor.pid, pid);
    seen_close(&seen);
}

TEST(rest_of_a_dead_worker_holds_its_restart) {
    struct seen seen;
    seen_open(&seen, "exit 3");
    seen.supervisor.restart.row = 5; /* the pause before the restart is long */
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    uv_timer_t *const timer = &seen.supervisor.timer;
    while (!uv_is_active((uv_handle_t *)timer)) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_PAUSING);
    tw_supervisor_rest(&seen.supervisor, 0);
    assert_false(uv_is_active((uv_handle_t *)timer));
    tw_supervisor_wake(&seen.supervisor);
    assert_true(uv_is_active((uv_handle_t *)timer));
    (void)uv_timer_start(timer, timer->timer_cb, 0, 0);
    while (seen.deaths < 2) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_false(seen.last.is_rest);
    seen_close(&seen);
}

TEST(rest_that_begins_at_a_death_holds_the_restart) {
    struct seen seen;
    seen_open(&seen, "exit 3");
    seen.rests_at_death = true;
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    while (seen.deaths < 1) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    seen.rests_at_death = false;
    /* Waits until the handle of the dead process is closed, and a little longer. */
    while (seen.supervisor.is_process_open) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    for (unsigned k = 0; k < 20; k++) (void)uv_run(&seen.loop, UV_RUN_NOWAIT);
    assert_false(tw_supervisor_is_running(&seen.supervisor));
    assert_false(uv_is_active((uv_handle_t *)&seen.supervisor.timer));
    tw_supervisor_wake(&seen.supervisor);
    while (seen.deaths < 2) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    seen_close(&seen);
}

TEST(stop_ends_a_rest_for_good) {
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    tw_supervisor_rest(&seen.supervisor, 60 * (uint64_t)SECOND_US);
    assert_true(tw_supervisor_stop(&seen.supervisor, 0));
    while (seen.wanted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_false(seen.last.is_rest);
    tw_supervisor_wake(&seen.supervisor);
    for (unsigned k = 0; k < 20; k++) (void)uv_run(&seen.loop, UV_RUN_NOWAIT);
    assert_false(tw_supervisor_is_running(&seen.supervisor));
    seen_close(&seen);
}

/* The next worker started by another program is admitted only after the pause. */
TEST(rest_of_a_worker_of_somebody_else_admits_none) {
    struct seen seen;
    foreign_open(&seen);
    tw_supervisor_linked(&seen.supervisor, 0);
    tw_supervisor_rest(&seen.supervisor, 60 * (uint64_t)SECOND_US);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_true(seen.last.is_rest);
    for (unsigned k = 0; k < 20; k++) (void)uv_run(&seen.loop, UV_RUN_NOWAIT);
    assert_int_equal(seen.admitted, 0);
    tw_supervisor_wake(&seen.supervisor);
    while (seen.admitted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.supervisor.deaths, 0);
    seen_close(&seen);
}

/* ---- the nice value ----------------------------------------------------------------------------
 */

static int nice_of(pid_t pid) {
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

TEST(nice_value_holds_for_every_worker) {
    const int wanted = nice_of(0) + 3 <= 19 ? nice_of(0) + 3 : 19;
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    seen.supervisor.config.nice = (uint32_t)wanted;
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    for (unsigned i = 1; i <= 2; i++) {
        assert_int_equal(nice_of(seen.supervisor.pid), wanted);
        assert_int_equal(kill(seen.supervisor.pid, SIGKILL), 0);
        while (seen.deaths < i) (void)uv_run(&seen.loop, UV_RUN_ONCE);
        while (!tw_supervisor_is_running(&seen.supervisor)) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    }
    assert_int_equal(nice_of(seen.supervisor.pid), wanted);
    assert_int_not_equal(nice_of(0), wanted == 19 ? -1 : wanted); /* not the daemon's */
    seen_close(&seen);
}

/* Ctrl-C reaches the terminal's whole process group. It must not end the worker before its EXIT. */
TEST(worker_is_not_in_the_group_of_the_terminal) {
    struct seen seen;
    seen_open(&seen, "exec sleep 60");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    assert_int_not_equal(getpgid(seen.supervisor.pid), getpgrp());
    assert_true(tw_supervisor_stop(&seen.supervisor, 0));
    while (seen.wanted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    seen_close(&seen);
}

/* A launcher such as torchrun starts other processes, and one of them attaches. */
TEST(command_ends_with_its_processes) {
    struct seen seen;
    int ends[2];
    pid_t child = 0;
    char command[64], text[32] = "";
    assert_int_equal(pipe(ends), 0);
    (void)snprintf(command, sizeof(command), "sleep 60 & echo $! >&%d; wait", ends[1]);
    command_open(&seen, command);
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    child = (pid_t)strtol(text, NULL, 10);
    assert_true(child > 1);
    tw_supervisor_attached(&seen.supervisor, child);
    assert_true(seen.supervisor.is_attached);

    /* The trainer dies, and the command starts another trainer: the daemon does not interfere. */
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_true(uv_is_active((uv_handle_t *)&seen.supervisor.timer));
    tw_supervisor_attached(&seen.supervisor, child);
    assert_false(uv_is_active((uv_handle_t *)&seen.supervisor.timer));
    assert_int_equal(seen.deaths, 0);

    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_true(tw_supervisor_stop(&seen.supervisor, 0));
    while (seen.wanted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    /* The pipe reaches its end only when every process that could write to it has ended. */
    assert_int_equal(close(ends[1]), 0);
    while (read(ends[0], text, sizeof(text)) > 0) continue;
    assert_int_equal(close(ends[0]), 0);
    tw_supervisor_close(&seen.supervisor);
    (void)uv_run(&seen.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&seen.loop), 0);
}

TEST(trainer_that_leaves_after_the_run_is_not_started_again) {
    struct seen seen;
    seen_open(&seen, "exit 0");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    tw_supervisor_set_over(&seen.supervisor, true);
    while (seen.deaths == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_true(seen.last.is_done);
    assert_int_equal(seen.supervisor.deaths, 0);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_STOPPED);
    /* The run continues after all. */
    tw_supervisor_set_over(&seen.supervisor, false);
    while (seen.deaths == 1) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_false(seen.last.is_done);
    assert_int_equal(seen.supervisor.deaths, 1);
    seen_close(&seen);
}

/* Before the link's end is read, the dead worker's last messages may be unread, and the next
 * worker would be refused. */
TEST(death_waits_for_the_end_of_the_link) {
    struct seen seen;
    seen_open(&seen, "exit 4");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    tw_supervisor_attached(&seen.supervisor, seen.supervisor.pid);
    while (!seen.supervisor.has_exited) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_int_equal(seen.deaths, 0);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.deaths, 1);
    assert_int_equal(seen.last.exit_status, 4);
    /* The link of another process does not delay the report of a death. A stop waits for no link
     * at all. */
    while (seen.supervisor.state != TW_SUPERVISOR_RUNNING) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_attached(&seen.supervisor, getpid());
    while (seen.deaths < 2) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    while (seen.supervisor.state != TW_SUPERVISOR_RUNNING) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_attached(&seen.supervisor, seen.supervisor.pid);
    assert_true(tw_supervisor_stop(&seen.supervisor, 5 * SECOND_US));
    while (seen.wanted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    seen_close(&seen);
}

/* Waits until the worker has started, attaches it, and waits until it has died. */
static void die_attached(struct seen *seen) {
    while (seen->supervisor.state != TW_SUPERVISOR_RUNNING) (void)uv_run(&seen->loop, UV_RUN_ONCE);
    tw_supervisor_attached(&seen->supervisor, seen->supervisor.pid);
    while (!seen->supervisor.has_exited) (void)uv_run(&seen->loop, UV_RUN_ONCE);
}

/* A child that the worker forked keeps the link open. The test shortens the wait of five
 * seconds. */
TEST(dead_worker_whose_link_does_not_end_is_cut) {
    struct seen seen;
    seen_open(&seen, "exit 4");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    die_attached(&seen);
    uv_timer_t *timer = &seen.supervisor.timer;
    assert_true(uv_is_active((uv_handle_t *)timer));
    assert_in_range(uv_timer_get_due_in(timer), 1, TW_KILL_AFTER_US / 1000);
    assert_int_equal(seen.cut, 0);
    (void)uv_timer_start(timer, timer->timer_cb, 0, 0);
    while (seen.cut == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.deaths, 1);
    assert_int_equal(seen.last.exit_status, 4);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_PAUSING);
    seen_close(&seen);
}

TEST(stop_waits_for_no_link_of_a_dead_worker) {
    struct seen seen;
    seen_open(&seen, "exit 4");
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    die_attached(&seen);
    assert_true(tw_supervisor_stop(&seen.supervisor, 5 * SECOND_US));
    assert_int_equal(seen.cut, 0); /* the link is cut only after received messages are read */
    assert_int_equal(uv_timer_get_due_in(&seen.supervisor.timer), 0);
    while (seen.cut == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.wanted, 1);
    assert_int_equal(seen.deaths, 0);
    assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_STOPPED);
    seen_close(&seen);
}

/* A dead worker sends nothing. That silence must not count as a hang of the device. */
TEST(dead_worker_does_not_hang) {
    struct seen seen;
    seen_open(&seen, "exit 4");
    tw_supervisor_set_gpu(&seen.supervisor, true);
    assert_int_equal(tw_supervisor_start(&seen.supervisor, NULL), TW_OK);
    die_attached(&seen);
    seen.supervisor.restart.has_stepped = true;
    seen.supervisor.restart.alive_us -= TW_HANG_FLOOR_US;
    seen.supervisor.watch.timer_cb(&seen.supervisor.watch);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.deaths, 1);
    assert_false(seen.last.was_hanging);
    seen_close(&seen);
}

TEST(program_that_cannot_run_is_named) {
    struct seen seen;
    struct tw_error err = {0};
    seen_open(&seen, "exit 0");
    seen.supervisor.config.worker_path = "/nowhere/worker";
    assert_int_equal(tw_supervisor_start(&seen.supervisor, &err), TW_IO);
    assert_non_null(strstr(err.message, "/nowhere/worker"));
    seen_close(&seen);
}

/* A process that the daemon did not start. */
static pid_t foreign_process(void) {
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("sleep", "sleep", "600", (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Asserts that the process got no signal, and ends it. */
static void end_unharmed(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

TEST(hanging_worker_of_somebody_else_is_cut_and_gets_no_signal) {
    struct seen seen;
    foreign_open(&seen);
    const pid_t pid = foreign_process();
    tw_supervisor_linked(&seen.supervisor, pid);
    assert_true(tw_supervisor_is_running(&seen.supervisor));
    seen.supervisor.restart.has_stepped = true;
    seen.supervisor.restart.alive_us -= TW_HANG_FLOOR_US;
    while (seen.cut == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.deaths, 1);
    assert_true(seen.last.was_hanging);
    while (seen.admitted == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    end_unharmed(pid);
    seen_close(&seen);
}

TEST(worker_of_somebody_else_that_does_not_end_is_cut_and_gets_no_signal) {
    struct seen seen;
    foreign_open(&seen);
    const pid_t pid = foreign_process();
    tw_supervisor_linked(&seen.supervisor, pid);
    assert_true(tw_supervisor_stop(&seen.supervisor, 0));
    while (seen.cut == 0) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.wanted, 1);
    assert_int_equal(seen.deaths, 0);
    end_unharmed(pid);
    seen_close(&seen);
}

/* A user's program may do something else between two steps, for any time. */
TEST(a_pause_of_a_users_program_is_no_hang) {
    struct seen seen;
    foreign_open(&seen);
    tw_supervisor_linked(&seen.supervisor, 0);
    tw_supervisor_ready(&seen.supervisor, true);
    tw_supervisor_stepped(&seen.supervisor, 1000);
    assert_int_equal(tw_supervisor_still_us(&seen.supervisor), 0);
    seen.supervisor.restart.alive_us -= 2 * (uint64_t)TW_HANG_FLOOR_US;
    for (unsigned i = 0; i < 20; i++) (void)uv_run(&seen.loop, UV_RUN_ONCE);
    assert_false(seen.supervisor.is_hanging);
    assert_int_equal(seen.cut, 0);
    assert_true(tw_supervisor_still_us(&seen.supervisor) >= 2 * (uint64_t)TW_HANG_FLOOR_US);
    tw_supervisor_stepped(&seen.supervisor, 1000);
    assert_int_equal(tw_supervisor_still_us(&seen.supervisor), 0);
    seen_close(&seen);
}

TEST(leaving_in_order_is_no_death) {
    struct seen seen;
    foreign_open(&seen);
    for (unsigned i = 0; i < 10; i++) {
        tw_supervisor_linked(&seen.supervisor, 0);
        tw_supervisor_ready(&seen.supervisor, true);
        tw_supervisor_unlinked(&seen.supervisor, TW_EXIT_OK);
        assert_true(seen.last.has_left);
        assert_int_equal(seen.supervisor.state, TW_SUPERVISOR_STOPPED); /* the next may attach */
    }
    assert_int_equal(seen.supervisor.deaths, 0);
    seen_close(&seen);
}

/* A worker of another program attaches and dies. It is ready before if is_ready, and has taken a
 * step if has_stepped. */
static void foreign_die(struct seen *seen, bool is_ready, bool has_stepped, int exit_status) {
    const unsigned admitted = seen->admitted;
    seen->supervisor.restart.row = 0; /* restarts without a pause */
    tw_supervisor_linked(&seen->supervisor, 0);
    if (is_ready) tw_supervisor_ready(&seen->supervisor, false);
    if (has_stepped) tw_supervisor_stepped(&seen->supervisor, 1000);
    tw_supervisor_unlinked(&seen->supervisor, exit_status);
    assert_int_equal(seen->last.exit_status, exit_status);
    assert_int_equal(seen->supervisor.state, TW_SUPERVISOR_PAUSING);
    while (seen->admitted == admitted) (void)uv_run(&seen->loop, UV_RUN_ONCE);
}

TEST(workers_of_somebody_else_climb_the_ladder_but_are_not_given_up) {
    struct seen seen;
    foreign_open(&seen);
    for (unsigned i = 0; i < 5 * TW_RESTART_RUNG; i++) {
        /* Neither a device fault nor a death before READY climbs the ladder. */
        foreign_die(&seen, true, true, TW_EXIT_DEVICE);
        foreign_die(&seen, false, false, -1);
        assert_int_equal(seen.last.verdict.rung, TW_RESTART_PLAIN);
        foreign_die(&seen, true, true, -1);
        const enum tw_restart_rung expected = i < TW_RESTART_RUNG - 1       ? TW_RESTART_PLAIN
                                              : i < 2 * TW_RESTART_RUNG - 1 ? TW_RESTART_SKIP
                                                                            : TW_RESTART_ANCHOR;
        assert_int_equal(seen.last.verdict.rung, expected);
    }
    assert_int_equal(seen.supervisor.deaths, 15 * TW_RESTART_RUNG);
    /* a waiting worker that leaves does not count as a death */
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.supervisor.deaths, 15 * TW_RESTART_RUNG);
    tw_supervisor_linked(&seen.supervisor, 0); /* a newer snapshot resets the ladder */
    tw_supervisor_ready(&seen.supervisor, false);
    tw_supervisor_stepped(&seen.supervisor, 1000);
    tw_supervisor_snapshot(&seen.supervisor, 5);
    tw_supervisor_unlinked(&seen.supervisor, -1);
    assert_int_equal(seen.last.verdict.rung, TW_RESTART_PLAIN);
    seen_close(&seen);
}

/* Such a worker may lack host memory, for example. Its theta and moments are still good. */
TEST(workers_of_somebody_else_that_never_stepped_keep_their_state) {
    struct seen seen;
    foreign_open(&seen);
    for (unsigned i = 0; i < 5 * TW_RESTART_RUNG; i++) {
        foreign_die(&seen, false, false, -1);
        assert_int_equal(seen.last.verdict.rung, TW_RESTART_PLAIN);
    }
    for (unsigned i = 0; i < 5 * TW_RESTART_RUNG; i++) {
        foreign_die(&seen, true, false, -1);
        assert_int_equal(seen.last.verdict.rung,
                         i < TW_RESTART_RUNG - 1 ? TW_RESTART_PLAIN : TW_RESTART_SKIP);
        if (i >= 2 * TW_RESTART_RUNG) assert_int_equal(seen.last.verdict.skip, TW_RESTART_RUNG);
    }
    foreign_die(&seen, true, true, -1);
    assert_int_equal(seen.last.verdict.rung, TW_RESTART_ANCHOR);
    foreign_die(&seen, true, false, -1); /* no newer snapshot */
    assert_int_equal(seen.last.verdict.rung, TW_RESTART_ANCHOR);
    seen_close(&seen);
}

TEST(worker_of_somebody_else_comes_back_once_a_minute_for_ever) {
    struct tw_restart restart;
    tw_restart_init(&restart, 7, true);
    for (unsigned i = 0; i < 100; i++) {
        tw_restart_started(&restart, SECOND_US);
        if (i % 2 == 1) tw_restart_ready(&restart, SECOND_US);
        if (i % 4 == 1) tw_restart_stepped(&restart, 1000, SECOND_US);
        const struct tw_restart_verdict verdict = tw_restart_died(&restart, 40);
        assert_int_not_equal(verdict.rung, TW_RESTART_GIVE_UP);
        if (i > 10) assert_true(verdict.pause_us >= TW_RESTART_PAUSE_MAX_US / 5 * 4);
    }
}
