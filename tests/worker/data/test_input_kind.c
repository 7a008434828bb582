/* The kind of an input is recognised from its first bytes. */
#include "worker/data/input_kind.h"

#include "tests/test.h"

static void check(enum tw_input_kind want, const char *text) {
    const enum tw_input_kind found =
        tw_input_kind_of((const uint8_t *)text, strlen(text), true, false);
    if (found != want) {
        fail_msg("%s: %s, not %s", text, tw_input_kind_name(found), tw_input_kind_name(want));
    }
}

TEST(json_is_told_from_text) {
    check(TW_INPUT_LINES, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    check(TW_INPUT_LINES, "\xEF\xBB\xBF\n {\"text\": \"a\", \"b\": NaN} \r\n");
    check(TW_INPUT_LINES, "{\"text\": \"a\"}");
    check(TW_INPUT_LINES, "{\"text\": broken\n\n{\"text\": \"a\"}\n"); /* line 1 is broken */
    check(TW_INPUT_LINES, "{\"text\": \"cut");
    check(TW_INPUT_LINES, "[1, 2]\n[3]\n");
    check(TW_INPUT_LINES, "\x1E{\"text\": \"a\"}\n\x1E{\"text\": \"b\"}\n"); /* jq --seq */
    check(TW_INPUT_OBJECTS, "{\n \"text\": \"a\"\n}\n{\n \"text\": \"b\"\n}\n");
    check(TW_INPUT_OBJECTS, "{\"text\": \"a\"}{\"text\": \"b\"}");
    check(TW_INPUT_OBJECTS, "{\n \"text\": \"cut");
    check(TW_INPUT_ARRAY, "[{\"text\": \"a\"}, {\"text\": \"b\"}]");
    check(TW_INPUT_ARRAY, " [\n\"a\",\n\"b\"]\n");
    check(TW_INPUT_ARRAY, "[]");
    check(TW_INPUT_ARRAY, "[{\"text\": \"cut");
    /* invalid JSON is still not taken for plain text */
    check(TW_INPUT_LINES, "{\"text\": \"a\", b}\nrest");
    check(TW_INPUT_OBJECTS, "{\n \"text\": \"a\",\n}\n");
    check(TW_INPUT_ARRAY, "[{\"text\": \"a\"},]");
    check(TW_INPUT_TEXT, "");
    check(TW_INPUT_TEXT, " \n");
    check(TW_INPUT_TEXT, "a\n");
    check(TW_INPUT_TEXT, "{a}");
    check(TW_INPUT_TEXT, "{\\small text}");
    check(TW_INPUT_TEXT, "{\"quote\" he said\nand more");
    check(TW_INPUT_TEXT, "[1] A note.\n[2] Another.\n");
    check(TW_INPUT_TEXT, "[1]\nA note.\n");
    check(TW_INPUT_TEXT, "[a](link)\n");
    check(TW_INPUT_TEXT, "\"To be\"\n");
    check(TW_INPUT_TEXT, "\"To be\"\n\"or not\", he said\n");
    check(TW_INPUT_TEXT, "\"To be\"\n\"or not");
    check(TW_INPUT_LINES, "\"a\\n\"\n\"b\" \n\n\"c\"\nrest");
    check(TW_INPUT_TEXT, "12\n");
}

/* The first bytes may end anywhere in a record. */
TEST(a_record_longer_than_the_first_bytes_is_json) {
    static const char LINE[] =
        "{\"a\": [1, -2.5e3, true, null], \"text\": \"a\\u00e9\\n b\", \"c\": {}}";
    static const char ARRAY[] = "[{\"a\": [1, -2.5e3, true, NaN], \"text\": \"a\\u00e9\\n b\"}, 1]";
    for (size_t size = 8; size < sizeof(LINE); size++) {
        assert_int_equal(tw_input_kind_of((const uint8_t *)LINE, size, false, false),
                         TW_INPUT_LINES);
    }
    for (size_t size = 8; size < sizeof(ARRAY); size++) {
        assert_int_equal(tw_input_kind_of((const uint8_t *)ARRAY, size, false, false),
                         TW_INPUT_ARRAY);
    }
}

TEST(a_name_that_claims_json_is_never_text) {
    assert_int_equal(tw_input_kind_of((const uint8_t *)"text", 4, true, true), TW_INPUT_LINES);
    assert_int_equal(tw_input_kind_of((const uint8_t *)"[1]", 3, true, true), TW_INPUT_ARRAY);
}

TEST(latin_1_is_told_from_stray_bytes) {
    char text[400];
    for (size_t i = 0; i < sizeof(text); i++) text[i] = i % 20 == 0 ? '\xE9' : 'a';
    assert_true(tw_input_is_other_encoding((const uint8_t *)text, sizeof(text)));
    assert_false(tw_input_is_other_encoding((const uint8_t *)text, 300)); /* 15 invalid bytes */
    for (size_t i = 10; i + 1 < sizeof(text); i += 20) memcpy(text + i, "\xC3\xA9", 2);
    assert_false(tw_input_is_other_encoding((const uint8_t *)text, sizeof(text)));
}
