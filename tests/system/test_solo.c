/* One daemon alone: it trains, shows its status, survives the death of its worker, and ends. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
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

/* Connects to the worker's socket as a second worker, which is refused. */
static void second_worker_comes(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/n0/worker.sock", cluster.dir);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    (void)close(fd);
}

FACT(node_without_peers_trains_and_says_solo) {
    char text[96];
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 30, 20));
    cluster_string(&cluster, 0, "state", text);
    assert_string_equal(text, "solo");
    for (unsigned i = 0; i < 3; i++) second_worker_comes();
    assert_true(cluster_says(&cluster, 0, "ev=worker_refused", 5));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=worker_refused"), 1);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

/* The time left follows from the speed that the same screen shows. */
FACT(node_alone_has_the_speed_of_its_run) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "run.tokens_per_s", 1, 20));
    json_t *const status = cluster_get(&cluster, 0, "/v1/status");
    const json_t *const run = json_object_get(status, "run"), *const train =
                                                                  json_object_get(status, "train");
    const double speed = json_number_value(json_object_get(run, "tokens_per_s"));
    assert_true(speed >= 1);
    assert_true(speed == json_number_value(json_object_get(train, "tokens_per_s")));
    json_decref(status);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

static void pid_kill(double pid) {
    assert_true(pid > 1);
    assert_int_equal(kill((pid_t)pid, SIGKILL), 0);
}

static bool process_is_zombie(pid_t pid) {
    char path[64], line[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    const bool is_read = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    const char *after_name = strrchr(line, ')');
    return is_read && after_name != NULL && strncmp(after_name, ") Z", 3) == 0;
}

FACT(killed_worker_goes_on_from_its_snapshot) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 50, 20));
    pid_kill(cluster_number(&cluster, 0, "worker.pid"));
    assert_true(cluster_reaches(&cluster, 0, "worker.restarts", 1, 10));
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 80, 20));
    /* A snapshot is taken every 5 steps, so at most 5 steps may be repeated. */
    const char *ready = strstr(cluster_log(&cluster, 0), "start=snapshot");
    unsigned long long step = 0;
    assert_int_equal(sscanf(ready, "start=snapshot step=%llu", &step), 1);
    assert_true(step >= 45);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

/* A daemon that was not scheduled for a while sees the worker's death and the end of the link in
 * one turn of its loop. */
FACT(death_is_judged_once_the_link_is_read_to_its_end) {
    char text[96];
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 30, 20));
    const double pid = cluster_number(&cluster, 0, "worker.pid");
    assert_int_equal(kill(cluster.nodes[0].pid, SIGSTOP), 0);
    pid_kill(pid);
    while (!process_is_zombie((pid_t)pid)) cluster_pause(0.01);
    assert_int_equal(kill(cluster.nodes[0].pid, SIGCONT), 0);
    assert_true(cluster_reaches(&cluster, 0, "worker.restarts", 1, 10));
    cluster_string(&cluster, 0, "worker.error", text);
    assert_string_equal(text, "killed by signal 9 (Killed)");
    const char *gone = strstr(cluster_log(&cluster, 0), "ev=worker_gone");
    assert_non_null(gone);
    assert_non_null(strstr(gone, "ev=worker_died"));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(worker_that_keeps_dying_is_given_up_and_the_daemon_stays) {
    const struct cluster_options options = {.stub = "--step-us 500 --die-at-update 12"};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_true(cluster_reaches(&cluster, 0, "worker.restarts", 3, 20));
    char text[96];
    cluster_string(&cluster, 0, "state", text);
    assert_string_equal(text, "solo");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(sigterm_saves_and_the_next_start_goes_on) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 40, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    const char *saved = strstr(cluster_log(&cluster, 0), "ev=checkpoint generation=1 step=");
    assert_non_null(saved);
    unsigned long long step = 0;
    assert_int_equal(sscanf(saved, "ev=checkpoint generation=1 step=%llu", &step), 1);
    assert_true(step >= 40);
    cluster_start(&cluster, 0, NULL);
    char line[96];
    (void)snprintf(line, sizeof(line), "start=snapshot step=%llu", step);
    assert_true(cluster_says(&cluster, 0, line, 10));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", (double)step + 20, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

/* The daemon runs in the foreground of a terminal, and the terminal's window is closed. */
FACT(closed_terminal_saves_and_leaves) {
    struct cluster_node *node = &cluster.nodes[0];
    int master = -1;
    node->pid = forkpty(&master, NULL, NULL, NULL);
    assert_true(node->pid >= 0);
    if (node->pid == 0) {
        const int fd = open(node->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execl(cluster.daemon_path, cluster.daemon_path, "--config", node->config,
                    (char *)NULL);
        _exit(127);
    }
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    (void)close(master);
    assert_int_equal(cluster_wait_end(&cluster, 0, 20), TW_EXIT_OK);
    assert_true(cluster_says(&cluster, 0, "ev=checkpoint generation=1", 1));
}

FACT(hangup_without_a_terminal_is_no_end) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    assert_int_equal(kill(cluster.nodes[0].pid, SIGHUP), 0);
    const double steps = cluster_number(&cluster, 0, "train.steps");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps + 20, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(checkpoint_verb_answers_when_it_is_on_disk) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 20, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    assert_true(cluster_number(&cluster, 0, "checkpoint.steps") >= 20);
    assert_int_equal(cluster_end(&cluster, 0, SIGKILL, 20), 1000 + SIGKILL);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(leave_verb_ends_the_daemon) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/leave"), 200);
    assert_int_equal(cluster_wait_end(&cluster, 0, 20), TW_EXIT_OK);
}

FACT(pause_stops_the_steps_and_resume_goes_on) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    cluster_pause(0.3);
    const double paused = cluster_number(&cluster, 0, "train.steps");
    cluster_pause(0.3);
    assert_true(cluster_number(&cluster, 0, "train.steps") == paused);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", paused + 10, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(unlinked_node_stops_at_its_step) {
    const struct cluster_options options = {.is_unlinked = true, .more = "stop_step = 60"};
    char text[96];
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 60, 20));
    assert_true(cluster_says(&cluster, 0, "stop_step is reached", 10));
    cluster_pause(0.2);
    assert_true(cluster_number(&cluster, 0, "train.steps") == 60);
    cluster_string(&cluster, 0, "worker.state", text);
    assert_string_equal(text, "finished");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL); /* still finished after a restart */
    assert_true(cluster_says(&cluster, 0, "start=snapshot step=60", 10));
    cluster_pause(0.2);
    cluster_string(&cluster, 0, "worker.state", text);
    assert_string_equal(text, "finished");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

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

FACT(worker_of_somebody_else_may_come_and_go) {
    const struct cluster_options options = {.more = "spawn_worker = off"};
    char text[96];
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 1, 20));
    cluster_string(&cluster, 0, "worker.state", text);
    assert_string_equal(text, "absent");
    for (unsigned life = 1; life <= 2; life++) {
        const pid_t pid = worker_start();
        assert_true(cluster_reaches(&cluster, 0, "train.steps", 20 * life, 20));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(cluster_says(&cluster, 0, "ev=worker_gone", 5));
    }
    assert_non_null(strstr(cluster_log(&cluster, 0), "start=snapshot"));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

/* After repeated deaths batches are skipped, as with a worker that the daemon starts itself. */
FACT(worker_of_somebody_else_that_keeps_dying_is_welcomed_late) {
    const struct cluster_options options = {.more = "spawn_worker = off",
                                            .stub = "--step-us 500 --die-at-update 1"};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    for (unsigned life = 1; life <= 3; life++) {
        const pid_t pid = worker_start();
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(cluster_reaches(&cluster, 0, "worker.restarts", life, 10));
    }
    assert_true(cluster_says(&cluster, 0, "skip_batches=1", 5));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(second_signal_ends_at_once) {
    /* A worker stopped with SIGSTOP answers neither the request for a snapshot nor the request to
     * end. */
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 5, 20));
    const pid_t worker = (pid_t)cluster_number(&cluster, 0, "worker.pid");
    assert_int_equal(kill(worker, SIGSTOP), 0);
    assert_int_equal(kill(cluster.nodes[0].pid, SIGTERM), 0);
    assert_true(cluster_says(&cluster, 0, "ev=leaving", 5));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 3), 128 + SIGTERM);
    (void)kill(worker, SIGKILL);
}
