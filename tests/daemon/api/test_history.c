/* Tests the history of a run: losses at any number of steps, and rounds in any number and order. */
#include "tests/test.h"

#include <math.h>

#include "daemon/api/history.h"

static struct tw_history history;

static int set_up(void **state) {
    memset(&history, 0, sizeof(history));
    return 0;
}

#define FACT(name) TEST_IN(set_up, NULL, name)

static void add_rounds(uint64_t from, uint64_t to, enum tw_outcome outcome) {
    for (uint64_t r = from; r < to; r++) tw_history_round(&history, r, outcome);
}

/* Compares the number of the history's first round, and the outcomes of its rounds, one letter
 * each. */
static void compare_rounds(uint64_t first, const char *outcomes) {
    json_t *const json = tw_history_json(&history, 3);
    json_int_t got_first = 0, fragments = 0;
    const char *got = NULL;
    assert_int_equal(json_unpack(json, "{s:{s:I,s:I,s:s}}", "rounds", "first_round", &got_first,
                                 "fragments", &fragments, "outcomes", &got),
                     0);
    assert_int_equal(got_first, first);
    assert_int_equal(fragments, 3);
    assert_string_equal(got, outcomes);
    json_decref(json);
}

FACT(a_loss_curve_of_any_length_keeps_its_ends) {
    for (uint64_t step = 1; step <= 100000; step++) {
        const struct tw_view_loss point = {step, (float)step, NAN, NAN};
        tw_history_loss(&history, &point);
    }
    const uint32_t count = history.losses_count;
    assert_true(count > TW_HISTORY_LOSSES_MAX / 2 - 2 && count <= TW_HISTORY_LOSSES_MAX);
    assert_int_equal(history.losses[count - 1].step, 100000);
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t gap = history.losses[i].step - history.losses[i - 1].step;
        assert_in_range(gap, 1, 2 * history.stride);
    }
    static struct tw_status_view view;
    tw_history_fill(&history, &view);
    assert_int_equal(view.train.losses_count, TW_VIEW_LOSSES_MAX);
    assert_int_equal(view.train.losses[0].step, history.losses[0].step);
    assert_int_equal(view.train.losses[TW_VIEW_LOSSES_MAX - 1].step, 100000);
}

FACT(a_later_value_of_a_point_is_not_lost) {
    const struct tw_view_loss trained = {10, 2.0f, NAN, NAN}, measured = {10, NAN, 2.1f, 2.2f};
    tw_history_loss(&history, &trained);
    tw_history_loss(&history, &measured);
    assert_int_equal(history.losses_count, 1);
    assert_true(history.losses[0].train == 2.0f && history.losses[0].anchor == 2.2f);
}

/* After a restart from an older checkpoint. */
FACT(steps_that_are_repeated_leave_the_curve) {
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t step = pass == 0 ? 1 : 40; step <= 100; step++) {
            const struct tw_view_loss point = {step, (float)pass, NAN, NAN};
            tw_history_loss(&history, &point);
            for (uint32_t i = 1; i < history.losses_count; i++)
                assert_true(history.losses[i].step > history.losses[i - 1].step);
        }
    }
    assert_int_equal(history.losses_count, 100);
    assert_true(history.losses[38].train == 0.0f && history.losses[39].train == 1.0f);
}

FACT(an_empty_history_is_valid_json) {
    compare_rounds(0, "");
}

FACT(rounds_missed_while_away_are_a_gap) {
    add_rounds(100, 103, TW_OUTCOME_OURS);
    tw_history_round(&history, 105, TW_OUTCOME_OTHERS);
    tw_history_round(&history, 106, TW_OUTCOME_EMPTY);
    compare_rounds(100, "mmm..oe");
    tw_history_pair(&history);
    compare_rounds(100, "mmm..om");
}

FACT(another_lineage_replaces_rounds_from_its_first_on) {
    add_rounds(100, 110, TW_OUTCOME_OURS);
    tw_history_round(&history, 104, TW_OUTCOME_OTHERS);
    compare_rounds(100, "mmmmo");
    tw_history_round(&history, 7, TW_OUTCOME_EMPTY); /* older than every round in the history */
    compare_rounds(7, "e");
    tw_history_round(&history, 7 + 2 * TW_HISTORY_ROUNDS_MAX, TW_OUTCOME_OURS);
    compare_rounds(7 + 2 * TW_HISTORY_ROUNDS_MAX, "m");
}

/* Round numbers come from other nodes' records, so they can have any value. */
FACT(no_number_of_a_round_writes_out_of_bounds) {
    static const uint64_t ODD[] = {UINT64_MAX, 0, UINT64_MAX - 1, 5, UINT64_MAX, 1};
    for (unsigned i = 0; i < 6; i++) {
        tw_history_round(&history, ODD[i], TW_OUTCOME_OURS);
        assert_in_range(history.rounds_count, 1, TW_HISTORY_ROUNDS_MAX);
    }
}

FACT(of_rounds_the_newest_are_kept) {
    static char expected[TW_HISTORY_ROUNDS_MAX + 1];
    add_rounds(0, 5 * TW_HISTORY_ROUNDS_MAX / 2, TW_OUTCOME_OURS);
    memset(expected, TW_OUTCOME_OURS, TW_HISTORY_ROUNDS_MAX);
    compare_rounds(3 * TW_HISTORY_ROUNDS_MAX / 2, expected);
}
