/* Tests of daemon/process/cpu_use.c, which measures the CPU time used by other programs. */
#include "daemon/process/cpu_use.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

static struct tw_error err;

/* ---- files of /proc ----------------------------------------------------------------------------
 */

TEST(first_line_is_read_without_guests) {
    struct tw_cpu_machine machine;
    assert_int_equal(
        tw_cpu_machine_parse("cpu  100 20 30 400 5 6 7 8 90 9\ncpu0 1 1 1 1\n", &machine, &err),
        TW_OK);
    assert_int_equal(machine.user, 100);
    assert_int_equal(machine.system, 30);
    assert_int_equal(machine.all, 100 + 20 + 30 + 400 + 5 + 6 + 7 + 8);
    /* The oldest kernels write only four numbers. */
    assert_int_equal(tw_cpu_machine_parse("cpu 1 2 3 4\n", &machine, &err), TW_OK);
    assert_int_equal(machine.all, 10);
}

TEST(bad_first_lines_are_refused) {
    static const char *const LINES[] = {
        "",
        "cpu",
        "cpu0 1 2 3 4\n",
        "cpu 1 2 3\n",
        "cpu 1 -2 3 4\n",
        "cpu 1 2 3 4 x\n",
        "cpu 1 2 3 99999999999999999999\n",
        "cpu 18446744073709551615 1 3 4\n",
        "intr 1 2 3 4\n",
    };
    for (unsigned i = 0; i < sizeof(LINES) / sizeof(LINES[0]); i++) {
        struct tw_cpu_machine machine = {.user = 7};
        assert_int_equal(tw_cpu_machine_parse(LINES[i], &machine, &err), TW_CORRUPT);
        assert_int_equal(machine.user, 7); /* untouched */
    }
}

#define BEFORE " S 1 2 3 4 5 6 7 8 9 10"

TEST(process_is_read_behind_its_name) {
    struct tw_cpu_process use;
    assert_int_equal(
        tw_cpu_process_parse("12 (a) S 9 (b)" BEFORE " 11 22 0 0 25 5 8 0\n", &use, &err), TW_OK);
    assert_int_equal(use.user, 11);
    assert_int_equal(use.system, 22);
    assert_true(use.is_niced);
    assert_int_equal(tw_cpu_process_parse("12 (a)" BEFORE " 11 22 0 0 20 0 8\n", &use, &err),
                     TW_OK);
    assert_false(use.is_niced);
    assert_int_equal(tw_cpu_process_parse("12 (a)" BEFORE " 11 22 0 0 10 -10 8\n", &use, &err),
                     TW_OK);
    assert_false(use.is_niced);
}

TEST(bad_processes_are_refused) {
    static const char *const TEXTS[] = {
        "",
        "12 a S 1 2",
        "12 (a)",
        "12 (a)" BEFORE,
        "12 (a)" BEFORE " 11",
        "12 (a)" BEFORE " -11 22 0 0 20 0",
        "12 (a)" BEFORE " 11 22 0 0 20",
        "12 (a)" BEFORE " 11 22 0 0 20 -",
        "12 (a)" BEFORE " 11 99999999999999999999 0 0 20 0",
    };
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        struct tw_cpu_process use = {.user = 7};
        assert_int_equal(tw_cpu_process_parse(TEXTS[i], &use, &err), TW_CORRUPT);
        assert_int_equal(use.user, 7);
    }
}

/* ---- the share ---------------------------------------------------------------------------------
 */

static struct tw_cpu_look look_of(uint64_t user, uint64_t system, uint64_t all) {
    return (struct tw_cpu_look){.machine = {.user = user, .system = system, .all = all}};
}

static void assert_share(const struct tw_cpu_look *before, const struct tw_cpu_look *after,
                         double wanted) {
    const double share = tw_cpu_others(before, after);
    if (!(fabs(share - wanted) < 1e-9)) fail_msg("share %f, wanted %f", share, wanted);
}

TEST(others_are_all_but_the_daemon_and_its_worker) {
    struct tw_cpu_look before = look_of(1000, 500, 9000), after = look_of(1060, 530, 9400);
    assert_share(&before, &after, 90 / 400.0);
    before.processes[0].pid = after.processes[0].pid = 1;
    before.processes[0].use = (struct tw_cpu_process){.user = 5, .system = 5};
    after.processes[0].use = (struct tw_cpu_process){.user = 15, .system = 10};
    assert_share(&before, &after, (50 + 25) / 400.0);
    /* A niced worker's user time is not part of `user`, but its system time is part of `system`. */
    before.processes[1].pid = after.processes[1].pid = 2;
    after.processes[1].use = (struct tw_cpu_process){.user = 300, .system = 15, .is_niced = true};
    assert_share(&before, &after, (50 + 10) / 400.0);
    after.processes[1].use = (struct tw_cpu_process){.user = 40, .system = 15};
    assert_share(&before, &after, (10 + 10) / 400.0);
}

TEST(system_time_counts_up_to_the_user_time) {
    const struct tw_cpu_look before = look_of(0, 0, 0), kernel = look_of(0, 300, 400),
                             copies = look_of(50, 300, 400);
    assert_share(&before, &kernel, 0); /* kernel threads that encrypt a checkpoint */
    assert_share(&before, &copies, 100 / 400.0);
}

TEST(counts_that_stand_or_go_back_are_no_share) {
    const struct tw_cpu_look before = look_of(100, 100, 1000), less = look_of(50, 50, 900),
                             odd = look_of(500, 500, 1100);
    assert_true(isnan(tw_cpu_others(&before, &before)));
    assert_true(isnan(tw_cpu_others(&before, &less)));
    assert_share(&before, &odd, 1); /* never above 1 */
}

TEST(another_worker_counts_from_its_start) {
    struct tw_cpu_look before = look_of(0, 0, 0), after = look_of(100, 0, 400);
    before.processes[1].pid = 5;
    before.processes[1].use.user = 9000; /* the worker before */
    after.processes[1].pid = 6;
    after.processes[1].use.user = 60;
    assert_share(&before, &after, 40 / 400.0);
}

/* ---- this machine ------------------------------------------------------------------------------
 */

static pid_t spin(int nice_value) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    (void)setpriority(PRIO_PROCESS, 0, nice_value);
    for (volatile uint64_t i = 0;; i++) {
    }
}

/* CPU times are accurate only to some hundredths of a second, so the loop waits for 20 more
 * ticks of user time. */
static struct tw_cpu_look look_later(const struct tw_cpu_look *before, pid_t worker) {
    struct tw_cpu_look look = *before;
    while (look.processes[1].use.user < before->processes[1].use.user + 20) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        assert_int_equal(tw_cpu_look(&look, worker, &err), TW_OK);
    }
    return look;
}

TEST(the_work_of_a_worker_is_not_that_of_others) {
    for (int nice_value = 0; nice_value <= 5; nice_value += 5) {
        struct tw_cpu_look before;
        const pid_t pid = spin(nice_value);
        assert_int_equal(tw_cpu_look(&before, pid, &err), TW_OK);
        struct tw_cpu_look after = look_later(&before, pid);
        assert_int_equal(after.processes[1].use.is_niced, nice_value > 0);
        const double apart = tw_cpu_others(&before, &after);
        before.processes[1].pid = after.processes[1].pid = 0;
        const double with = tw_cpu_others(&before, &after);
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        if (nice_value == 0) assert_true(with > apart);
    }
    struct tw_cpu_look look;
    assert_int_equal(tw_cpu_look(&look, 0, &err), TW_OK);
    assert_int_equal(look.processes[0].pid, getpid());
}

/* A process without a stat file has ended. The measurement ignores it. */
TEST(worker_that_has_ended_does_not_stop_the_look) {
    struct tw_cpu_look look;
    const pid_t pid = spin(0);
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(tw_cpu_look(&look, pid, &err), TW_OK);
    assert_int_equal(look.processes[1].pid, 0);
}
