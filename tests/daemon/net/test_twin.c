/* Tests of daemon/net/twin.c: whether a second link with the same key is a restart or another
 * machine. */
#include "daemon/net/twin.h"
#include "tests/test.h"

enum { OLD = 11, NEW = 22, THIRD = 33, NONCE = 99, SECOND_US = 1000 * 1000 };

static struct tw_twins twins;
static const struct tw_id node = {{1}}, other = {{2}};

static int setup(void **state) {
    tw_twins_init(&twins, 0);
    tw_twins_linked(&twins, &node, OLD, 1);
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

FACT(same_process_is_no_twin) {
    assert_int_equal(tw_twins_judge(&twins, &node, OLD), TW_TWIN_NONE);
    assert_int_equal(tw_twins_judge(&twins, &other, OLD), TW_TWIN_NONE);
}

FACT(process_without_a_number_is_no_twin) {
    assert_int_equal(tw_twins_judge(&twins, &node, 0), TW_TWIN_NONE);
    tw_twins_linked(&twins, &other, 0, 1);
    assert_int_equal(tw_twins_judge(&twins, &other, NEW), TW_TWIN_NONE);
}

FACT(another_process_is_asked_about_once_at_a_time) {
    assert_int_equal(tw_twins_judge(&twins, &node, NEW), TW_TWIN_ASK);
    assert_true(tw_twins_deadline_us(&twins, &node) == UINT64_MAX);
    tw_twins_asked(&twins, &node, NONCE, "10.0.0.1:4300", 5);
    assert_int_equal(tw_twins_judge(&twins, &node, NEW), TW_TWIN_WAIT);
    assert_int_equal(tw_twins_judge(&twins, &node, THIRD), TW_TWIN_WAIT);
    assert_true(tw_twins_deadline_us(&twins, &node) == 5 + TW_TWIN_ANSWER_US);
    assert_true(tw_twins_deadline_us(&twins, &other) == UINT64_MAX);
    tw_twins_close(&twins, &node);
    assert_int_equal(tw_twins_judge(&twins, &node, NEW), TW_TWIN_ASK);
}

FACT(only_the_right_answer_counts_and_only_once) {
    assert_false(tw_twins_answered(&twins, &node, 0)); /* none was asked */
    tw_twins_asked(&twins, &node, NONCE, "", 5);
    assert_false(tw_twins_answered(&twins, &node, NONCE + 1));
    assert_false(tw_twins_answered(&twins, &node, 0));
    assert_false(tw_twins_answered(&twins, &other, NONCE));
    assert_true(tw_twins_answered(&twins, &node, NONCE));
    assert_false(tw_twins_answered(&twins, &node, NONCE));
}

FACT(replaced_process_that_comes_back_is_a_twin) {
    tw_twins_linked(&twins, &node, NEW, 5);
    assert_int_equal(tw_twins_judge(&twins, &node, OLD), TW_TWIN_PROVEN);
    assert_int_equal(tw_twins_judge(&twins, &node, THIRD), TW_TWIN_ASK);
    tw_twins_linked(&twins, &node, NEW, 6); /* the same process links again: none was replaced */
    assert_int_equal(tw_twins_judge(&twins, &node, OLD), TW_TWIN_PROVEN);
}

FACT(new_link_closes_the_question) {
    tw_twins_asked(&twins, &node, NONCE, "", 5);
    tw_twins_linked(&twins, &node, NEW, 6);
    assert_false(tw_twins_answered(&twins, &node, NONCE));
    assert_true(tw_twins_deadline_us(&twins, &node) == UINT64_MAX);
}

FACT(finding_is_new_once_and_ends) {
    const uint64_t end_us = 7 + (uint64_t)TW_TWIN_KEPT_US;
    assert_null(tw_twins_find(&twins, &node, 6));
    assert_true(tw_twins_found(&twins, &node, "10.0.0.1:4300", 7));
    assert_false(tw_twins_found(&twins, &node, NULL, 7));
    assert_string_equal(tw_twins_find(&twins, &node, 8)->address, "10.0.0.1:4300");
    assert_null(tw_twins_find(&twins, &other, 8));
    assert_non_null(tw_twins_find(&twins, &node, end_us - 1));
    assert_null(tw_twins_find(&twins, &node, end_us));
    assert_true(tw_twins_found(&twins, &node, "10.0.0.2:4300", end_us));
    assert_string_equal(tw_twins_find(&twins, &node, end_us)->address, "10.0.0.2:4300");
}

/* A stranger cannot fill the table: its rows are for nodes that proved their right to be in the
 * run. */
FACT(full_table_forgets_the_row_that_was_used_longest_ago) {
    tw_twins_linked(&twins, &node, OLD, SECOND_US);
    for (uint32_t i = 0; i < TW_KNOWN_MAX; i++) {
        const struct tw_id id = {{3, (uint8_t)i, (uint8_t)(i >> 8)}};
        tw_twins_linked(&twins, &id, OLD, i + 2 < TW_KNOWN_MAX ? 2 : 2 * SECOND_US);
    }
    assert_int_equal(tw_twins_judge(&twins, &node, NEW), TW_TWIN_ASK);
    const struct tw_id first = {{3, 0, 0}};
    assert_int_equal(tw_twins_judge(&twins, &first, NEW), TW_TWIN_NONE);
}
