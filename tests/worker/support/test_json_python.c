/* JSON as Python writes it becomes JSON that jansson reads; other JSON is left alone. */
#include "tests/test.h"
#include "worker/support/hf_json.h"

static void check(const char *json, const char *want) {
    char *out = NULL;
    size_t size = 0;
    assert_int_equal(tw_json_python(json, strlen(json), true, &out, &size, NULL), TW_OK);
    if (want == NULL) {
        assert_null(out);
        return;
    }
    assert_non_null(out);
    assert_int_equal(size, strlen(want));
    assert_memory_equal(out, want, size);
    free(out);
}

TEST(numbers_without_an_end_are_strings) {
    check("{\"a\": NaN, \"b\": [Infinity, -Infinity]}",
          "{\"a\": \"NaN\", \"b\": [\"Infinity\", \"-Infinity\"]}");
    check("[1e999,-1e999]", "[\"Infinity\",\"-Infinity\"]");
    check("{\"NaN\": \"Infinity\"}", NULL);
}

TEST(integers_beyond_64_bits_are_real) {
    check("[1000000000000000019884624838656]", "[1.000000000000e+30]");
    check("[18446744073709551615, -9223372036854775809]",
          "[1.844674407371e+19, -9.223372036855e+18]");
    check("[9223372036854775807, -9223372036854775808, 0, -1.5e-7, 1E5]", NULL);
}

TEST(strings_that_are_no_text_are_replaced) {
    check("[\"a\\u0000b\", \"\\ud800\", \"\\udc00x\", \"\\ud83d\\ude00\", \"\\\\u0000\"]",
          "[\"a\\ufffdb\", \"\\ufffd\", \"\\ufffdx\", \"\\ud83d\\ude00\", \"\\\\u0000\"]");
    check("[\"\\\"\", \"\\u00e9\\n\"]", NULL);
}

TEST(files_of_a_model_are_read_so) {
    static const char CONFIG[] = "{\"model_max_length\": 1000000000000000019884624838656, "
                                 "\"x\": NaN, \"name\": \"\\u0000\", \"layers\": 3}";
    json_t *root = NULL;
    struct tw_error err = {.message = ""};
    if (tw_hf_json_parse(&root, CONFIG, sizeof(CONFIG) - 1, 1000, &err) != TW_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(json_integer_value(json_object_get(root, "layers")), 3);
    assert_false(json_is_number(json_object_get(root, "x")));
    json_decref(root);
    /* Strings may be tokens, so the exact parser changes none: it refuses this file. */
    assert_int_equal(tw_hf_json_parse_exact(&root, CONFIG, sizeof(CONFIG) - 1, 1000, &err),
                     TW_CORRUPT);
    static const char LARGE[] = "{\"max_length\": 18446744073709551615}";
    assert_int_equal(tw_hf_json_parse_exact(&root, LARGE, sizeof(LARGE) - 1, 1000, &err), TW_OK);
    json_decref(root);
    static const char BROKEN[] = "{\"a\": NaN,\n \"b\": }";
    assert_int_equal(tw_hf_json_parse(&root, BROKEN, sizeof(BROKEN) - 1, 1000, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "line 2, column"));
}
