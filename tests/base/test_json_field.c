/* Extracting a field from a JSON line, and the error for every kind of invalid line. */
#include "base/json_field.h"
#include "tests/test.h"

static enum tw_status field_of(const char *line, size_t size, char *out, size_t *bytes,
                               struct tw_error *err) {
    uint8_t *const copy = malloc(size + 1);
    size_t begin = 0;
    assert_non_null(copy);
    memcpy(copy, line, size);
    const enum tw_status status = tw_json_field(copy, size, "text", &begin, bytes, err);
    if (status == TW_OK) {
        assert_true(begin + *bytes <= size);
        memcpy(out, copy + begin, *bytes);
    }
    free(copy);
    return status;
}

static void check(const char *line, const char *text) {
    char out[256];
    size_t bytes = 0;
    struct tw_error err = {.message = ""};
    if (field_of(line, strlen(line), out, &bytes, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(bytes, strlen(text));
    assert_memory_equal(out, text, bytes);
}

static void refuse(const char *line, const char *why) {
    char out[256];
    size_t bytes = 0;
    struct tw_error err;
    assert_int_equal(field_of(line, strlen(line), out, &bytes, &err), TW_DATA);
    if (strstr(err.message, why) == NULL) fail_msg("%s: %s, not %s", line, err.message, why);
}

TEST(string_is_found_among_anything) {
    check("{\"text\":\"a b\"}", "a b");
    check(" { \"id\" : [1, {\"text\": \"no\"}, [], {}], \"text\" : \"yes\" , \"n\": -1.5e+3 } \r",
          "yes");
    check("{\"a\":{\"b\":[[[{\"c\":null}]]]},\"text\":\"\",\"t\":true,\"f\":false}", "");
    check("{\"te\\u0078t\":\"x\"}", "x");
}

/* json.dumps writes NaN and Infinity. They are accepted in fields that are not used. */
TEST(numbers_of_python_are_values) {
    check("{\"score\": NaN, \"text\": \"a\", \"b\": [Infinity, -Infinity]}", "a");
}

TEST(escapes_become_what_they_mean) {
    check("{\"text\":\"a\\n\\t\\r\\b\\f\\\"\\\\\\/z\"}", "a\n\t\r\b\f\"\\/z");
    check("{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00!\"}",
          "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80!");
    /* Half a surrogate pair is not a character, so its three bytes are kept as they are. */
    check("{\"text\":\"\\ud83dx\\ude00\\ud83d\\u0041\"}", "\xED\xA0\xBDx\xED\xB8\x80\xED\xA0\xBD"
                                                          "A");
    check("{\"text\":\"\xFF\xC3\"}", "\xFF\xC3");
}

TEST(wrong_lines_are_refused_with_the_reason) {
    refuse("// comment", "no { of an object at byte 1");
    refuse("[1] x", "no { of an object at byte 1");
    refuse(" [1] ", "the record is an array, not an object with a field \"text\"");
    refuse("\"a\"", "the record is a string, not an object");
    refuse("{'text': 'a'}", "single quotes, as Python's str() writes");
    refuse("{\"text\":\"a\"", "no comma or }");
    refuse("{\"text\":\"a", "a string without end");
    refuse("{\"text\":\"a\tb\"}", "a control character in a string at byte 11");
    refuse("{\"text\":\"\\x\"}", "an unknown escape");
    refuse("{\"text\":\"\\u12g4\"}", "an unknown escape");
    refuse("{\"text\":\"\\", "an unknown escape");
    refuse("{\"text\" \"a\"}", "no :");
    refuse("{\"a\":01,\"text\":\"b\"}", "no comma or }");
    refuse("{\"a\":1.,\"text\":\"b\"}", "no value");
    refuse("{\"a\":tru,\"text\":\"b\"}", "no value");
    refuse("{\"a\":[1 2],\"text\":\"b\"}", "no comma or end");
    refuse("{\"a\":[1},\"text\":\"b\"}", "no comma or end");
    refuse("{\"text\":\"b\",}", "no string");
    refuse("{\"text\":\"b\"} x", "text after the object");
    refuse("{\"text\":\"b\",\"text\":\"c\"}", "the field \"text\" is there twice");
    refuse("{\"text\":[\"b\"]}", "the field \"text\" is an array, not a string");
    refuse("{\"text\":{}}", "the field \"text\" is an object, not a string");
    refuse("{\"text\":null}", "the field \"text\" is null, not a string");
    refuse("{\"text\":NaN}", "the field \"text\" is NaN, not a string");
    refuse("{\"text\":-1}", "the field \"text\" is a number, not a string");
    refuse("{\"a\":nan,\"text\":\"b\"}", "no value");
    refuse("{\"a\":+Infinity,\"text\":\"b\"}", "no value");
}

TEST(missing_field_is_reported_with_those_present) {
    refuse("{}", "no field \"text\"; there are: none; name one with --field");
    refuse("{\"content\":\"b\",\"id\":3}", "there are: content, id;");
    refuse("{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1,"
           "\"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\":1,\"c\":1,\"d\":1}",
           "...");
}

TEST(depth_is_bounded) {
    char line[2 * TW_JSON_DEPTH_MAX + 64], out[8];
    size_t bytes = 0;
    for (int depth = TW_JSON_DEPTH_MAX; depth <= TW_JSON_DEPTH_MAX + 1; depth++) {
        int used = snprintf(line, sizeof(line), "{\"a\":");
        for (int i = 0; i < depth; i++) line[used++] = '[';
        for (int i = 0; i < depth; i++) line[used++] = ']';
        memcpy(line + used, ",\"text\":\"b\"}", 13);
        struct tw_error err;
        const enum tw_status status = field_of(line, strlen(line), out, &bytes, &err);
        assert_int_equal(status, depth <= TW_JSON_DEPTH_MAX ? TW_OK : TW_DATA);
        if (status != TW_OK) assert_non_null(strstr(err.message, "brackets"));
    }
}
