/* test_schedule.c - the learning rate on the run clock. */
#include <math.h>

#include "tests/test.h"
#include "worker/engine/engine.h"

#define WARM UINT64_MAX /* number of updates of an optimizer long past its warm-up */

static struct tw_run run_of(void) {
    struct tw_run run;
    tw_run_defaults(&run);
    run.model.context = 100;
    run.train.batch = 10; /* a step is 1000 tokens */
    run.train.tokens = 1000000;
    run.train.warmup_tokens = 10000;
    run.train.lr_millionths = 4000;
    run.train.lr_final_millionths = 50000;
    run.train.schedule = TW_SCHEDULE_COSINE;
    run.train.wsd_decay_millionths = 200000;
    return run;
}

static void assert_lr(const struct tw_run *run, uint64_t tokens, double want) {
    const double got = (double)tw_schedule_lr(run, tokens, WARM);
    if (fabs(got - want) > 1e-8)
        fail_msg("at %llu: %g, not %g", (unsigned long long)tokens, got, want);
}

TEST(rate_warms_up_then_falls_along_a_cosine) {
    const struct tw_run run = run_of();
    assert_lr(&run, 0, 0.0004);
    assert_lr(&run, 4000, 0.0020);
    assert_lr(&run, 9000, 0.0040);
    assert_lr(&run, 10000, 0.0040);
    assert_lr(&run, 505000, 0.0002 + 0.0038 / 2);
    assert_lr(&run, 1000000, 0.0002);
    assert_lr(&run, UINT64_MAX, 0.0002);
    for (uint64_t t = 10000; t < 1000000; t += 10000) {
        assert_true(tw_schedule_lr(&run, t + 10000, WARM) <= tw_schedule_lr(&run, t, WARM));
    }
}

TEST(linear_falls_in_a_straight_line) {
    struct tw_run run = run_of();
    run.train.schedule = TW_SCHEDULE_LINEAR;
    assert_lr(&run, 10000, 0.0040);
    assert_lr(&run, 257500, 0.0002 + 0.0038 * 0.75);
    assert_lr(&run, 505000, 0.0002 + 0.0038 / 2);
    assert_lr(&run, 1000000, 0.0002);
}

TEST(wsd_stays_at_the_peak_until_the_last_share) {
    struct tw_run run = run_of();
    run.train.schedule = TW_SCHEDULE_WSD;
    assert_lr(&run, 4000, 0.0020);
    assert_lr(&run, 10000, 0.0040);
    assert_lr(&run, 500000, 0.0040);
    assert_lr(&run, 800000, 0.0040);
    /* after a quarter of the decay: sqrt(1 / 4) is a half */
    assert_lr(&run, 850000, 0.0002 + 0.0038 / 2);
    assert_lr(&run, 1000000, 0.0002);
    run.train.wsd_decay_millionths = 0;
    assert_lr(&run, 999000, 0.0040);
    run.train.wsd_decay_millionths = 1000000; /* no stable part: the decay follows the warm-up */
    assert_lr(&run, 10000, 0.0040);
    assert_lr(&run, 257500, 0.0002 + 0.0038 / 2);
}

/* There is no jump where the warm-up meets the decay, nor at the end of the budget. The sqrt decay
 * begins steeply: one step of 200 covers a fourteenth of the way. */
TEST(every_schedule_is_continuous_and_falls) {
    struct tw_run run = run_of();
    const enum tw_schedule all[] = {TW_SCHEDULE_COSINE, TW_SCHEDULE_WSD, TW_SCHEDULE_LINEAR};
    for (unsigned i = 0; i < 3; i++) {
        run.train.schedule = all[i];
        for (uint64_t t = 0; t <= 1010000; t += 1000) {
            const double now = (double)tw_schedule_lr(&run, t, WARM);
            const double next = (double)tw_schedule_lr(&run, t + 1000, WARM);
            assert_true(now >= 0.0002 - 1e-9 && now <= 0.0040 + 1e-9);
            if (t < 9000) assert_true(next > now);
            if (t >= 9000) assert_true(next <= now);
            assert_true(fabs(next - now) <= (t < 9000 ? 0.00041 : 0.0038 / 14));
        }
    }
}

/* The first step has a learning rate above 0: every schedule is one batch ahead during the warm-up,
 * and only then. */
TEST(first_step_is_not_wasted) {
    struct tw_run run = run_of();
    const enum tw_schedule all[] = {TW_SCHEDULE_COSINE, TW_SCHEDULE_WSD, TW_SCHEDULE_LINEAR};
    for (unsigned i = 0; i < 3; i++) {
        run.train.schedule = all[i];
        run.train.warmup_tokens = 10000;
        assert_lr(&run, 0, 0.0004);
        run.train.warmup_tokens = 500; /* less than a batch */
        assert_lr(&run, 0, 0.0040);
        run.train.warmup_tokens = 0;
        assert_lr(&run, 0, 0.0040);
    }
}

/* A new optimizer (zero moments) warms up even after the run's own warm-up. */
TEST(an_optimizer_that_is_new_warms_up) {
    struct tw_run run = run_of();
    run.sync.nodes = 1;
    run.train.beta2_millionths = 950000; /* 40 steps */
    run.train.warmup_tokens = 100000;    /* 100 steps of one node */
    const double full = (double)tw_schedule_lr(&run, 200000, WARM);
    assert_true(fabs((double)tw_schedule_lr(&run, 200000, 0) - 0.0040 / 40) < 1e-8);
    assert_true(fabs((double)tw_schedule_lr(&run, 200000, 19) - 0.0040 / 2) < 1e-8);
    assert_true((double)tw_schedule_lr(&run, 200000, 39) == full);
    /* the decayed rate is below the warm-up's limit */
    assert_true((double)tw_schedule_lr(&run, 1000000, 10) <= 0.0002 + 1e-8);
    run.train.warmup_tokens = 10000; /* the run's own warm-up is shorter: ten steps */
    assert_true(fabs((double)tw_schedule_lr(&run, 200000, 4) - 0.0040 / 2) < 1e-8);
    run.sync.nodes = 5; /* two steps per node */
    assert_true(fabs((double)tw_schedule_lr(&run, 200000, 0) - 0.0040 / 2) < 1e-8);
    run.train.warmup_tokens = 0; /* no warm-up at all */
    assert_lr(&run, 0, 0.0040);
    assert_true((double)tw_schedule_lr(&run, 0, 0) == (double)tw_schedule_lr(&run, 0, WARM));
}

/* A node that trains from the first token of the run has no warm-up of its own beside the
 * schedule's, with any number of nodes. */
TEST(a_run_from_its_beginning_has_one_warm_up) {
    for (uint32_t nodes = 1; nodes <= 8; nodes *= 2) {
        for (uint64_t warmup = 0; warmup <= 400000; warmup += 20000) {
            struct tw_run run = run_of();
            run.sync.nodes = nodes;
            run.train.warmup_tokens = warmup;
            for (uint64_t t = 0; t < 100; t++) {
                const uint64_t clock = 1000 * nodes * t;
                assert_true((double)tw_schedule_lr(&run, clock, t) ==
                            (double)tw_schedule_lr(&run, clock, WARM));
            }
        }
    }
}

TEST(odd_schedules_stay_finite) {
    struct tw_run run = run_of();
    run.train.warmup_tokens = 0;
    assert_lr(&run, 0, 0.0040);
    run.train.warmup_tokens = run.train.tokens; /* the warm-up lasts for the whole run */
    assert_lr(&run, run.train.tokens - 1000, 0.0040);
    assert_lr(&run, run.train.tokens, 0.0002);
    run.train.schedule = TW_SCHEDULE_WSD;
    assert_lr(&run, run.train.tokens - 1000, 0.0040);
    assert_lr(&run, run.train.tokens, 0.0002);
}
