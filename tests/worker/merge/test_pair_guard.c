/* Tests of worker/merge/pairing.c: limits on a partner's share, derived from the sizes of past
 * shares. */
#include "worker/merge/pairing.h"

#include "tests/test.h"

#include <math.h>

static struct tw_pair_guard guard;

static struct tw_pair_verdict judge(double own, double theirs, double apart) {
    const struct tw_pair_sizes sizes = {
        .delta_own = own, .delta_theirs = theirs, .anchor = 100, .apart = apart};
    return tw_pair_guard(&guard, &sizes);
}

static void begin(unsigned count, double theirs, double apart) {
    memset(&guard, 0, sizeof(guard));
    for (unsigned i = 0; i < count; i++) (void)judge(1, theirs, apart);
}

static void assert_near(float value, double want) {
    assert_true(fabs((double)value - want) < 1e-6);
}

TEST(usual_share_is_merged_unchanged) {
    begin(0, 0, 0);
    for (unsigned i = 0; i < 100; i++) {
        const struct tw_pair_verdict verdict = judge(1, 1 + (i * 7 % 20) / 10.0, 1 + (i % 3) / 2.0);
        assert_false(verdict.is_refused);
        assert_near(verdict.delta, 1);
        assert_near(verdict.pull, 1);
    }
}

TEST(large_share_is_scaled_and_a_far_larger_one_refused) {
    begin(40, 1, 2);
    assert_near(judge(1, 3, 2).delta, 1);
    assert_near(judge(1, 6, 2).delta, 0.5);
    assert_false(judge(1, 8, 2).is_refused);
    assert_true(judge(1, 8.1, 2).is_refused);
    assert_true(judge(1, 1e30, 2).is_refused);
    assert_near(judge(1, 1, 4).pull, 1);
    assert_near(judge(1, 1, 8).pull, 0.5);
    /* a node returning from a long partition is that far away */
    assert_false(judge(1, 1, 800).is_refused);
    assert_near(judge(1, 1, 800).pull, 0.005);
    assert_true(judge(1, 1, 6401).is_refused);
}

/* In a warm-up, Deltas grow fiftyfold, and the medians follow half a window later. */
TEST(growth_that_the_own_delta_shares_is_usual) {
    begin(40, 1, 1);
    for (double size = 1; size < 3000; size *= 1.5) {
        const struct tw_pair_verdict verdict = judge(size, 2.9 * size, 1.9 * size);
        assert_false(verdict.is_refused);
        assert_near(verdict.delta, 1);
        assert_near(verdict.pull, 1);
    }
}

/* A slow node's own Delta is too small to compare with, so the sizes of past shares are used. */
TEST(the_past_of_others_stands_for_a_small_delta_of_ours) {
    begin(0, 0, 0);
    /* limit: three times a twentieth of the anchor's norm */
    assert_near(judge(0.01, 20, 1).delta, 15.0 / 20);
    assert_false(judge(0.01, 4000, 1).is_refused); /* no past shares yet */
    for (unsigned i = 0; i < 8; i++) (void)judge(0.01, 30, 1);
    assert_near(judge(0.01, 30, 1).delta, 1);
    assert_true(judge(0.01, 241, 1).is_refused);
    begin(40, 0, 0); /* no node has trained, so nothing sets a scale */
    memset(guard.deltas, 0, sizeof(guard.deltas));
    assert_false(judge(0, 20, 1).is_refused);
}

/* The medians do not move if a quarter of the shares are lies. They follow if most shares differ
 * from the past. */
TEST(liars_do_not_move_it_and_a_majority_does) {
    begin(40, 1, 1);
    for (unsigned i = 0; i < 200; i++) {
        if (i % 4 == 0) {
            assert_true(judge(1, 1000, 7000).is_refused);
        } else {
            assert_near(judge(1, 1, 1).delta, 1);
        }
    }
    assert_near(judge(1, 1, 4).pull, 0.5);
    unsigned refused = 0;
    while (judge(1, 20, 50).is_refused) refused++;
    assert_in_range(refused, 8, TW_PAIR_GUARD_KEPT);
    for (unsigned i = 0; i < TW_PAIR_GUARD_KEPT; i++) (void)judge(1, 20, 50);
    assert_near(judge(1, 20, 50).delta, 1);
    assert_near(judge(1, 20, 50).pull, 1);
}
