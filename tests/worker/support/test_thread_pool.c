/* test_thread_pool.c - every piece runs once, each thread runs one piece at a time, in any number
 * of runs. */
#include "worker/support/thread_pool.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

enum { THREADS = 4, PIECES_MAX = 300, RUNS = 3000 };

struct count {
    struct tw_thread_pool *team;
    uint32_t pieces;
    uint32_t done[PIECES_MAX];    /* not atomic: one thread runs each piece */
    uint32_t by_thread[THREADS];  /* not atomic: a thread runs one piece at a time */
    atomic_bool is_busy[THREADS]; /* read by other threads */
};

static void count_piece(void *context, uint32_t piece, uint32_t thread) {
    struct count *count = context;
    assert_true(piece < count->pieces && thread < THREADS);
    assert_false(atomic_exchange(&count->is_busy[thread], true));
    count->done[piece]++;
    count->by_thread[thread]++;
    atomic_store(&count->is_busy[thread], false);
}

static struct tw_thread_pool *team_of(uint32_t threads) {
    struct tw_thread_pool *team;
    struct tw_error err;
    assert_int_equal(tw_thread_pool_create(&team, threads, &err), TW_OK);
    assert_int_equal(tw_thread_pool_threads(team), threads);
    return team;
}

static void check_runs(struct tw_thread_pool *team, uint32_t runs) {
    for (uint32_t run = 0; run < runs; run++) {
        struct count count = {.pieces = run * 7 % (PIECES_MAX + 1)};
        uint32_t sum = 0;
        tw_thread_pool_run(team, count.pieces, count_piece, &count);
        for (uint32_t i = 0; i < PIECES_MAX; i++) {
            assert_int_equal(count.done[i], i < count.pieces ? 1 : 0);
        }
        for (uint32_t i = 0; i < THREADS; i++) sum += count.by_thread[i];
        assert_int_equal(sum, count.pieces);
    }
}

TEST(every_piece_is_done_exactly_once) {
    struct tw_thread_pool *team = team_of(THREADS);
    check_runs(team, RUNS);
    tw_thread_pool_destroy(team);
}

TEST(helpers_that_fell_asleep_come_back) {
    struct tw_thread_pool *team = team_of(THREADS);
    for (int i = 0; i < 20; i++) {
        /* far longer than helpers spin */
        for (volatile int work = 0; work < 1000000; work++) continue;
        check_runs(team, 20);
    }
    tw_thread_pool_destroy(team);
}

TEST(one_thread_works_in_the_caller) {
    struct tw_thread_pool *team = team_of(1);
    struct count count = {.pieces = 5};
    tw_thread_pool_run(team, 5, count_piece, &count);
    assert_int_equal(count.by_thread[0], 5);
    tw_thread_pool_destroy(team);
    tw_thread_pool_destroy(NULL);
}

/* A piece returns only after every other thread has entered one. */
struct meeting {
    atomic_uint present;
};

static void meet(void *context, uint32_t piece, uint32_t thread) {
    struct meeting *meeting = context;
    (void)piece, (void)thread;
    atomic_fetch_add(&meeting->present, 1);
    while (atomic_load(&meeting->present) < THREADS) (void)sched_yield();
}

TEST(pieces_run_at_the_same_time) {
    struct tw_thread_pool *team = team_of(THREADS);
    struct meeting meeting = {0};
    tw_thread_pool_run(team, THREADS, meet, &meeting);
    assert_int_equal(atomic_load(&meeting.present), THREADS);
    tw_thread_pool_destroy(team);
}

static void run_inside(void *context, uint32_t piece, uint32_t thread) {
    struct count *count = context;
    (void)piece, (void)thread;
    tw_thread_pool_run(count->team, 1, count_piece, count);
}

TEST(a_run_inside_a_piece_is_refused) {
    for (uint32_t threads = 1; threads <= 2; threads++) {
        const pid_t child = fork();
        int status = 0;
        assert_true(child >= 0);
        if (child == 0) {
            struct count count = {.team = team_of(threads), .pieces = 2};
            (void)close(STDERR_FILENO);
            (void)signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failure */
            tw_thread_pool_run(count.team, 2, run_inside, &count);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}
