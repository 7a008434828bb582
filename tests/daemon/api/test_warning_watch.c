/* test_warning_watch.c - warnings that begin, flicker and end. Also checks that
 * `thinwire help warnings` lists all kinds. */
#include "daemon/api/view_warning.h"

#include <string.h>

#include "daemon/cli/common/cli.h"
#include "tests/test.h"

#define SECOND_US UINT64_C(1000000)

static struct tw_warning_watch watch;
static const struct tw_warning_row *changed[TW_WARNING_ROWS_MAX];
static uint64_t now_us;

static int start(void **state) {
    memset(&watch, 0, sizeof(watch));
    now_us = 1000 * SECOND_US;
    return 0;
}

#define FACT(name) TEST_IN(start, NULL, name)

/* Evaluates the first `count` of these warnings, one second after the previous call. */
static uint32_t look(uint32_t count) {
    struct tw_warning warnings[] = {{.kind = TW_WARNING_WORKER_ABSENT, .what = "None."},
                                    {.kind = TW_WARNING_TWIN, .about = "ab12cd34"},
                                    {.kind = TW_WARNING_TWIN, .about = "77777777"}};
    now_us += SECOND_US;
    return tw_warning_watch_look(&watch, warnings, count, now_us, changed);
}

FACT(a_lasting_warning_is_raised_once_and_cleared_once) {
    assert_int_equal(look(1), 1);
    assert_true(changed[0]->is_raised);
    assert_string_equal(changed[0]->warning.what, "None.");
    for (unsigned i = 0; i < 20; i++) assert_int_equal(look(1), 0);
    for (unsigned i = 0; i < 4; i++) assert_int_equal(look(0), 0);
    assert_int_equal(look(0), 1);
    assert_false(changed[0]->is_raised);
    assert_int_equal(look(0), 0);
    assert_int_equal(look(1), 1); /* a new one */
}

FACT(a_flickering_warning_is_raised_once) {
    assert_int_equal(look(1), 1);
    for (unsigned i = 0; i < 50; i++) assert_int_equal(look(i % 3 == 0), 0);
}

FACT(warnings_about_two_nodes_are_two) {
    assert_int_equal(look(3), 3);
    assert_int_equal(look(3), 0);
}

FACT(each_change_is_told_once_and_none_that_is_over) {
    (void)look(1);
    struct tw_warning_row *row = tw_warning_watch_untold(&watch);
    assert_non_null(row);
    assert_true(row->is_raised);
    row->is_told = true;
    assert_null(tw_warning_watch_untold(&watch));
    for (unsigned i = 0; i < 10; i++) (void)look(0);
    row = tw_warning_watch_untold(&watch); /* the end of the warning stays until it is reported */
    assert_non_null(row);
    assert_false(row->is_raised);
    row->is_told = false;
    (void)look(0);
    assert_null(tw_warning_watch_untold(&watch));
    (void)look(1);
    for (unsigned i = 0; i < 10; i++) (void)look(0);
    /* it began and ended before it could be reported */
    assert_null(tw_warning_watch_untold(&watch));
}

FACT(a_full_table_takes_no_more_and_recovers) {
    struct tw_warning warnings[TW_WARNINGS_MAX];
    uint32_t changes = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < TW_WARNINGS_MAX; i++) {
            warnings[i] = (struct tw_warning){.kind = TW_WARNING_TWIN};
            (void)snprintf(warnings[i].about, sizeof(warnings[i].about), "%u", round * 100 + i);
        }
        changes += tw_warning_watch_look(&watch, warnings, TW_WARNINGS_MAX, now_us, changed);
    }
    assert_int_equal(changes, TW_WARNING_ROWS_MAX);
    now_us += 60 * SECOND_US;
    assert_int_equal(tw_warning_watch_look(&watch, NULL, 0, now_us, changed), TW_WARNING_ROWS_MAX);
    assert_int_equal(look(3), 3);
}

TEST(every_kind_has_a_name_of_its_own) {
    for (enum tw_warning_kind a = 0; a < TW_WARNING_KINDS; a++) {
        assert_non_null(tw_warning_name(a));
        for (enum tw_warning_kind b = 0; b < a; b++)
            assert_string_not_equal(tw_warning_name(a), tw_warning_name(b));
    }
}

/* The page lists names at a margin of two spaces, one or several separated by commas, and the cause
 * behind them or below. */
TEST(the_help_page_lists_every_kind_and_no_other) {
    bool is_listed[TW_WARNING_KINDS] = {false};
    char row[128];
    for (const char *at = cli_help_text("warnings"); *at != '\0'; at += strcspn(at, "\n") + 1) {
        const size_t length = strcspn(at, "\n");
        assert_true(length < sizeof(row));
        memcpy(row, at, length);
        row[length] = '\0';
        if (strncmp(row, "  ", 2) != 0 || row[2] == ' ') continue;
        char *const cause = strstr(row + 2, "  ");
        if (cause != NULL) *cause = '\0';
        for (char *name = strtok(row, ", "); name != NULL; name = strtok(NULL, ", ")) {
            enum tw_warning_kind kind = 0;
            while (kind < TW_WARNING_KINDS && strcmp(tw_warning_name(kind), name) != 0) kind++;
            if (kind == TW_WARNING_KINDS) fail_msg("there is no warning `%s`", name);
            is_listed[kind] = true;
        }
    }
    for (enum tw_warning_kind kind = 0; kind < TW_WARNING_KINDS; kind++)
        if (!is_listed[kind]) fail_msg("the page lacks `%s`", tw_warning_name(kind));
}

int main(void) {
    return test_run(NULL, NULL);
}
