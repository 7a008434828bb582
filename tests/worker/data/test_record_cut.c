/* JSON arrays, JSON objects and tar archives are split into the same documents, in whatever pieces
 * their bytes arrive. Truncated or damaged texts are reported. */
#include "tests/test.h"
#include "worker/data/text_cut.h"

enum form { ARRAY, OBJECTS, TAR };

static enum tw_cut cut_one(enum form form, const char *text, size_t size, bool is_first,
                           bool is_end, struct tw_text_cut *cut, struct tw_error *err) {
    const uint8_t *const bytes = (const uint8_t *)text;
    if (form == ARRAY) return tw_json_cut_array(bytes, size, is_first, is_end, cut, err);
    if (form == OBJECTS) return tw_json_cut_objects(bytes, size, is_end, cut, err);
    return tw_tar_cut(bytes, size, is_end, cut, err);
}

/* Splits a text that arrives in pieces of `step` bytes. Writes each document to `out` after a '|',
 * and the message of a failure after a '!'. */
static void cut_all(enum form form, const char *text, size_t all, size_t step, char *out) {
    size_t at = 0, there = step < all ? step : all;
    out[0] = 0;
    while (at < all) {
        struct tw_text_cut cut;
        struct tw_error err;
        const enum tw_cut result =
            cut_one(form, text + at, there - at, at == 0, there == all, &cut, &err);
        if (result == TW_CUT_MORE || at == there) {
            assert_true(there < all);
            there = there + step < all ? there + step : all;
            continue;
        }
        if (result == TW_CUT_BROKEN) {
            (void)strcat(strcat(out, "!"), err.message);
            return;
        }
        assert_int_equal(result, TW_CUT_DOCUMENT);
        assert_true(cut.taken > 0 && cut.taken <= there - at);
        assert_true(cut.begin + cut.bytes <= cut.taken);
        if (cut.bytes > 0) (void)strncat(strcat(out, "|"), text + at + cut.begin, cut.bytes);
        at += cut.taken;
        if (at == there && there < all) there = there + step < all ? there + step : all;
    }
}

static void check(enum form form, const char *text, size_t size, const char *want) {
    char out[4096];
    for (size_t step = 1; step <= size; step = step < 9 ? step + 1 : 2 * step) {
        cut_all(form, text, size, step, out);
        if (strcmp(out, want) != 0) fail_msg("%zu: %s, not %s", step, out, want);
    }
    cut_all(form, text, size, size, out);
    assert_string_equal(out, want);
}

static void check_text(enum form form, const char *text, const char *want) {
    check(form, text, strlen(text), want);
}

TEST(arrays_are_cut_into_elements) {
    check_text(ARRAY, "[{\"a\": \"]},{\"}, {\"b\":[1,2]}]", "|{\"a\": \"]},{\"}|{\"b\":[1,2]}");
    check_text(ARRAY, " [\n\"a\\\"\\\\\" ,\n\"b\"\n]\n \n", "|\"a\\\"\\\\\"|\"b\"");
    check_text(ARRAY, "[1, null ,{}]", "|1|null|{}");
    check_text(ARRAY, "[ ]\n", "");
}

TEST(broken_arrays_are_told) {
    check_text(ARRAY, "[{},", "|{}!it ends before the ] of the array: it is cut short");
    check_text(ARRAY, "[{}", "!it ends before the ] of the array: it is cut short");
    check_text(ARRAY, "[{}, {\"a\": \"b", "|{}!it ends within a record: it is cut short");
    check_text(ARRAY, "[{} {}]", "|{}!no comma between two records");
    check_text(ARRAY, "[{}, ]", "|{}!no record after a comma");
    check_text(ARRAY, "[{}] x", "|{}!other text after the ] of the array");
    check_text(ARRAY, "[\"a\\\"", "!it ends within a record: it is cut short");
}

TEST(objects_are_cut_one_after_another) {
    check_text(OBJECTS, "{\n\"a\": {}\n}\n{\"b\": \"}\"}{}\n\n",
               "|{\n\"a\": {}\n}|{\"b\": \"}\"}|{}");
    check_text(OBJECTS, "{}, {}", "|{}!no { of an object");
    check_text(OBJECTS, "{}\n{\"a\":", "|{}!it ends within a record: it is cut short");
}

TEST(huge_records_are_told) {
    struct tw_text_cut cut;
    struct tw_error err;
    const size_t size = TW_RECORD_TEXT_BYTES_MAX + 100;
    char *const text = malloc(size);
    assert_non_null(text);
    memset(text, 'x', size);
    memcpy(text, "[\"", 2);
    assert_int_equal(cut_one(ARRAY, text, size, true, false, &cut, &err), TW_CUT_BROKEN);
    assert_non_null(strstr(err.message, "a record of more than 16 MiB"));
    free(text);
}

/* ---- tar ------------------------------------------------------------------------------------- */

static size_t put_member(char *to, const char *name, char type, const char *content) {
    unsigned sum = 0;
    const size_t size = strlen(content);
    memset(to, 0, TW_TAR_BLOCK);
    (void)snprintf(to, 100, "%s", name);
    (void)snprintf(to + 124, 12, "%011o", (unsigned)size);
    memset(to + 148, ' ', 8);
    to[156] = type;
    memcpy(to + 257, "ustar", 6);
    for (unsigned i = 0; i < TW_TAR_BLOCK; i++) sum += (unsigned char)to[i];
    (void)snprintf(to + 148, 8, "%06o", sum);
    const size_t blocks = (size + TW_TAR_BLOCK - 1) / TW_TAR_BLOCK;
    memset(to + TW_TAR_BLOCK, 0, blocks * TW_TAR_BLOCK);
    memcpy(to + TW_TAR_BLOCK, content, size);
    return (1 + blocks) * TW_TAR_BLOCK;
}

TEST(members_are_documents) {
    static char tar[16 * TW_TAR_BLOCK];
    size_t used = put_member(tar, "folder/", '5', "");
    used += put_member(tar + used, "long", 'L', "a/very/long/name");
    used += put_member(tar + used, "a.txt", '0', "one");
    used += put_member(tar + used, "empty", '0', "");
    used += put_member(tar + used, "b.txt", 0, "two");
    memset(tar + used, 0, (size_t)2 * TW_TAR_BLOCK);
    used += (size_t)2 * TW_TAR_BLOCK;
    check(TAR, tar, used, "|one|two");
    /* a second archive after the end of the first */
    used += put_member(tar + used, "c.txt", '0', "three");
    check(TAR, tar, used + TW_TAR_BLOCK, "|one|two|three");
    static const char CUT[] =
        "|one|two!it ends without the zeros that end an archive: it is cut short";
    check(TAR, tar, used, CUT);
    check(TAR, tar, used - 500, CUT);
    check(TAR, tar, used - 2 * TW_TAR_BLOCK + 100,
          "|one|two!it ends within a header: it is cut short");
    tar[used - 2 * TW_TAR_BLOCK]++;
    check(TAR, tar, used, "|one|two!no member begins here: it is damaged");
    (void)put_member(tar, "odd", 'S', "x");
    memcpy(tar + 124, "77777777777", 12);
    check(TAR, tar, used, "!no member begins here: it is damaged");
}

TEST(samples_of_webdataset_are_known) {
    static char tar[16 * TW_TAR_BLOCK];
    size_t used = put_member(tar, "d/0.json", '0', "{}");
    assert_int_equal(tw_tar_members_of((uint8_t *)tar, used), TW_TAR_ALL);
    const size_t one = used;
    used += put_member(tar + used, "d/0.txt", '0', "text");
    used += put_member(tar + used, "d/1.json", '0', "{}");
    assert_int_equal(tw_tar_members_of((uint8_t *)tar, used), TW_TAR_TEXTS);
    used = one + put_member(tar + one, "d/0.cls", '0', "5");
    memset(tar + used, 0, TW_TAR_BLOCK);
    assert_int_equal(tw_tar_members_of((uint8_t *)tar, used + TW_TAR_BLOCK), TW_TAR_JSON);
    used = put_member(tar, "a.c", '0', "int a;");
    used += put_member(tar + used, "a.h", '0', "extern int a;");
    assert_int_equal(tw_tar_members_of((uint8_t *)tar, used), TW_TAR_ALL);
    assert_true(tw_tar_is_member(TW_TAR_TEXTS, "x/0.caption.TXT"));
    assert_false(tw_tar_is_member(TW_TAR_TEXTS, "0.json"));
    assert_true(tw_tar_is_member(TW_TAR_JSON, "0.json"));
    assert_false(tw_tar_is_member(TW_TAR_JSON, "json"));
}
