/* test_handover.c - the two threads of a worker, both played by the test's only thread, which never
 * has to wait. */
#include "worker/lib/handover.h"

#include "tests/test.h"

static struct tw_handover handover;

static int open_handover(void **state) {
    tw_handover_init(&handover);
    return 0;
}

static int close_handover(void **state) {
    tw_handover_deinit(&handover);
    return 0;
}

#define FACT(name) TEST_IN(open_handover, close_handover, name)

static enum tw_turn turn(void) {
    return tw_handover_wait(&handover, false, 0);
}

/* Takes the trainer's steps until it must stop. Returns their number. */
static uint32_t step_on(void) {
    uint32_t count = 0;
    for (; turn() == TW_TURN_STEP; count++)
        tw_handover_report(&handover, &(struct tw_report){.cursor = count});
    return count;
}

FACT(trainer_is_at_most_a_ring_ahead) {
    struct tw_report report;
    assert_int_equal(turn(), TW_TURN_WAIT);
    tw_handover_release(&handover);
    assert_int_equal(step_on(), TW_REPORTS_MAX);
    assert_int_equal(turn(), TW_TURN_WAIT);
    assert_int_equal(tw_handover_take(&handover, &report), TW_OK);
    assert_int_equal(report.cursor, 0); /* the oldest */
    assert_int_equal(step_on(), 1);
    for (uint32_t i = 0; i < TW_REPORTS_MAX; i++)
        assert_int_equal(tw_handover_take(&handover, &report), TW_OK);
    assert_int_equal(report.cursor, 0); /* the newest report: the step after the first take */
}

/* If steps take no time, the trainer is a whole ring ahead when the run ends. */
FACT(trainer_that_is_ahead_hears_of_the_end) {
    tw_handover_release(&handover);
    assert_int_equal(step_on(), TW_REPORTS_MAX);
    tw_handover_rest(&handover, true);
    assert_int_equal(turn(), TW_TURN_SETTLED);
    assert_true(tw_handover_has_rested(&handover));
    tw_handover_say_ended(&handover);
    assert_int_equal(turn(), TW_TURN_ENDED);
}

FACT(trainer_that_is_ahead_waits_in_a_pause_and_goes_on) {
    struct tw_report report;
    tw_handover_release(&handover);
    assert_int_equal(step_on(), TW_REPORTS_MAX);
    tw_handover_rest(&handover, false);
    assert_int_equal(turn(), TW_TURN_WAIT);
    for (uint32_t i = 0; i < TW_REPORTS_MAX; i++)
        assert_int_equal(tw_handover_take(&handover, &report), TW_OK);
    assert_int_equal(turn(), TW_TURN_WAIT); /* waits until the session asks or releases */
    tw_handover_release(&handover);
    assert_int_equal(turn(), TW_TURN_STEP);
}
