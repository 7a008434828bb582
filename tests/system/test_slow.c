/* One daemon on a slow machine: a slow disk, threads that wait for ever, and a worker that hangs.
 * The daemon's time limits are minutes, so slow_machine.c makes time pass faster. */
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int open_one(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 1);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_one, close_all, name)

/* Starts the node on a slow machine. `settings` lists "NAME=VALUE" of slow_machine.c, with NULL
 * last. */
static void start_slowly(char *const settings[]) {
    (void)setenv("LD_PRELOAD", getenv("TW_SLOW"), 1);
    (void)setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    for (unsigned i = 0; settings[i] != NULL; i++) assert_int_equal(putenv(settings[i]), 0);
    cluster_start(&cluster, 0, NULL);
    for (unsigned i = 0; settings[i] != NULL; i++) {
        char name[32] = "";
        assert_int_equal(sscanf(settings[i], "%31[^=]", name), 1);
        (void)unsetenv(name);
    }
    (void)unsetenv("LD_PRELOAD");
}

/* ---- the service manager ------------------------------------------------------------------- */

static int manager_open(char *setting, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 20};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", cluster.dir);
    (void)snprintf(setting, size, "NOTIFY_SOCKET=%s", address.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    return fd;
}

/* Reads the next message to the service manager, which must contain the text. */
static void manager_hears(int fd, const char *text) {
    char heard[512];
    const ssize_t size = recv(fd, heard, sizeof(heard) - 1, 0);
    assert_true(size > 0);
    heard[size] = '\0';
    if (strstr(heard, text) == NULL) fail_msg("heard \"%s\", not %s", heard, text);
}

/* ---- the disk ------------------------------------------------------------------------------ */

/* Writing and reading the state take longer than the daemon's time limit of 30 s (life.c). */
FACT(state_on_a_slow_disk_is_saved_at_stop_and_loaded) {
    char manager[96];
    char clock[] = "TW_CLOCK_RATE=10", disk[] = "TW_DISK_US=90000";
    const int fd = manager_open(manager, sizeof(manager));
    char *const settings[] = {clock, disk, manager, NULL};
    start_slowly(settings);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 40), TW_EXIT_OK);
    assert_non_null(strstr(cluster_log(&cluster, 0), "ev=checkpoint generation=1"));
    char heard[4096];
    bool is_extended = false;
    for (ssize_t size; (size = recv(fd, heard, sizeof(heard) - 1, MSG_DONTWAIT)) > 0;) {
        heard[size] = '\0';
        is_extended |= strstr(heard, "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=leaving") != NULL;
    }
    assert_true(is_extended);
    /* Loading reports its progress. A signal ends the process even while it loads. */
    start_slowly(settings);
    manager_hears(fd, "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=loading");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 1), 1000 + SIGTERM);
    (void)close(fd);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

/* ---- threads ------------------------------------------------------------------------------- */

/* As many threads hang as libuv's pool has by default, for example in DNS lookups. Votes are stored
 * nevertheless, and the daemon's end does not wait for these threads. */
FACT(threads_that_hang_hold_up_neither_votes_nor_the_end) {
    char clock[] = "TW_CLOCK_RATE=10", held[] = "TW_HELD_THREADS=4";
    char *const settings[] = {clock, held, NULL};
    start_slowly(settings);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 1, 20));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_non_null(strstr(cluster_log(&cluster, 0), "ev=checkpoint generation=1"));
    assert_non_null(strstr(cluster_log(&cluster, 0), "a thread was still waiting"));
}

/* ---- workers that hang --------------------------------------------------------------------- */

/* Starts a worker as another program, such as systemd, would. */
static pid_t worker_start(void) {
    char program[96], path[96];
    (void)snprintf(program, sizeof(program), "%s/n0/worker", cluster.dir);
    (void)snprintf(path, sizeof(path), "%s/n0/worker.sock", cluster.dir);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execl(program, program, "--socket", path, (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Ends a worker that the daemon has cut off. It has got no signal from the daemon. */
static void end_unharmed(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

FACT(worker_of_somebody_else_that_hangs_is_cut_off) {
    const struct cluster_options options = {.more = "spawn_worker = off"};
    char clock[] = "TW_CLOCK_RATE=10";
    char *const settings[] = {clock, NULL};
    cluster_configure(&cluster, 0, &options);
    start_slowly(settings);
    const pid_t pid = worker_start();
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    const bool is_noticed = cluster_says(&cluster, 0, "text=\"cut off for hanging\"", 20);
    end_unharmed(pid);
    assert_true(is_noticed);
    assert_true(cluster_number(&cluster, 0, "worker.restarts") == 1);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(worker_that_hangs_does_not_cost_the_checkpoint) {
    char clock[] = "TW_CLOCK_RATE=10";
    char *const settings[] = {clock, NULL};
    for (unsigned is_foreign = 0; is_foreign < 2; is_foreign++) {
        const struct cluster_options options = {.more =
                                                    is_foreign != 0 ? "spawn_worker = off" : NULL};
        cluster_configure(&cluster, 0, &options);
        start_slowly(settings);
        const pid_t own = is_foreign != 0 ? worker_start() : 0;
        assert_true(cluster_reaches(&cluster, 0, "worker.snapshot_steps", 5, 20));
        const pid_t pid = (pid_t)cluster_number(&cluster, 0, "worker.pid");
        assert_int_equal(kill(pid, SIGSTOP), 0);
        assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 40), TW_EXIT_OK);
        assert_non_null(strstr(cluster_log(&cluster, 0), is_foreign != 0
                                                             ? "ev=checkpoint generation=2"
                                                             : "ev=checkpoint generation=1"));
        if (own != 0) end_unharmed(own);
        assert_int_equal(kill(pid, 0), -1);
    }
}
