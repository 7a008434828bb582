/* Tests of daemon/api/history.h: nodes of different speed, which saw different rounds, tell one
 * time left. */
#include "tests/test.h"

#include <math.h>

#include "base/rng.h"
#include "daemon/api/history.h"

enum { NODES = 3, SECOND = 1000000 };

static const struct tw_id LINEAGE = {{7}}, OTHER = {{8}};

static double apart(uint64_t a, uint64_t b) {
    return fabs((double)a - (double)b) / fmax((double)a, (double)b);
}

/* Three nodes of different speed hear each other's speeds up to two seconds late. The third joins
 * later. */
TEST(nodes_of_different_speed_tell_one_time_left) {
    static struct tw_run_pace nodes[NODES];
    static double said[600][NODES];
    struct tw_rng rng;
    tw_rng_seed(&rng, 44);
    memset(nodes, 0, sizeof(nodes));
    for (unsigned s = 0; s < 600; s++) {
        for (unsigned i = 0; i < NODES; i++) {
            const double jitter = 0.9 + 0.2 * tw_rng_unit(&rng);
            said[s][i] = s % 5 != 0 ? said[s - 1][i] : i == 2 && s < 200 ? 0 : 900 * i * i + 400;
            if (s % 5 == 0) said[s][i] *= jitter;
        }
    }
    for (unsigned s = 2; s < 600; s++) {
        uint64_t left_us[NODES];
        for (unsigned node = 0; node < NODES; node++) {
            struct tw_run_speeds speeds = {.is_whole = true};
            for (unsigned i = 0; i < NODES; i++) {
                const double speed = said[i == node ? s : s - tw_rng_below(&rng, 3)][i];
                speeds.tokens_per_s += speed;
                speeds.others += i != node && speed > 0;
            }
            tw_run_pace_announce(&nodes[node], &speeds);
            left_us[node] = tw_run_pace_left_us(
                &nodes[node], (uint64_t)s * SECOND,
                tw_run_pace_rate(&nodes[node], (uint64_t)s * SECOND), 0, 100000000);
        }
        if (s < 30 || (s >= 198 && s < 230)) continue; /* after a change */
        assert_true(apart(left_us[0], left_us[1]) < 0.03);
        if (s >= 230) assert_true(apart(left_us[0], left_us[2]) < 0.03);
    }
}

static void announce(struct tw_run_pace *pace, double tokens_per_s, bool is_whole) {
    const struct tw_run_speeds speeds = {.tokens_per_s = tokens_per_s, .is_whole = is_whole};
    tw_run_pace_announce(pace, &speeds);
}

/* Rounds of uneven length and uneven tokens reach the nodes up to 300 ms apart. */
TEST(nodes_without_a_link_agree_by_the_run_clock) {
    static struct tw_run_pace nodes[NODES];
    struct tw_rng rng;
    tw_rng_seed(&rng, 45);
    memset(nodes, 0, sizeof(nodes));
    const uint64_t budget = 100000000;
    uint64_t now_us = SECOND, clock = 0;
    for (unsigned round = 0; round < 400; round++) {
        now_us += 5 * SECOND + tw_rng_below(&rng, 4 * SECOND);
        clock += 30000 + tw_rng_below(&rng, 20000);
        for (unsigned node = 0; node < NODES; node++) {
            if (round < 40 * node) continue; /* joins later */
            tw_run_pace_note(&nodes[node], now_us + tw_rng_below(&rng, 300000), &LINEAGE, clock);
        }
        if (round < 40 * NODES) continue;
        uint64_t left_us[NODES];
        for (unsigned node = 0; node < NODES; node++) {
            const uint64_t at_us = now_us + 2 * SECOND;
            announce(&nodes[node], 123.0 * (node + 1), false); /* each hears only some */
            const double rate = tw_run_pace_rate(&nodes[node], at_us);
            assert_true(rate > 3000 && rate < 10000);
            left_us[node] = tw_run_pace_left_us(&nodes[node], at_us, rate, clock, budget);
        }
        assert_true(apart(left_us[0], left_us[1]) < 0.03);
        assert_true(apart(left_us[0], left_us[2]) < 0.03);
    }
}

TEST(before_enough_rounds_the_announced_speeds_count) {
    struct tw_run_pace pace = {.count = 0};
    announce(&pace, 5010, false);
    assert_true(tw_run_pace_rate(&pace, SECOND) == 5010);
    for (uint64_t round = 1; round <= TW_RUN_PACE_ROUNDS; round++)
        tw_run_pace_note(&pace, round * 60 * SECOND, &LINEAGE, round * 600000);
    assert_true(tw_run_pace_rate(&pace, (uint64_t)9 * 60 * SECOND) == 5010);
    tw_run_pace_note(&pace, (uint64_t)9 * 60 * SECOND, &LINEAGE, 9 * 600000);
    assert_true(tw_run_pace_rate(&pace, (uint64_t)9 * 60 * SECOND) == 10000);
    /* 600,000 tokens are left at the newest round, which was 20 s ago */
    assert_int_equal(tw_run_pace_left_us(&pace, (uint64_t)(9 * 60 + 20) * SECOND, 10000, 9 * 600000,
                                         10 * 600000),
                     (uint64_t)40 * SECOND);
    /* a new lineage begins anew */
    tw_run_pace_note(&pace, (uint64_t)10 * 60 * SECOND, &OTHER, 9 * 600000);
    assert_true(tw_run_pace_rate(&pace, (uint64_t)10 * 60 * SECOND) == 5010);
}

TEST(rounds_that_stand_still_count_no_more) {
    struct tw_run_pace pace = {.count = 0};
    uint64_t at_us = SECOND;
    announce(&pace, 0, false);
    for (uint64_t round = 1; round <= 40; round++, at_us += 5 * SECOND)
        tw_run_pace_note(&pace, at_us, &LINEAGE, round * 50000);
    assert_true(tw_run_pace_rate(&pace, at_us) == 10000);
    assert_true(tw_run_pace_rate(&pace, at_us + 60 * SECOND) == 0); /* all are paused */
    assert_int_equal(tw_run_pace_left_us(&pace, at_us + 60 * SECOND, 0, 1, 2), UINT64_MAX);
}

TEST(many_short_rounds_are_enough) {
    struct tw_run_pace pace = {.count = 0};
    uint64_t at_us = SECOND;
    announce(&pace, 1, false);
    for (uint64_t round = 1; round <= 1000; round++, at_us += 20000)
        tw_run_pace_note(&pace, at_us, &LINEAGE, round * 100);
    assert_true(fabs(tw_run_pace_rate(&pace, at_us) - 5000) < 1);
}

/* Not over half a minute: a node that stops is known at once. */
TEST(a_node_that_stops_changes_the_speed_at_once) {
    struct tw_run_pace pace = {.count = 0};
    struct tw_run_speeds speeds = {.tokens_per_s = 5000, .others = 2, .is_whole = true};
    tw_run_pace_announce(&pace, &speeds);
    speeds.tokens_per_s = 5160; /* noise is smoothed */
    tw_run_pace_announce(&pace, &speeds);
    assert_true(tw_run_pace_rate(&pace, SECOND) == 5010);
    speeds = (struct tw_run_speeds){.tokens_per_s = 4000, .others = 1, .is_whole = true};
    tw_run_pace_announce(&pace, &speeds);
    assert_true(tw_run_pace_rate(&pace, SECOND) == 4000);
    speeds = (struct tw_run_speeds){
        .tokens_per_s = 4900, .others = 1, .has_own = true, .is_whole = true}; /* it has joined */
    tw_run_pace_announce(&pace, &speeds);
    assert_true(tw_run_pace_rate(&pace, SECOND) == 4900);
}

/* A GPU among laptops moves the run clock as four of them do, so the time left counts it so. */
TEST(a_far_faster_node_counts_as_the_clock_counts_it) {
    assert_true(tw_run_pace_counted((uint64_t[]){0}, 0) == 0);
    assert_true(tw_run_pace_counted((uint64_t[]){700}, 1) == 700);
    assert_true(tw_run_pace_counted((uint64_t[]){3200, 100}, 2) == 1700);
    assert_true(tw_run_pace_counted((uint64_t[]){100, 3000, 200}, 3) == 1100);
    assert_true(tw_run_pace_counted((uint64_t[]){100, 3000, 200, 100}, 4) == 800);
}

TEST(a_node_is_alone_if_nobody_else_trains_or_is_missing) {
    struct tw_run_pace pace = {.count = 0};
    struct tw_run_speeds speeds = {.tokens_per_s = 5000, .has_own = true, .is_whole = true};
    assert_false(tw_run_pace_is_alone(&pace));
    tw_run_pace_announce(&pace, &speeds);
    assert_true(tw_run_pace_is_alone(&pace));
    speeds.is_whole = false;
    tw_run_pace_announce(&pace, &speeds);
    assert_false(tw_run_pace_is_alone(&pace));
    speeds = (struct tw_run_speeds){.others = 1, .has_own = true, .is_whole = true};
    tw_run_pace_announce(&pace, &speeds);
    assert_false(tw_run_pace_is_alone(&pace));
}
