/* Tests of daemon/api/health.c with series of evaluations of healthy and of faulty nodes. */
#include "daemon/api/health.h"

#include <math.h>

#include "tests/test.h"

enum { FRAGMENTS = 3, SECOND_US = 1000 * 1000 };

static struct tw_health health;
static struct tw_health_look look;

static int setup(void **state) {
    health = (struct tw_health){0};
    look = (struct tw_health_look){.fragments = FRAGMENTS, .live = 5.0f, .distance = 0.1f};
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

/* Evaluates once more, after `listed` rounds with this node's contribution and `missed` without
 * it. Returns the findings that began or ended. */
static uint32_t next(uint64_t listed, uint64_t missed) {
    look.listed += listed;
    look.missed += missed;
    look.live *= 0.98f;
    return tw_health_note(&health, &look);
}

static void begins_at_the_second(uint32_t first, uint32_t second, enum tw_finding finding) {
    assert_int_equal(first, 0);
    assert_int_equal(second, UINT32_C(1) << finding);
    assert_true(tw_health_has(&health, finding));
}

static void nothing_is_found(void) {
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++) assert_false(tw_health_has(&health, f));
}

FACT(healthy_node_raises_nothing) {
    look.states = FRAGMENTS; /* the node joined the run */
    for (unsigned i = 0; i < 20; i++) {
        look.distance = 0.02f + 0.3f / (float)(i + 1);
        look.refused += i % 7 == 3; /* now and then */
        assert_int_equal(next(7, i % 3), 0);
    }
    nothing_is_found();
}

FACT(node_that_is_refused_is_found) {
    assert_int_equal(next(6, 0), 0);
    look.refused += 3;
    const uint32_t first = next(3, 3);
    look.refused += 6;
    begins_at_the_second(first, next(0, 6), TW_FINDING_REFUSED);
    assert_int_equal(
        next(6, 0),
        UINT32_C(1) << TW_FINDING_REFUSED); /* one round without a refusal ends the finding */
    nothing_is_found();
}

FACT(work_refused_in_few_rounds_is_no_sign) {
    for (unsigned i = 0; i < 6; i++) {
        look.refused += 5;
        assert_int_equal(next(8, 4), 0);
    }
    nothing_is_found();
}

FACT(node_that_is_left_out_is_found) {
    assert_int_equal(next(6, 0), 0);
    const uint32_t first = next(0, 6);
    begins_at_the_second(first, next(0, 4), TW_FINDING_LEFT_OUT);
    assert_int_equal(next(1, 20), UINT32_C(1) << TW_FINDING_LEFT_OUT); /* slow, and listed */
}

FACT(rounds_left_out_for_the_budget_are_no_sign) {
    for (unsigned i = 0; i < 6; i++) {
        look.budget_left_out += 5;
        assert_int_equal(next(0, 6), 0);
    }
    nothing_is_found();
}

FACT(few_rounds_wait_for_the_next_look) {
    assert_int_equal(next(6, 0), 0);
    for (unsigned i = 0; i < 7; i++) assert_int_equal(next(0, 1), 0); /* 7 rounds: one sign */
    assert_int_equal(next(0, 1), UINT32_C(1) << TW_FINDING_LEFT_OUT); /* 8 */
}

FACT(states_taken_over_again_and_again_are_found) {
    look.states = FRAGMENTS;
    const uint32_t first = next(3, 0); /* joined */
    look.states += FRAGMENTS;
    begins_at_the_second(first, next(3, 0), TW_FINDING_TAKES_OVER);
    look.states += FRAGMENTS - 1; /* the node fetched its state of one fragment again */
    assert_int_equal(next(3, 0), UINT32_C(1) << TW_FINDING_TAKES_OVER);
}

FACT(distance_far_above_the_usual_is_found) {
    static const float warming_up[] = {0.01f, 0.02f, 0.03f, 0.04f, 0.05f};
    for (unsigned i = 0; i < 5; i++) {
        look.distance = warming_up[i];
        assert_int_equal(next(6, 0), 0);
    }
    look.distance = 0.24f; /* five times as large, but still a small distance */
    assert_int_equal(next(6, 0) | next(6, 0), 0);
    look.distance = 0.80f;
    const uint32_t first = next(6, 0);
    begins_at_the_second(first, next(6, 0), TW_FINDING_FAR);
    look.distance = 0.05f;
    assert_int_equal(next(6, 0), UINT32_C(1) << TW_FINDING_FAR);
    look.distance = NAN;
    (void)next(6, 0);
    assert_int_equal(next(6, 0), UINT32_C(1) << TW_FINDING_FAR);
}

/* While a node is alone, its anchor follows its own parameters round by round. Its distances
 * from that time are no measure for its distances in a group. */
FACT(node_that_was_alone_is_not_judged_by_those_distances) {
    look.is_alone = true;
    look.distance = 0.001f;
    for (unsigned i = 0; i < 5; i++) assert_int_equal(next(6, 0), 0);
    look.is_alone = false;
    look.distance = 0.4f;
    for (unsigned i = 0; i < 5; i++) assert_int_equal(next(6, 0), 0);
    nothing_is_found();
}

FACT(loss_that_rises_is_found) {
    assert_int_equal(next(6, 0) | next(6, 0), 0);
    look.live = 5.5f; /* noise */
    assert_int_equal(next(6, 0) | next(6, 0), 0);
    look.live = 7.5f;
    const uint32_t first = next(6, 0);
    look.live = 9.5f;
    begins_at_the_second(first, next(6, 0), TW_FINDING_RISING);
    look.live = NAN;
    assert_int_equal(next(6, 0), 0); /* still */
    look.live = 5.0f;
    assert_int_equal(next(6, 0), UINT32_C(1) << TW_FINDING_RISING);
    look.live = 0.02f; /* a text that the model has almost memorised */
    assert_int_equal(next(6, 0), 0);
    for (unsigned i = 0; i < 3; i++) {
        look.live = 0.08f;
        assert_int_equal(next(6, 0), 0);
    }
}

FACT(anchor_that_differs_twice_in_an_hour_is_found) {
    const uint64_t hour_us = TW_HEALTH_DIFFERS_US, begin_us = 1000 * SECOND_US;
    assert_false(tw_health_note_differs(&health, begin_us));
    /* The first difference is more than an hour old, so it no longer counts. */
    assert_false(tw_health_note_differs(&health, begin_us + hour_us + 1));
    assert_true(tw_health_note_differs(&health, begin_us + 2 * hour_us));
    assert_true(tw_health_has(&health, TW_FINDING_DIFFERS));
    assert_int_equal(next(6, 0), 0); /* an evaluation does not end the finding */
    assert_false(tw_health_note_differs(&health, begin_us + 3 * hour_us));
    assert_false(tw_health_tick(&health, begin_us + 4 * hour_us));
    assert_true(tw_health_tick(&health, begin_us + 4 * hour_us + 1));
    nothing_is_found();
}

FACT(round_that_does_not_close_is_found) {
    const uint64_t limit_us = TW_HEALTH_STUCK_US;
    assert_false(tw_health_note_open(&health, limit_us, SECOND_US));
    assert_true(tw_health_note_open(&health, limit_us + 1, SECOND_US));
    assert_true(tw_health_has(&health, TW_FINDING_STUCK));
    assert_int_equal(next(6, 0), 0); /* an evaluation does not end the finding */
    assert_true(tw_health_has(&health, TW_FINDING_STUCK));
    assert_true(tw_health_note_open(&health, 0, SECOND_US));
    /* Rounds of a large model over a slow link usually take minutes. */
    assert_false(tw_health_note_open(&health, 5 * limit_us, limit_us));
    assert_true(tw_health_note_open(&health, 9 * limit_us, limit_us));
    assert_true(tw_health_note_open(&health, 0, limit_us));
    /* No round has ended before, so the usual duration is not known. */
    assert_false(tw_health_note_open(&health, 9 * limit_us, 0));
    assert_true(tw_health_note_open(&health, 11 * limit_us, 0));
}

FACT(node_that_gets_no_seat_is_found) {
    const uint64_t limit_us = TW_HEALTH_STUCK_US;
    assert_false(tw_health_note_seat(&health, limit_us, SECOND_US));
    assert_true(tw_health_note_seat(&health, limit_us + 1, SECOND_US));
    assert_true(tw_health_has(&health, TW_FINDING_NO_SEAT));
    assert_int_equal(next(6, 0), 0); /* an evaluation does not end the finding */
    assert_false(tw_health_note_open(&health, 0, SECOND_US)); /* nor does the end of a round */
    assert_true(tw_health_note_seat(&health, 0, SECOND_US));
    nothing_is_found();
    /* A node gets its seat in a round, and rounds take minutes here. */
    assert_false(tw_health_note_seat(&health, 5 * limit_us, limit_us));
}
