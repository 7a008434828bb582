/* The kind of an input is recognised from its first bytes. */
#include "base/input_kind.h"

#include "tests/test.h"

static void check(enum tw_input_kind want, const char *text) {
    const enum tw_input_kind found =
        tw_input_kind_of(&(struct tw_file_start){NULL, (const uint8_t *)text, strlen(text), true});
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
        const struct tw_file_start start = {NULL, (const uint8_t *)LINE, size, false};
        assert_int_equal(tw_input_kind_of(&start), TW_INPUT_LINES);
    }
    for (size_t size = 8; size < sizeof(ARRAY); size++) {
        const struct tw_file_start start = {NULL, (const uint8_t *)ARRAY, size, false};
        assert_int_equal(tw_input_kind_of(&start), TW_INPUT_ARRAY);
    }
}

TEST(a_name_that_claims_json_is_never_text) {
    const struct tw_file_start text = {"a.jsonl.GZ", (const uint8_t *)"text", 4, true};
    const struct tw_file_start array = {"a.json", (const uint8_t *)"[1]", 3, true};
    assert_int_equal(tw_input_kind_of(&text), TW_INPUT_LINES);
    assert_int_equal(tw_input_kind_of(&array), TW_INPUT_ARRAY);
}

TEST(latin_1_is_told_from_stray_bytes) {
    char text[400];
    for (size_t i = 0; i < sizeof(text); i++) text[i] = i % 20 == 0 ? '\xE9' : 'a';
    assert_true(tw_input_is_other_encoding((const uint8_t *)text, sizeof(text)));
    assert_false(tw_input_is_other_encoding((const uint8_t *)text, 300)); /* 15 invalid bytes */
    for (size_t i = 10; i + 1 < sizeof(text); i += 20) memcpy(text + i, "\xC3\xA9", 2);
    assert_false(tw_input_is_other_encoding((const uint8_t *)text, sizeof(text)));
}

/* ---- the check of all commands --------------------------------------------------------------- */

/* The message with which the use is refused, or "". */
static const char *refused(const char *path, const void *bytes, size_t size, enum tw_file_use use) {
    static struct tw_error err;
    const struct tw_file_start start = {path, bytes, size, size < TW_FILE_LOOK_BYTES};
    err.message[0] = 0;
    const enum tw_status status = tw_file_check(&start, use, NULL, &err);
    assert_int_equal(status == TW_OK ? TW_OK : TW_DATA, status);
    return status == TW_OK ? "" : err.message;
}

static void repeat(char *text, size_t room, const char *head, const char *line) {
    size_t used = (size_t)snprintf(text, room, "%s", head);
    while (used + strlen(line) < room)
        used += (size_t)snprintf(text + used, room - used, "%s", line);
}

TEST(pointers_of_git_lfs_are_named) {
    static const char POINTER[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
    for (unsigned use = TW_USE_BYTES; use <= TW_USE_PLAIN; use++) {
        assert_non_null(strstr(refused("x", POINTER, strlen(POINTER), use), "git lfs pull"));
    }
}

/* Tokens of nanoGPT are 16-bit numbers without a header: read as bytes, every second one is easy to
 * guess. Found at any place of the bytes looked at. */
TEST(numbers_are_no_text) {
    static uint8_t bytes[TW_FILE_LOOK_BYTES];
    memset(bytes, 'a', sizeof(bytes));
    assert_string_equal(refused("x", bytes, sizeof(bytes), TW_USE_BYTES), "");
    assert_non_null(strstr(refused("x", bytes, sizeof(bytes), TW_USE_NUMBERS_2), "is text"));
    bytes[678] = 0;
    const char *const said = refused("x", bytes, sizeof(bytes), TW_USE_BYTES);
    assert_non_null(strstr(said, "x is not text: byte 679 of it is NUL"));
    assert_non_null(strstr(said, "data.tokenizer=ids"));
    assert_string_equal(refused("x", bytes, sizeof(bytes), TW_USE_NUMBERS_2), "");
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = i % 4 < 2 ? (uint8_t)(i % 251) : 0;
    assert_non_null(strstr(refused("x", bytes, sizeof(bytes), TW_USE_NUMBERS_2), "uint16"));
    assert_string_equal(refused("x", bytes, sizeof(bytes), TW_USE_NUMBERS_4), "");
}

/* Files that `data prepare` refuses or reads in a form of its own never become a run's bytes. */
TEST(a_run_refuses_what_prepare_refuses) {
    static const char HTML[] = "<!doctype html><p>a";
    static char latin[400];
    for (size_t i = 0; i < sizeof(latin); i++) latin[i] = i % 20 == 0 ? '\xE9' : 'a';
    for (unsigned use = TW_USE_BYTES; use <= TW_USE_PLAIN; use++) {
        if (use == TW_USE_NUMBERS_2 || use == TW_USE_NUMBERS_4) continue;
        assert_non_null(strstr(refused("x", latin, sizeof(latin), use), "iconv"));
        const char *const html = refused("x", HTML, strlen(HTML), use);
        assert_true(use == TW_USE_DOCUMENTS ? strstr(html, "lynx") != NULL : html[0] == 0);
    }
    static const char *const JSON[] = {"{\"text\": \"a\"}\n", "[{\"text\": \"a\"}]",
                                       "\"a\"\n\"b\"\n"};
    for (unsigned i = 0; i < 3; i++) {
        const char *const said = refused("x", JSON[i], strlen(JSON[i]), TW_USE_BYTES);
        assert_non_null(strstr(said, "`thinwire data prepare`"));
        assert_string_equal(refused("x", JSON[i], strlen(JSON[i]), TW_USE_DOCUMENTS), "");
    }
    assert_non_null(strstr(refused("x", "\x1F\x8B\x08", 3, TW_USE_BYTES), "packed by gzip"));
    assert_non_null(strstr(refused("x", "\x1F\x8B\x08", 3, TW_USE_PLAIN), "compressed twice"));
}

TEST(tables_are_known_by_name_or_by_eight_equal_records) {
    static const struct {
        const char *head, *line, *said; /* said: part of the message, or NULL if it is a text */
    } TEXTS[] = {
        {"id,text\n", "1,\"a, b\n c\"\n", "read_csv('IN')"},
        {"\xEF\xBB\xBFid;text\r\n", "1;\"he said \"\"no\"\"\"\r\n", "sep=';'"},
        {"\"id\"\ttext\n", "1\ta b\n", "sep='\\t'"},
        {"id,text,\n", "1,a,\n", NULL},                        /* a field without a name */
        {"In the end, it rained.\n", "Well, it did.\n", NULL}, /* sentences */
        {"1,5\n", "2,5\n", NULL},                              /* numbers */
        {"a,b\n", "no comma\n", NULL},
        {"one word\n", "a line\n", NULL},
    };
    static char text[400];
    for (unsigned i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        repeat(text, sizeof(text), TEXTS[i].head, TEXTS[i].line);
        for (unsigned use = TW_USE_BYTES; use <= TW_USE_DOCUMENTS; use += TW_USE_DOCUMENTS) {
            const char *const said = refused("x.txt", text, strlen(text), use);
            if (TEXTS[i].said == NULL) assert_string_equal(said, "");
            if (TEXTS[i].said != NULL) assert_non_null(strstr(said, TEXTS[i].said));
        }
        assert_string_equal(refused("x.txt", text, strlen(text), TW_USE_PLAIN), "");
    }
    repeat(text, 40, "id,text\n", "1,a\n"); /* few records */
    text[24] = 0;
    assert_string_equal(refused("x.txt", text, strlen(text), TW_USE_BYTES), "");
    assert_non_null(strstr(refused("x.CSV.zst", text, strlen(text), TW_USE_BYTES), "a table"));
}

TEST(pictures_and_numbers_are_binary_tables_are_not) {
    bool is_binary = false;
    const struct tw_file_start picture = {"x", (const uint8_t *)"GIF89a", 6, true};
    const struct tw_file_start table = {"x.csv", (const uint8_t *)"a,b\n", 4, true};
    assert_int_equal(tw_file_check(&picture, TW_USE_DOCUMENTS, &is_binary, NULL), TW_DATA);
    assert_true(is_binary);
    assert_int_equal(tw_file_check(&table, TW_USE_DOCUMENTS, &is_binary, NULL), TW_DATA);
    assert_false(is_binary);
}
