/* test_scores.c - parsing of the lines that an evaluation program prints, valid and invalid. */
#include "daemon/api/scores.h"

#include <stdio.h>
#include <string.h>

#include "tests/test.h"

static struct tw_scores scores;

static void read_text(const char *text) {
    tw_scores_read(&scores, text, strlen(text), false);
}

TEST(good_lines_are_values) {
    read_text("# a comment\n\nloss 2.5\r\n  tasks/arc-easy\t-1e-3  \nn_1.5 +7");
    assert_int_equal(scores.count, 3);
    assert_int_equal(scores.refused, 0);
    assert_string_equal(scores.reason, "");
    assert_string_equal(scores.rows[0].name, "loss");
    assert_float_equal(scores.rows[0].value, 2.5, 0);
    assert_string_equal(scores.rows[1].name, "tasks/arc-easy");
    assert_float_equal(scores.rows[1].value, -1e-3, 0);
    assert_string_equal(scores.rows[2].name, "n_1.5");
    assert_float_equal(scores.rows[2].value, 7, 0);
    read_text("");
    assert_int_equal(scores.count, 0);
    assert_int_equal(scores.refused, 0);
}

/* Checks that only this line is refused, with its number and the fault in the message. */
static void refuse(const char *line, const char *fault) {
    char text[512];
    (void)snprintf(text, sizeof(text), "before 1\n%s\nafter 2\n", line);
    read_text(text);
    if (scores.count != 2 || scores.refused != 1) fail_msg("'%s' is taken", line);
    assert_string_equal(scores.rows[1].name, "after");
    if (strstr(scores.reason, fault) == NULL || strncmp(scores.reason, "line 2, '", 9) != 0)
        fail_msg("'%s': %s", line, scores.reason);
}

TEST(other_lines_are_refused_and_named) {
    refuse("loss", "it is not \"name value\"");
    refuse("2.5", "it is not \"name value\"");
    refuse("a=b", "it is not \"name value\"");
    refuse("{\"loss\": 2}", "it is not \"name value\"");
    refuse("na\xc3\xa4me 3", "it is not \"name value\"");
    refuse("loss nan", "not a finite decimal number");
    refuse("loss inf", "not a finite decimal number");
    refuse("loss 1e999", "not a finite decimal number");
    refuse("loss 0x10", "not a finite decimal number");
    refuse("loss 1 2", "not a finite decimal number");
    refuse("loss 1,5", "not a finite decimal number");
    refuse("loss 1e", "not a finite decimal number");
    refuse("loss -", "not a finite decimal number");
    refuse("before 2", "the name stands in a line before it");
    refuse("a123456789012345678901234567890123456789012345678 1", "longer than 47 characters");
    refuse("a 1000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
           "00000000000000000000000000000000000000000000000000000000000000000000000000000000",
           "longer than 127 characters");
}

TEST(control_characters_are_not_passed_on) {
    const char text[] = "\x1b[31m\"a\0b 1\n";
    tw_scores_read(&scores, text, sizeof(text) - 1, false);
    assert_int_equal(scores.refused, 1);
    assert_string_equal(scores.reason, "line 1, ' [31m a b 1': it is not \"name value\"");
}

TEST(the_number_of_values_is_bounded) {
    char text[1024] = "";
    for (unsigned i = 0; i < TW_SCORES_MAX + 3; i++) {
        const size_t at = strlen(text);
        (void)snprintf(text + at, sizeof(text) - at, "v%u %u\n", i, i);
    }
    read_text(text);
    assert_int_equal(scores.count, TW_SCORES_MAX);
    assert_int_equal(scores.refused, 3);
    assert_string_equal(scores.reason, "line 17, 'v16 16': only 16 values are kept");
}

TEST(the_last_line_of_a_cut_text_is_lost) {
    tw_scores_read(&scores, "a 1\nb 2", 7, true);
    assert_int_equal(scores.count, 1);
    assert_int_equal(scores.refused, 1);
    assert_string_equal(scores.reason, "line 2, '': the output is longer than 16 KiB");
    tw_scores_read(&scores, "a 1\nb 2\n", 8, true);
    assert_int_equal(scores.count, 2);
    assert_int_equal(scores.refused, 1);
}
