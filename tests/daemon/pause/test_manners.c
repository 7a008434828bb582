/* Tests of daemon/pause/pauses.c: when training pauses, and why. */
#include "daemon/pause/pauses.h"

#include <math.h>

#include "tests/test.h"

#define S UINT64_C(1000000)

static struct tw_manners manners;
static uint64_t now_us;

static int begin(void **state) {
    tw_manners_init(&manners);
    now_us = 1000 * S;
    return 0;
}

#define FACT(name) TEST_IN(begin, NULL, name)

/* Advances the clock by one sampling interval and takes a sample. Returns the pause reasons that
 * began or ended. */
static uint32_t sample(double share) {
    now_us += TW_MANNERS_SAMPLE_US;
    return tw_manners_sample(&manners, share, (double)NAN, now_us);
}

/* Takes samples until a reason begins or ends. Returns the seconds that passed. */
static double time_to_change(double share) {
    const uint64_t begin_us = now_us;
    while (sample(share) == 0) assert_true(now_us - begin_us < 3600 * S);
    return (double)(now_us - begin_us) / 1e6;
}

static void yield(uint32_t percent) {
    assert_int_equal(tw_manners_yield(&manners, percent, now_us), 0);
}

FACT(owner_is_seen_within_a_second) {
    yield(20);
    for (int i = 0; i < 20; i++) assert_int_equal(sample(0.02), 0);
    assert_true(time_to_change(0.9) <= 0.5);
    assert_int_equal(manners.reasons, TW_PAUSE_OWNER);
    (void)begin(NULL);
    yield(20);
    for (int i = 0; i < 20; i++) assert_int_equal(sample(0.0), 0);
    assert_true(time_to_change(0.21) <= 1.0); /* barely above the threshold */
}

FACT(one_short_burst_is_no_owner) {
    yield(20);
    assert_int_equal(sample(0.0), 0);
    assert_int_equal(sample(0.39), 0);
    assert_int_equal(sample(0.0), 0);
    assert_int_equal(manners.reasons, 0);
}

FACT(load_at_the_threshold_does_not_pause) {
    yield(20);
    for (int i = 0; i < 1000; i++) assert_int_equal(sample(0.2), 0);
}

FACT(training_goes_on_after_thirty_quiet_seconds) {
    yield(20);
    (void)time_to_change(0.9);
    /* Between half of the threshold and the threshold, no pause begins, but a pause continues. */
    for (int i = 0; i < 600; i++) assert_int_equal(sample(0.11), 0);
    assert_int_equal(tw_manners_quiet_us(&manners, now_us), 30 * S);
    for (int i = 0; i < 40; i++) assert_int_equal(sample(0.05), 0);
    assert_int_equal(tw_manners_quiet_us(&manners, now_us), 10 * S);
    assert_int_equal(sample(0.3), 0); /* a burst restarts the quiet time */
    assert_int_equal(tw_manners_quiet_us(&manners, now_us), 30 * S);
    assert_true(time_to_change(0.05) >= 30);
    assert_int_equal(manners.reasons, 0);
    assert_int_equal(tw_manners_quiet_us(&manners, now_us), 0);
}

FACT(lost_measurement_ends_the_pause) {
    yield(20);
    (void)time_to_change(0.9);
    assert_true(time_to_change((double)NAN) <= 30.5);
    assert_int_equal(manners.reasons, 0);
    for (int i = 0; i < 100; i++) assert_int_equal(sample((double)NAN), 0);
    assert_true(time_to_change(0.9) <= 0.5); /* measured again */
}

FACT(yield_off_ends_the_pause_at_once_and_takes_no_sample) {
    assert_int_equal(sample(1.0), 0);
    assert_true(isnan(manners.cpu.others));
    yield(20);
    (void)time_to_change(0.9);
    assert_int_equal(tw_manners_yield(&manners, 0, now_us), TW_PAUSE_OWNER);
    assert_int_equal(manners.reasons, 0);
    assert_int_equal(sample(1.0), 0);
}

/* Reasons begin and end independently. Training resumes when the last one has ended. */
FACT(reasons_do_not_undo_each_other) {
    yield(20);
    assert_int_equal(tw_manners_user(&manners, true, now_us), TW_PAUSE_USER);
    assert_int_equal(tw_manners_user(&manners, true, now_us), 0); /* asked again */
    (void)time_to_change(0.9);
    assert_int_equal(manners.reasons, TW_PAUSE_USER | TW_PAUSE_OWNER);
    assert_int_equal(tw_manners_hours(&manners, true, now_us), TW_PAUSE_HOURS);
    (void)time_to_change(0.0);
    assert_int_equal(manners.reasons, TW_PAUSE_USER | TW_PAUSE_HOURS);
    assert_int_equal(tw_manners_hours(&manners, false, now_us), TW_PAUSE_HOURS);
    /* Neither quiet time nor the hours end the user's pause. */
    assert_int_equal(manners.reasons, TW_PAUSE_USER);
    assert_int_equal(tw_manners_hours(&manners, true, now_us), TW_PAUSE_HOURS);
    assert_int_equal(tw_manners_user(&manners, false, now_us), TW_PAUSE_USER);
    /* The user's resume does not end the pause for the hours. */
    assert_int_equal(manners.reasons, TW_PAUSE_HOURS);
    assert_int_equal(tw_manners_hours(&manners, false, now_us), TW_PAUSE_HOURS);
    assert_int_equal(manners.reasons, 0);
}

FACT(memory_is_given_back_after_two_minutes_of_any_pause) {
    assert_false(tw_manners_may_free(&manners, now_us));
    (void)tw_manners_user(&manners, true, now_us);
    now_us += 119 * S;
    assert_false(tw_manners_may_free(&manners, now_us));
    /* Another reason begins before the first ends, so the pause continues. */
    (void)tw_manners_hours(&manners, true, now_us);
    (void)tw_manners_user(&manners, false, now_us);
    now_us += S;
    assert_true(tw_manners_may_free(&manners, now_us));
    (void)tw_manners_hours(&manners, false, now_us);
    assert_false(tw_manners_may_free(&manners, now_us));
    (void)tw_manners_hours(&manners, true, now_us);
    assert_false(tw_manners_may_free(&manners, now_us)); /* a new pause */
}

/* Without its links, the node would not learn that the run resumes. */
FACT(memory_is_kept_while_the_run_is_paused) {
    assert_int_equal(tw_manners_run(&manners, true, now_us), TW_PAUSE_RUN);
    assert_int_equal(tw_manners_run(&manners, true, now_us), 0);
    (void)tw_manners_hours(&manners, true, now_us);
    now_us += 3600 * S;
    assert_false(tw_manners_may_free(&manners, now_us));
    assert_int_equal(tw_manners_user(&manners, false, now_us), 0); /* no user ends it */
    assert_int_equal(tw_manners_run(&manners, false, now_us), TW_PAUSE_RUN);
    assert_int_equal(manners.reasons, TW_PAUSE_HOURS);
    assert_true(tw_manners_may_free(&manners, now_us));
}

FACT(reasons_have_names) {
    assert_string_equal(tw_pause_name(TW_PAUSE_USER), "user");
    assert_string_equal(tw_pause_name(TW_PAUSE_HOURS), "hours");
    assert_string_equal(tw_pause_name(TW_PAUSE_OWNER), "owner");
    assert_string_equal(tw_pause_name(TW_PAUSE_RUN), "run");
}

static uint32_t sample_gpu(double gpu) {
    now_us += TW_MANNERS_SAMPLE_US;
    return tw_manners_sample(&manners, 0.01, gpu, now_us);
}

FACT(owner_at_the_gpu_is_seen_within_a_second) {
    yield(20);
    for (int i = 0; i < 20; i++) assert_int_equal(sample_gpu(0.1), 0);
    assert_int_equal(sample_gpu(0.28), 0); /* a mean of 0.19 */
    assert_int_equal(sample_gpu(0.28), TW_PAUSE_OWNER);
    assert_true(manners.is_gpu);
    assert_int_equal(sample_gpu(0.05), 0);
    const uint64_t quiet_us = tw_manners_quiet_us(&manners, now_us);
    assert_in_range(quiet_us, TW_MANNERS_QUIET_US - 2 * S, TW_MANNERS_QUIET_US);
    for (uint64_t us = 0; us < quiet_us - S; us += TW_MANNERS_SAMPLE_US)
        assert_int_equal(sample_gpu(0.05), 0);
    while (sample_gpu(0.05) == 0) assert_true(manners.reasons != 0);
    assert_int_equal(manners.reasons, 0);
}

/* The worker has exited to free its memory: nobody sees whether the GPU is still in use. */
FACT(unseen_gpu_is_looked_at_again_after_minutes) {
    yield(20);
    for (int i = 0; i < 3; i++) (void)sample_gpu(0.9);
    assert_int_equal(manners.reasons, TW_PAUSE_OWNER);
    const uint64_t begin_us = now_us;
    while (sample_gpu((double)NAN) == 0) assert_true(now_us - begin_us < 3600 * S);
    assert_in_range(now_us - begin_us, TW_MANNERS_BLIND_US - S, TW_MANNERS_BLIND_US + S);
}

FACT(gpu_without_a_measurement_pauses_nothing) {
    yield(20);
    for (int i = 0; i < 100; i++) assert_int_equal(sample_gpu((double)NAN), 0);
    while (manners.reasons == 0) (void)sample(0.9);
    assert_false(manners.is_gpu);
    assert_true(time_to_change(0.0) <= 31);
}
