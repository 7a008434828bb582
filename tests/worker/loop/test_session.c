/* The worker as a process. Usage: test_session PATH-OF-WORKER KIND, where KIND is stub or engine.
 */
#include "tests/test.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/worker/loop/fake_daemon.h"

enum { PATIENCE_MS = 60000 };

static const char *worker_path;
static bool is_engine;
static bool comes_back;             /* the worker gets --comes-back */
static const char *device_fails_at; /* the stub's option --device-fails-at, or NULL */
static struct fake_daemon dae;
static char folder[] = "/tmp/thinwire-test-XXXXXX";
static char socket_path[64], text_path[64];
static int listener = -1;
static pid_t worker = -1;

static void text_write(void) {
    FILE *text = fopen(text_path, "w");
    assert_non_null(text);
    for (int i = 0; i < 400; i++) (void)fprintf(text, "line %d of a text that repeats itself\n", i);
    assert_int_equal(fclose(text), 0);
}

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    (void)close(dae.worker_fd);
    (void)snprintf(folder, sizeof(folder), "/tmp/thinwire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(socket_path, sizeof(socket_path), "%s/worker.sock", folder);
    (void)snprintf(text_path, sizeof(text_path), "%s/text", folder);
    (void)snprintf(dae.welcome.data_path, sizeof(dae.welcome.data_path), "%s", text_path);
    text_write();

    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_return_code(listener, errno);
    assert_return_code(bind(listener, (const struct sockaddr *)&address, sizeof(address)), errno);
    assert_return_code(listen(listener, 1), errno);
    return 0;
}

static int close_all(void **state) {
    if (worker > 0) {
        (void)kill(worker, SIGKILL);
        (void)waitpid(worker, NULL, 0);
        worker = -1;
    }
    (void)close(listener);
    (void)unlink(socket_path);
    (void)unlink(text_path);
    (void)rmdir(folder);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

static void worker_spawn(void) {
    worker = fork();
    assert_return_code(worker, errno);
    if (worker == 0) {
        const char *const option = comes_back                ? "--comes-back"
                                   : device_fails_at == NULL ? NULL
                                                             : "--device-fails-at";
        (void)execl(worker_path, worker_path, "--socket", socket_path, "--threads", "1", option,
                    device_fails_at, (char *)NULL);
        _exit(127);
    }
}

static int worker_end(void) {
    int status = 0;
    assert_return_code(waitpid(worker, &status, 0), errno);
    worker = -1;
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void accept_worker(void) {
    struct pollfd wanted = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&wanted, 1, PATIENCE_MS), 1);
    if (dae.fd >= 0) (void)close(dae.fd);
    dae.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_return_code(dae.fd, errno);
}

/* Waits for a packet of this kind. */
static void await(uint32_t kind, struct tw_worker_msg *msg) {
    while (!fake_daemon_recv(&dae, kind, msg)) {
        struct pollfd wanted = {.fd = dae.fd, .events = POLLIN};
        if (poll(&wanted, 1, PATIENCE_MS) != 1) fail_msg("no packet of kind %u came", kind);
    }
}

static void await_steps(uint64_t step) {
    struct tw_worker_msg msg;
    do await(TW_WMSG_STEP, &msg);
    while (msg.u.step.step < step);
}

FACT(killed_worker_comes_back_from_its_snapshot) {
    struct tw_worker_msg msg;
    struct tw_snapshot_slot meta;
    dae.welcome.snapshot_steps = 5;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    assert_int_equal(msg.u.ready.start, TW_START_FRESH);
    await_steps(23);
    assert_return_code(kill(worker, SIGKILL), errno);
    (void)waitpid(worker, NULL, 0);
    const uint64_t step = atomic_load(&tw_shm_control(&dae.shm)->step);
    const uint64_t heartbeat_us = atomic_load(&tw_shm_control(&dae.shm)->heartbeat_us);
    assert_true(heartbeat_us > 0);

    const int slot = tw_shm_snapshot_newest(&dae.shm, &meta);
    assert_true(slot >= 0);
    assert_true(meta.step + 6 > step);
    dae.welcome.start = TW_START_SNAPSHOT;
    dae.welcome.slot = (uint32_t)slot;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    assert_int_equal(msg.u.ready.start, TW_START_SNAPSHOT);
    assert_int_equal(msg.u.ready.step, meta.step);
    await_steps(meta.step + 3);
}

/* The daemon restarts a worker with this status without limit (supervisor.c). */
FACT(failed_device_has_a_status_of_its_own) {
    struct tw_worker_msg msg;
    if (is_engine) skip();
    device_fails_at = "6";
    dae.welcome.snapshot_steps = 1;
    worker_spawn();
    device_fails_at = NULL;
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await(TW_WMSG_FATAL, &msg);
    assert_int_equal(msg.u.fatal.status, TW_DEVICE);
    assert_non_null(strstr(msg.u.fatal.text, "device fell"));
    assert_int_equal(worker_end(), TW_EXIT_DEVICE);
}

FACT(worker_ends_when_the_daemon_goes) {
    struct tw_worker_msg msg;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await_steps(2);
    (void)close(dae.fd);
    dae.fd = -1;
    assert_int_equal(worker_end(), TW_EXIT_OK);
}

/* Another daemon comes, with other memory and without a checkpoint. */
static void daemon_replace(uint64_t history) {
    const struct tw_run run = dae.run;
    const uint64_t seed = dae.welcome.data_seed;
    fake_daemon_close(&dae);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    (void)close(dae.worker_fd);
    dae.welcome.data_seed = seed;
    dae.welcome.history = history;
    (void)snprintf(dae.welcome.data_path, sizeof(dae.welcome.data_path), "%s", text_path);
}

FACT(worker_that_comes_back_outlives_its_daemon) {
    struct tw_worker_msg msg;
    comes_back = true;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await_steps(10);
    for (uint64_t daemons = 0; daemons < 3; daemons++) {
        const uint64_t step = dae.last_step.step;
        daemon_replace(0);
        accept_worker();
        fake_daemon_welcome(&dae);
        await(TW_WMSG_READY, &msg);
        assert_int_equal(msg.u.ready.start, TW_START_KEPT);
        assert_true(msg.u.ready.step >= step);
        await_steps(msg.u.ready.step + 3);
    }
    daemon_replace(1); /* this one went back to an earlier state */
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    assert_int_equal(msg.u.ready.start, TW_START_FRESH);
    assert_int_equal(msg.u.ready.step, 0);
    await_steps(3);
    /* A daemon with another configuration needs another process. */
    daemon_replace(1);
    dae.welcome.data_seed++;
    accept_worker();
    fake_daemon_welcome(&dae);
    assert_int_equal(worker_end(), TW_EXIT_OK);
    comes_back = false;
}

FACT(worker_that_is_told_to_end_says_that_it_leaves) {
    struct tw_worker_msg msg;
    comes_back = true;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await_steps(2);
    assert_return_code(kill(worker, SIGTERM), errno);
    await(TW_WMSG_FATAL, &msg);
    assert_int_equal(msg.u.fatal.status, TW_OK);
    assert_int_equal(worker_end(), TW_EXIT_OK);
    comes_back = false;
}

/* It would be started again and again otherwise. */
FACT(worker_of_a_service_ends_without_its_daemon) {
    if (is_engine) skip();
    comes_back = true;
    (void)close(listener);
    worker_spawn();
    assert_int_equal(worker_end(), TW_EXIT_NO_DAEMON);
    listener = dup(0);
    comes_back = false;
}

FACT(refused_worker_says_so) {
    worker_spawn();
    accept_worker();
    struct tw_worker_msg msg = {.kind = TW_WMSG_FATAL};
    (void)snprintf(msg.u.fatal.text, sizeof(msg.u.fatal.text), "another worker is attached");
    fake_daemon_send(&dae, &msg);
    assert_int_equal(worker_end(), TW_EXIT_UNREACHABLE);
}

FACT(sigterm_takes_a_snapshot) {
    struct tw_worker_msg msg;
    struct tw_snapshot_slot meta;
    dae.welcome.snapshot_steps = 1000000;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await_steps(3);
    assert_return_code(kill(worker, SIGTERM), errno);
    assert_int_equal(worker_end(), TW_EXIT_OK);
    assert_true(tw_shm_snapshot_newest(&dae.shm, &meta) >= 0);
    assert_true(meta.step >= 3);
    assert_int_equal(meta.step, atomic_load(&tw_shm_control(&dae.shm)->step));
}

FACT(worker_waits_for_its_daemon) {
    char away[80];
    (void)snprintf(away, sizeof(away), "%s/later.sock", folder);
    assert_return_code(rename(socket_path, away), errno);
    worker_spawn();
    struct pollfd wanted = {.fd = listener, .events = POLLIN};
    /* the worker cannot connect: the path does not exist */
    assert_int_equal(poll(&wanted, 1, 300), 0);
    assert_return_code(rename(away, socket_path), errno);
    struct tw_worker_msg msg;
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
}

FACT(missing_text_is_named) {
    if (!is_engine) skip();
    struct tw_worker_msg msg;
    assert_return_code(unlink(text_path), errno);
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_FATAL, &msg);
    assert_int_equal(msg.u.fatal.status, TW_DATA);
    assert_non_null(strstr(msg.u.fatal.text, text_path));
    assert_int_equal(worker_end(), TW_EXIT_DATA);
}

FACT(other_text_is_refused) {
    if (!is_engine) skip();
    struct tw_worker_msg msg;
    memset(dae.welcome.run.data.sha256.bytes, 7, 32);
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_FATAL, &msg);
    assert_int_equal(msg.u.fatal.status, TW_DATA);
    assert_int_equal(worker_end(), TW_EXIT_DATA);
}

FACT(engine_learns_and_evaluates) {
    if (!is_engine) skip();
    struct tw_worker_msg msg;
    dae.welcome.eval_steps = 60;
    dae.welcome.stop_step = 60;
    dae.welcome.sample_bytes = 20;
    worker_spawn();
    accept_worker();
    fake_daemon_welcome(&dae);
    await(TW_WMSG_READY, &msg);
    await(TW_WMSG_EVALUATED, &msg);
    const float before = msg.u.evaluated.loss_live;
    assert_true(before > 5.3f && before < 5.8f); /* ln 256 = 5.55 */
    assert_true(msg.u.evaluated.loss_anchor == before);
    await(TW_WMSG_SAMPLE, &msg);
    assert_int_equal(msg.u.sample.step, 0);
    assert_in_range(strlen(msg.u.sample.text), 20, 23);
    await(TW_WMSG_EVALUATED, &msg);
    assert_int_equal(msg.u.evaluated.step, 6); /* the additional one, soon after the start */
    await(TW_WMSG_EVALUATED, &msg);
    assert_int_equal(msg.u.evaluated.step, 60);
    assert_true(msg.u.evaluated.loss_live < before - 0.5f);
    assert_true(msg.u.evaluated.loss_anchor == before); /* the anchor did not change */
    assert_true(msg.u.evaluated.distance > 0);
    msg.kind = TW_WMSG_EXIT;
    fake_daemon_send(&dae, &msg);
    assert_int_equal(worker_end(), TW_EXIT_OK);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    worker_path = argv[1];
    is_engine = strcmp(argv[2], "engine") == 0;
    return test_run(NULL, NULL);
}
