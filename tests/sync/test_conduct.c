/* test_conduct.c - a contributor refused round after round is reported at a falling rate, and
 * forgotten once it is merged again; one whose work is mostly large is reported once. */
#include "sync/core/conduct.h"
#include "sync/core/state.h"

#include "tests/sync/lone_node.h"

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Notes one contribution. Returns the report that it causes, or NULL. */
static const struct tw_action *note(const struct tw_id *id, bool is_merged) {
    static struct tw_action said;
    struct tw_action action;
    bool has_said = false;
    tw_conduct_note_merged(node, id, is_merged);
    while (tw_node_next_action(node, &action)) {
        assert_int_equal(action.kind, TW_ACT_REPORT);
        assert_int_equal(action.u.report.kind, TW_REPORT_REFUSED);
        assert_memory_equal(&action.u.report.id, id, sizeof(*id));
        assert_int_equal(action.u.report.round, ROUNDS);
        assert_false(has_said);
        has_said = true;
        said = action;
    }
    const struct tw_event tick = {.kind =
                                      TW_EV_TICK}; /* one event has room for a few reports only */
    feed(&tick);
    forget();
    return has_said ? &said : NULL;
}

FACT(refusals_are_reported_at_a_falling_rate) {
    const struct tw_id one = id_of(1), two = id_of(2);
    uint32_t said = 0;
    for (uint32_t times = 1; times <= 40; times++) {
        const struct tw_action *report = note(&one, false);
        assert_int_equal(report != NULL, (times & (times - 1)) == 0);
        if (report != NULL) assert_int_equal(report->u.report.times, times);
        said += report != NULL;
        assert_int_equal(view_now().peers[1].unmerged, times);
        assert_null(note(&two, true)); /* others are merged meanwhile */
    }
    assert_int_equal(said, 6);
    assert_int_equal(view_now().peers[2].unmerged, 0);
    assert_null(note(&one, true));
    assert_int_equal(view_now().peers[1].unmerged, 0);
    assert_non_null(note(&one, false)); /* counting begins anew */
    assert_int_equal(view_now().peers[1].unmerged, 1);
    assert_int_equal(view_now().unmerged, 41);
}

/* More refused members than rows: the one refused most often is kept. */
FACT(rows_are_bounded) {
    const struct tw_id worst = id_of(1);
    for (uint32_t i = 0; i < 3; i++) (void)note(&worst, false);
    for (uint32_t i = 0; i < 3 * TW_MEMBERS_MAX; i++) {
        const struct tw_id other = {{1, (uint8_t)i}};
        assert_non_null(note(&other, false));
        assert_int_equal(tw_conduct_unmerged_rounds(node, &other), 1);
    }
    assert_int_equal(tw_conduct_unmerged_rounds(node, &worst), 3);
}

/* Notes the size of a contribution. Returns the report that it causes, or NULL. */
static const struct tw_report *note_size(const struct tw_id *id, uint32_t tenths, bool is_cause) {
    static struct tw_report said;
    struct tw_action action;
    bool has_said = false;
    tw_conduct_note_size(node, id, tenths, is_cause);
    while (tw_node_next_action(node, &action)) {
        assert_int_equal(action.kind, TW_ACT_REPORT);
        assert_int_equal(action.u.report.kind, TW_REPORT_LARGE);
        assert_false(tw_report_is_charge(&action.u.report));
        assert_memory_equal(&action.u.report.id, id, sizeof(*id));
        has_said = true;
        said = action.u.report;
    }
    feed(&(struct tw_event){.kind = TW_EV_TICK});
    forget();
    return has_said ? &said : NULL;
}

FACT(work_that_is_mostly_large_is_named_without_a_charge) {
    const struct tw_id one = id_of(1), two = id_of(2);
    uint32_t said = 0;
    for (uint32_t merge = 1; merge <= 40; merge++) {
        const struct tw_report *report = note_size(&one, 75, false);
        assert_null(note_size(&two, merge % 3 == 0 ? 31 : 0, false)); /* now and then is usual */
        said += report != NULL;
        if (report == NULL) continue;
        assert_int_equal(merge, 8);
        assert_int_equal(report->times, 8);
        assert_int_equal(report->merges, 8);
        assert_int_equal(report->tenths, 75);
    }
    assert_int_equal(said, 1);
    assert_true(view_now().peers[1].large.is_often);
    assert_int_equal(view_now().peers[1].large.times, 16);
    assert_int_equal(view_now().peers[1].large.merges, 16);
    assert_false(view_now().peers[2].large.is_often);
    assert_int_equal(view_now().peers[2].large.times, 5);
    for (uint32_t merge = 0; merge < 9; merge++) assert_null(note_size(&one, 0, false));
    assert_false(view_now().peers[1].large.is_often);
    assert_non_null(note_size(&two, 90, true)); /* it alone made a merge large */
}

/* More members than rows over time: a member keeps its row. */
FACT(rows_of_large_work_are_bounded) {
    const struct tw_id one = id_of(1);
    (void)note_size(&one, 75, false);
    for (uint32_t i = 0; i < 3 * TW_MEMBERS_MAX; i++) {
        const struct tw_id other = {{1, (uint8_t)i}};
        assert_null(note_size(&other, 75, false));
        assert_int_equal(tw_conduct_large_work(node, &other)->merges, 1);
    }
    assert_int_equal(tw_conduct_large_work(node, &one)->merges, 1);
}
