/* Nodes on machines that their owners use: pauses because of the load, the hours or the user, and
 * memory that is given back. slow_machine.c makes time pass faster. It also replaces /proc/stat,
 * because other tests load this machine. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;
static bool has_passed;

static int open_nodes(uint32_t count) {
    has_passed = false;
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, count);
    return 0;
}

static int open_one(void **state) {
    return open_nodes(1);
}

static int open_two(void **state) {
    return open_nodes(2);
}

static int close_all(void **state) {
    cluster_close(&cluster, !has_passed);
    return 0;
}

static void end_one(void) {
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    has_passed = true;
}

/* ---- the machine -------------------------------------------------------------------------------
 */

static char stat_path[64], hurry_path[64];
static unsigned long long ticks_user, ticks_all;

/* Lets `tenths` tenths of a second pass, while other programs use `percent` % of the CPU time. The
 * tick counts are so large that subtracting the node's own CPU time makes no difference. */
static void others_use(unsigned percent, unsigned tenths) {
    for (unsigned i = 0; i < tenths; i++) {
        char text[160], path[80];
        ticks_user += 100 * percent;
        ticks_all += 10000;
        (void)snprintf(path, sizeof(path), "%s.new", stat_path);
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        (void)snprintf(text, sizeof(text), "cpu %llu 0 0 %llu 0 0 0 0 0 0\n", ticks_user,
                       ticks_all - ticks_user);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(rename(path, stat_path), 0);
        cluster_pause(0.1);
    }
}

/* Lets time pass with this load until the node's log contains `text`. */
static void others_use_until(unsigned percent, const char *text) {
    for (unsigned i = 0; strstr(cluster_log(&cluster, 0), text) == NULL; i++) {
        if (i > 1800) fail_msg("no %s", text);
        others_use(percent, 1);
    }
}

/* Lets time pass faster for the node, or not. It may only while the node waits for nothing: the
 * limits within which a worker must answer become as short. */
static void hurry(bool is_on) {
    if (!is_on) {
        assert_int_equal(unlink(hurry_path), 0);
        return;
    }
    FILE *const file = fopen(hurry_path, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

/* Starts the node with the test's file as /proc/stat, and a clock `rate` times as fast in a hurry.
 */
static void start_fast(uint32_t idx, const char *rate) {
    (void)snprintf(stat_path, sizeof(stat_path), "%s/stat", cluster.dir);
    (void)snprintf(hurry_path, sizeof(hurry_path), "%s/hurry", cluster.dir);
    others_use(0, 1);
    (void)setenv("LD_PRELOAD", getenv("TW_SLOW"), 1);
    (void)setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    (void)setenv("TW_CLOCK_RATE", rate, 1);
    (void)setenv("TW_CLOCK_FILE", hurry_path, 1);
    (void)setenv("TW_PROC_STAT", stat_path, 1);
    cluster_start(&cluster, idx, NULL);
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("TW_CLOCK_RATE");
    (void)unsetenv("TW_CLOCK_FILE");
    (void)unsetenv("TW_PROC_STAT");
}

static void configure(const char *worker) {
    char more[256];
    (void)snprintf(more, sizeof(more), "[worker]\n%s", worker);
    cluster_configure(&cluster, 0, &(struct cluster_options){.more = more});
}

static void assert_state(const char *wanted) {
    char text[96];
    cluster_string(&cluster, 0, "worker.state", text);
    assert_string_equal(text, wanted);
}

static double steps_of(uint32_t idx) {
    return cluster_number(&cluster, idx, "train.steps");
}

/* ---- the owner ---------------------------------------------------------------------------------
 */

static void node_yields_to_its_owner_and_goes_on_afterwards(void **state) {
    char text[96];
    configure("yield = on");
    start_fast(0, "10");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    hurry(true);
    others_use(10, 20); /* below the threshold */
    assert_int_equal(cluster_lines(&cluster, 0, "ev=paused"), 0);
    others_use_until(61, "ev=paused by=owner");
    assert_state("paused");
    /* A sample between two writes of the file shows a lower load. On a busy machine this happens
     * often. */
    unsigned tries = 0;
    do {
        others_use(61, 1);
        cluster_string(&cluster, 0, "sentence", text);
        if (tries++ > 600) fail_msg("sentence: %s", text);
    } while (strstr(text, "node0 is paused: the owner uses the computer (61 % of the CPU)") ==
             NULL);
    for (tries = 0; cluster_number(&cluster, 0, "worker.others_cpu_share") < 0.6; tries++) {
        others_use(61, 1);
        assert_true(tries < 600);
    }
    const double paused = steps_of(0);
    others_use(12, 20); /* above half of the threshold, for 20 s of the daemon's clock */
    assert_true(steps_of(0) == paused);
    /* A resume by the user does not end a pause for the owner. */
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_state("paused");
    others_use_until(1, "ev=resumed by=owner");
    hurry(false);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", paused + 10, 20));
    assert_true(cluster_number(&cluster, 0, "worker.restarts") == 0);
    end_one();
}

static void pause_of_the_user_outlives_that_for_the_owner(void **state) {
    configure("yield = 30%");
    start_fast(0, "10");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    hurry(true);
    others_use_until(90, "ev=paused by=owner");
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    others_use_until(0, "ev=still_paused ended=owner");
    hurry(false);
    assert_state("paused");
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_true(cluster_says(&cluster, 0, "ev=resumed by=user", 10));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps_of(0) + 10, 20));
    end_one();
}

/* If /proc/stat is missing or invalid, the node says so once, and trains. */
static void node_that_cannot_measure_trains(void **state) {
    configure("yield = on");
    start_fast(0, "10");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    hurry(true);
    others_use_until(90, "ev=paused by=owner");
    assert_int_equal(unlink(stat_path), 0);
    assert_true(cluster_says(&cluster, 0, "ev=yield_blind", 10));
    assert_true(cluster_says(&cluster, 0, "ev=resumed by=owner", 20));
    hurry(false);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=yield_blind"), 1);
    end_one();
}

/* A pause begins at once, even in a step that lasts an hour. */
static void pause_does_not_wait_for_a_long_step(void **state) {
    if (!cluster.is_stub) skip();
    const struct cluster_options options = {.stub = "--step-us 3600000000"};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=worker_ready", 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    assert_true(cluster_says(&cluster, 0, "ev=state step=0 paused=1", 20));
    end_one(); /* nor does the snapshot at the end wait for the step */
}

/* ---- hours -------------------------------------------------------------------------------------
 */

/* Starts the node with its clock set to this time of day. */
static void start_at(unsigned hour, unsigned minute, unsigned second) {
    char shift[32];
    const long wanted = (long)(hour * 3600 + minute * 60 + second);
    (void)snprintf(shift, sizeof(shift), "%ld", wanted - (long)(time(NULL) % 86400));
    (void)setenv("TZ", "UTC", 1);
    (void)setenv("LD_PRELOAD", getenv("TW_SHIFT"), 1);
    (void)setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    (void)setenv("TW_SHIFT_CLOCK_S", shift, 1);
    cluster_start(&cluster, 0, NULL);
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("TW_SHIFT_CLOCK_S");
}

static void training_rests_in_its_hours(void **state) {
    char text[96];
    configure("hours = 13:00-14:00 off");
    start_at(12, 59, 57);
    assert_true(cluster_says(&cluster, 0, "ev=paused by=hours", 20));
    assert_state("paused");
    cluster_string(&cluster, 0, "sentence", text);
    assert_string_equal(text, "node0 is paused: worker.hours forbids training until 14:00");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    /* It starts within the hours, without a worker until their end. */
    start_at(13, 59, 48);
    for (unsigned i = 0; cluster_lines(&cluster, 0, "ev=paused by=hours") < 2; i++) {
        assert_true(i < 100);
        cluster_pause(0.1);
    }
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(cluster_lines(&cluster, 0, "ev=worker_attached"),
                         1); /* the first start's */
        cluster_pause(0.1);
    }
    assert_state("paused");
    assert_true(cluster_says(&cluster, 0, "ev=resumed by=hours", 20));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps_of(0) + 5, 20));
    /* Changed hours apply while the node runs. */
    configure("hours = 0-24 off");
    assert_int_equal(cluster_post(&cluster, 0, "/v1/reload"), 200);
    assert_true(cluster_says(&cluster, 0, "taken over: worker.hours", 10));
    assert_state("paused");
    configure("yield = off");
    assert_int_equal(cluster_post(&cluster, 0, "/v1/reload"), 200);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps_of(0) + 5, 20));
    end_one();
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static bool is_there(pid_t pid) {
    return kill(pid, 0) == 0;
}

static int nice_of(pid_t pid) {
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

static void worker_ends_in_a_long_pause_and_goes_on_where_it_was(void **state) {
    char line[64];
    configure("memory = 1GB\nnice = 7");
    start_fast(0, "30");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    const pid_t pid = (pid_t)cluster_number(&cluster, 0, "worker.pid");
    const double memory = cluster_number(&cluster, 0, "worker.memory_bytes");
    assert_true(is_there(pid));
    assert_int_equal(nice_of(pid), 7);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    hurry(true);
    assert_true(cluster_says(&cluster, 0, "ev=memory_given_back", 20));
    hurry(false);
    assert_false(is_there(pid)); /* all memory of the worker is free */
    assert_true(cluster_number(&cluster, 0, "worker.restarts") == 0);
    assert_state("paused");
    char text[96];
    cluster_string(&cluster, 0, "sentence", text);
    assert_string_equal(text,
                        "node0 is paused; `thinwire resume` continues; its memory is given back");
    cluster_string(&cluster, 0, "network.caps.links_rest", text);
    assert_string_equal(text, "pause");
    const double step = steps_of(0);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    (void)snprintf(line, sizeof(line), "start=snapshot step=%.0f ", step);
    assert_true(cluster_says(&cluster, 0, line, 20)); /* no step is lost */
    assert_true(cluster_reaches(&cluster, 0, "train.steps", step + 10, 20));
    /* The worker's limits apply to the next worker too. */
    const pid_t next = (pid_t)cluster_number(&cluster, 0, "worker.pid");
    assert_int_not_equal(next, pid);
    assert_int_equal(nice_of(next), 7);
    assert_true(cluster_number(&cluster, 0, "worker.memory_bytes") == memory);
    assert_true(cluster_number(&cluster, 0, "worker.restarts") == 0);
    assert_null(strstr(cluster_log(&cluster, 0), "ev=worker_gone"));
    end_one();
}

/* The daemon may end during a pause in which the worker's memory is given back. No step is lost. */
static void memory_that_is_given_back_does_not_hold_up_the_end(void **state) {
    start_fast(0, "30");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    hurry(true);
    assert_true(cluster_says(&cluster, 0, "ev=memory_given_back", 20));
    hurry(false);
    const double step = steps_of(0);
    char line[64];
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL);
    (void)snprintf(line, sizeof(line), "start=snapshot step=%.0f ", step);
    assert_true(cluster_says(&cluster, 0, line, 20));
    end_one();
}

/* Starts a worker as another program, such as systemd, would. */
static pid_t worker_start(const char *option) {
    char program[96], path[96];
    (void)snprintf(program, sizeof(program), "%s/n0/worker", cluster.dir);
    (void)snprintf(path, sizeof(path), "%s/n0/worker.sock", cluster.dir);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execl(program, program, "--socket", path, option, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void worker_that_comes_back_is_welcomed_after_the_pause(void **state) {
    char line[64];
    int status = -1;
    const struct cluster_options options = {.more = "spawn_worker = off"};
    cluster_configure(&cluster, 0, &options);
    start_fast(0, "30");
    pid_t pid = worker_start("--comes-back");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    hurry(true);
    assert_int_equal(waitpid(pid, &status, 0), pid); /* returns, or CTest's timeout ends the test */
    assert_int_equal(status, 0);
    assert_true(cluster_says(&cluster, 0, "ev=memory_given_back", 20));
    hurry(false);
    const double step = steps_of(0);
    pid = worker_start("--comes-back"); /* it loads no model while it waits */
    cluster_pause(1);
    assert_state("paused");
    assert_int_equal(cluster_lines(&cluster, 0, "ev=worker_ready"), 1);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    (void)snprintf(line, sizeof(line), "start=snapshot step=%.0f ", step);
    assert_true(cluster_says(&cluster, 0, line, 20));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", step + 10, 20));
    assert_true(cluster_number(&cluster, 0, "worker.restarts") == 0);
    end_one();
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* In a pause the daemon ends a worker of another program only if it was started with --comes-back.
 * Else perhaps nobody would start it again, or its state would be lost. */
static void worker_of_somebody_else_is_not_ended(void **state) {
    const struct cluster_options options = {.more = "spawn_worker = off"};
    cluster_configure(&cluster, 0, &options);
    start_fast(0, "100");
    const pid_t pid = worker_start(NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    hurry(true);
    while (cluster_number(&cluster, 0, "worker.pause.age_s") < 300) cluster_pause(0.1);
    hurry(false);
    assert_true(cluster_number(&cluster, 0, "worker.pid") == (double)pid);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=memory_given_back"), 0);
    const double step = steps_of(0);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", step + 10, 20));
    end_one();
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* ---- the group ---------------------------------------------------------------------------------
 */

/* The group continues while a node is paused, with or without its worker, and merges with it
 * afterwards. */
static void paused_node_does_not_hold_up_its_group(void **state) {
    start_fast(0, "3");
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 60));
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 60));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    hurry(true);
    assert_true(cluster_says(&cluster, 0, "ev=links_rest why=pause", 60));
    assert_true(cluster_says(&cluster, 0, "ev=memory_given_back", 20));
    hurry(false);
    assert_true(cluster_says(&cluster, 1, "its training is paused", 20));
    const double steps = steps_of(1);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", steps + 200, 60));
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 60));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_true(cluster_says(&cluster, 0, "ev=links_resume", 20));
    const double own = steps_of(0);
    assert_true(cluster_reaches(&cluster, 0, "sync.alive_peers", 1, 90));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", own + 100, 60));
    const double mixed = cluster_number(&cluster, 1, "sync.rounds_contributed");
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 90));
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_contributed", mixed + 3, 60));
    assert_true(cluster_digests(&cluster, 0, 1) > 0);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
    end_one();
}

int main(int argc, char **argv) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, open_one, close_all)
    const struct CMUnitTest tests[] = {
        ROW(node_yields_to_its_owner_and_goes_on_afterwards),
        ROW(pause_of_the_user_outlives_that_for_the_owner),
        ROW(node_that_cannot_measure_trains),
        ROW(pause_does_not_wait_for_a_long_step),
        ROW(training_rests_in_its_hours),
        ROW(worker_ends_in_a_long_pause_and_goes_on_where_it_was),
        ROW(memory_that_is_given_back_does_not_hold_up_the_end),
        ROW(worker_that_comes_back_is_welcomed_after_the_pause),
        ROW(worker_of_somebody_else_is_not_ended),
    };
#undef ROW
    /* This test takes a minute: with a faster clock the peers would seem silent. */
    const struct CMUnitTest slow[] = {
        cmocka_unit_test_setup_teardown(paused_node_does_not_hold_up_its_group, open_two,
                                        close_all),
    };
    if (argc > 1 && strcmp(argv[1], "slow") == 0) return cmocka_run_group_tests(slow, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
