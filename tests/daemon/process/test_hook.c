/* test_hook.c - commands that end, fail, hang, ignore their input or leave processes behind. */
#include "daemon/process/hook.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

static char folder[] = "/tmp/tw_hook_XXXXXX";
static uv_loop_t loop;
static struct tw_hook hook;
static struct tw_hook_end end;
static unsigned ends;
static struct tw_error err;
static const char *const NONE[] = {NULL};

static void on_ended(void *user, const struct tw_hook_end *ended) {
    end = *ended;
    ends++;
}

static char output[1000];
static size_t output_capacity; /* 0: the output is not captured */

static void init(const char *command, uint64_t timeout_us) {
    const struct tw_hook_config config = {.loop = &loop,
                                          .command = command,
                                          .timeout_us = timeout_us,
                                          .output = output_capacity > 0 ? output : NULL,
                                          .output_capacity = output_capacity,
                                          .ended = on_ended};
    assert_int_equal(uv_loop_init(&loop), 0);
    tw_hook_init(&hook, &config);
    ends = 0;
}

/* Runs the command once, and closes everything. */
static void run_once(const char *command, const char *const *values, uint64_t timeout_us) {
    init(command, timeout_us);
    assert_int_equal(tw_hook_run(&hook, "{\"a\":1}\n", 8, values, &err), TW_OK);
    assert_false(tw_hook_is_idle(&hook));
    while (ends == 0) (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(tw_hook_is_idle(&hook));
    tw_hook_close(&hook);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(ends, 1);
}

static const char *read_text(const char *name) {
    static char text[2048];
    FILE *const file = fopen(name, "r");
    if (file == NULL) return "-";
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

TEST(it_reads_the_text_and_its_values) {
    const char *const values[] = {"THINWIRE_STATE=raised", "THINWIRE_TEXT=a \"b\" $(c) 'd'", NULL};
    run_once("cat /dev/stdin >text; printf '%s %s' \"$THINWIRE_STATE\" \"$THINWIRE_TEXT\" >values",
             values, 5000000);
    assert_int_equal(end.exit_status, 0);
    assert_string_equal(read_text("text"), "{\"a\":1}\n");
    assert_string_equal(read_text("values"), "raised a \"b\" $(c) 'd'");
}

TEST(it_gets_nothing_of_the_daemon) {
    assert_int_equal(setenv("NOTIFY_SOCKET", "/run/secret", 1), 0);
    const int fd = open("key", O_CREAT | O_RDONLY | O_CLOEXEC, 0600);
    run_once("env | cut -d= -f1 | grep -vE '^(PATH|HOME|LANG|LC_ALL|TZ|TMPDIR|PWD|SHLVL|_)$' >left;"
             " ls -l /proc/self/fd >fds",
             NONE, 5000000);
    (void)close(fd);
    assert_string_equal(read_text("left"), "");
    assert_null(strstr(read_text("fds"), "/key"));
}

TEST(a_failure_says_its_status_and_first_line) {
    run_once("echo >/dev/stderr; echo 'no route' >/dev/stderr; echo more >&2; exit 3", NONE,
             5000000);
    assert_int_equal(end.exit_status, 3);
    assert_string_equal(end.text, "no route");
    run_once("/no/such/program", NONE, 5000000);
    assert_int_equal(end.exit_status, 127);
    assert_non_null(strstr(end.text, "not found"));
    run_once("head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1", NONE, 5000000);
    assert_int_equal(strlen(end.text), TW_HOOK_TEXT_BYTES - 1);
}

TEST(a_command_that_hangs_is_killed_with_its_children) {
    run_once("sleep 1000 & echo $! >child; trap '' TERM INT HUP; wait", NONE, 300000);
    assert_true(end.is_late);
    assert_int_equal(end.signal, 9);
    const int child = atoi(read_text("child"));
    assert_true(child > 1);
    /* The child is killed at the same moment, but the kernel may take a moment to reap it. */
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", child);
    for (unsigned i = 0; i < 500 && read_text(path)[0] != '-' && read_text(path)[0] != '\0'; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    assert_null(strstr(read_text(path), "sleep"));
}

TEST(processes_left_behind_are_ended) {
    run_once("sleep 1000 & echo $! >child", NONE, 60000000);
    assert_int_equal(end.exit_status, 0);
    assert_false(end.is_late);
}

TEST(its_output_is_kept_up_to_the_bound) {
    output_capacity = sizeof(output);
    run_once("echo loss 1.5; echo 'a reason' >&2; printf 'last'; exit 2", NONE, 5000000);
    assert_int_equal(end.output_bytes, 13);
    assert_memory_equal(output, "loss 1.5\nlast", 13);
    assert_false(end.is_output_cut);
    assert_string_equal(end.text, "a reason");
    run_once("head -c 1000 /dev/zero | tr '\\0' x", NONE, 5000000);
    assert_int_equal(end.output_bytes, 1000);
    assert_false(end.is_output_cut);
    run_once("head -c 300000 /dev/zero | tr '\\0' y", NONE, 5000000);
    assert_int_equal(end.exit_status, 0); /* the command could write all of its output */
    assert_int_equal(end.output_bytes, 1000);
    assert_true(end.is_output_cut);
    for (unsigned i = 0; i < sizeof(output); i++) assert_int_equal(output[i], 'y');
    run_once("true", NONE, 5000000);
    assert_int_equal(end.output_bytes, 0);
    output_capacity = 0;
}

TEST(closing_kills_and_says_nothing) {
    init("sleep 1000", 60000000);
    assert_int_equal(tw_hook_run(&hook, "", 0, NONE, &err), TW_OK);
    tw_hook_close(&hook);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(ends, 0);
}

TEST(it_runs_again_and_again) {
    init("exit $N", 5000000);
    for (unsigned i = 0; i < 5; i++) {
        char value[8];
        const char *const values[] = {value, NULL};
        (void)snprintf(value, sizeof(value), "N=%u", i);
        assert_int_equal(tw_hook_run(&hook, "", 0, values, &err), TW_OK);
        while (ends == i) (void)uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(end.exit_status, i);
        assert_string_equal(end.text, "");
    }
    tw_hook_close(&hook);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void) {
    char command[64];
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 2;
    const int failures = test_run(NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? failures : 2;
}
