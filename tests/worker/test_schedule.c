/* test_schedule.c - the learning rate on the run clock. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/engine.h"

static struct tw_run run_of(void) {
    struct tw_run run;
    tw_run_defaults(&run);
    run.model.context = 100;
    run.train.batch = 10; /* a step is 1000 tokens */
    run.train.tokens = 1000000;
    run.train.warmup_tokens = 10000;
    run.train.lr_millionths = 4000;
    run.train.lr_final_millionths = 50000;
    return run;
}

static void assert_lr(const struct tw_run *run, uint64_t tokens, double want) {
    const double got = (double)tw_schedule_lr(run, tokens);
    if (fabs(got - want) > 1e-8)
        fail_msg("at %llu: %g, not %g", (unsigned long long)tokens, got, want);
}

static void rate_warms_up_then_falls_along_a_cosine(void **state) {
    (void)state;
    const struct tw_run run = run_of();
    assert_lr(&run, 0, 0.0004);
    assert_lr(&run, 4000, 0.0020);
    assert_lr(&run, 9000, 0.0040);
    assert_lr(&run, 10000, 0.0040);
    assert_lr(&run, 505000, 0.0002 + 0.0038 / 2);
    assert_lr(&run, 1000000, 0.0002);
    assert_lr(&run, UINT64_MAX, 0.0002);
    for (uint64_t t = 10000; t < 1000000; t += 10000) {
        assert_true(tw_schedule_lr(&run, t + 10000) <= tw_schedule_lr(&run, t));
    }
}

static void odd_schedules_stay_finite(void **state) {
    (void)state;
    struct tw_run run = run_of();
    run.train.warmup_tokens = 0;
    assert_lr(&run, 0, 0.0040);
    run.train.warmup_tokens = run.train.tokens; /* warm-up is the whole run */
    assert_lr(&run, run.train.tokens - 1000, 0.0040);
    assert_lr(&run, run.train.tokens, 0.0002);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_warms_up_then_falls_along_a_cosine),
        cmocka_unit_test(odd_schedules_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
