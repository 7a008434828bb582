/* test_signals.c - signals may arrive in the middle of a matrix product. */
#include "worker/support/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/test.h"
#include "worker/engine/engine.h"

enum { STEPS = 12, SEED = 7 };

/* Computes the losses of the first steps of a model that is large enough to use every code path of
 * the matrix library. */
static void losses_of(float losses[STEPS]) {
    static struct tw_layout layout;
    struct tw_run run;
    struct tw_error err;
    struct tw_rng rng;
    struct tw_engine *engine = NULL;
    tw_run_defaults(&run);
    run.train.batch = 4;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    const struct tw_engine_config config = {
        .run = &run, .layout = &layout, .compute = {.threads = 1}};
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    tw_engine_init_params(&run, &layout, engine->theta);
    const size_t count = (size_t)run.train.batch * (run.model.context + 1);
    uint32_t *tokens = calloc(count, sizeof(*tokens));
    assert_non_null(tokens);
    tw_rng_seed(&rng, SEED);
    for (size_t i = 0; i < count; i++) tokens[i] = (uint32_t)tw_rng_below(&rng, run.model.vocab);
    for (int i = 0; i < STEPS; i++) {
        struct tw_step_result result;
        if (tw_engine_step(engine, tokens, 1e-3f, &result, &err) != TW_OK) {
            fail_msg("%s", err.message);
        }
        losses[i] = result.loss;
    }
    free(tokens);
    tw_engine_destroy(engine);
}

/* Raises SIGHUP in a child process, which would die if SIGHUP were not caught. There, no earlier
 * signal counts. */
static void hangup_after(void (*before)(int), bool is_wanted) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGHUP, before);
        tw_signals_catch(true);
        _exit(raise(SIGHUP) == 0 && tw_signals_wanted() == is_wanted ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The order counts: the first two run before any signal is caught in this process, and the third
 * before the storm, whose signals would be older than a second on a busy machine. */

/* Without a handler, SIGHUP would kill `thinwire train`, with all progress since the last save. */
TEST(closed_terminal_asks_to_end) {
    hangup_after(SIG_DFL, true);
}

TEST(nohup_is_left_alone) {
    hangup_after(SIG_IGN, false);
}

/* timeout(1) sends two signals: one to the process and one to its group. The second signal used to
 * kill the process. */
TEST(two_at_once_are_one) {
    tw_signals_catch(true);
    assert_int_equal(raise(SIGINT), 0);
    assert_int_equal(raise(SIGINT), 0);
    assert_true(tw_signals_wanted());
}

/* Without the alternate signal stack, this always ended in `corrupted size vs. prev_size`. */
TEST(a_storm_of_signals_changes_nothing) {
    float calm[STEPS], stormy[STEPS];
    losses_of(calm);
    tw_signals_catch(false);
    struct sigevent event;
    memset(&event, 0, sizeof(event));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTERM;
    timer_t timer;
    const struct itimerspec often = {{0, 200000}, {0, 200000}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
    losses_of(stormy);
    assert_int_equal(timer_settime(timer, 0, &never, NULL), 0);
    assert_int_equal(timer_delete(timer), 0);
    assert_true(tw_signals_wanted());
    assert_memory_equal(calm, stormy, sizeof(calm));
}
