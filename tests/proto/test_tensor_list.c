/* Tests of proto/run/layout.c: model.tensors as text. */
#include "tests/test.h"

#include "proto/run/layout.h"

static struct tw_error err;
static struct tw_tensor_list_size size;

/* The tensors of a list as text: "name 2x3;". */
static char names[1 << 20];
static size_t names_size;

static void note(void *self, const char *name, const struct tw_tensor_shape *shape) {
    names_size += (size_t)snprintf(names + names_size, sizeof(names) - names_size, "%s ", name);
    for (uint32_t i = 0; i < shape->rank; i++)
        names_size += (size_t)snprintf(names + names_size, sizeof(names) - names_size, "%s%u",
                                       i > 0 ? "x" : "", shape->sides[i]);
    names_size += (size_t)snprintf(names + names_size, sizeof(names) - names_size, ";");
    assert_true(names_size < sizeof(names));
}

static void expand(const char *text) {
    if (tw_tensor_list_check(text, &size, &err) != TW_OK) fail_msg("%s: %s", text, err.message);
    names_size = 0;
    tw_tensor_list_expand(text, note, NULL);
}

TEST(lists_expand_to_their_golden_tensors) {
    const struct {
        const char *text, *tensors;
        uint64_t elements;
        uint32_t count, layers;
    } rows[] = {
        {"w:5", "w 5;", 5, 1, 1},
        {"b:3 a:2x3x4x5x6x7", "b 3;a 2x3x4x5x6x7;", 3 + 5040, 2, 1},
        /* a group is listed layer by layer */
        {"h.{0-1}.a:2x2 h.{0-1}.b:3 n:1", "h.0.a 2x2;h.0.b 3;h.1.a 2x2;h.1.b 3;n 1;", 15, 5, 2},
        /* a different list of numbers starts another group */
        {"h.{0-1}.a:1 h.{0,2}.b:1", "h.0.a 1;h.1.a 1;h.0.b 1;h.2.b 1;", 4, 4, 2},
        {"a.{0,2}.x:4 a.{0,2}.y.{7-8}:2x3 b:5",
         "a.0.x 4;a.0.y.7 2x3;a.0.y.8 2x3;a.2.x 4;a.2.y.7 2x3;a.2.y.8 2x3;b 5;", 37, 7, 2},
        {"l.{0-1}.e.{0-2}.w1:1 l.{0-1}.e.{0-2}.w2:1",
         "l.0.e.0.w1 1;l.0.e.0.w2 1;l.0.e.1.w1 1;l.0.e.1.w2 1;l.0.e.2.w1 1;l.0.e.2.w2 1;"
         "l.1.e.0.w1 1;l.1.e.0.w2 1;l.1.e.1.w1 1;l.1.e.1.w2 1;l.1.e.2.w1 1;l.1.e.2.w2 1;",
         12, 12, 2},
        {"{8-10,12}-_.Z:1", "8-_.Z 1;9-_.Z 1;10-_.Z 1;12-_.Z 1;", 4, 4, 4},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expand(rows[i].text);
        assert_string_equal(names, rows[i].tensors);
        assert_int_equal(size.tensors, rows[i].count);
        assert_int_equal(size.layers, rows[i].layers);
        assert_int_equal(size.elements, rows[i].elements);
    }
}

TEST(wrong_lists_are_refused_with_the_reason) {
    const struct {
        const char *text, *why;
    } rows[] = {
        {"", "has no shape"},
        {"a", "`a` has no shape"},
        {"a:2 ", "has no shape"},
        {" a:2", "has no shape"},
        {"a:2  b:2", "has no shape"},
        {"a 2", "has no shape"},
        {":2", "has no name"},
        {"a:", "has a shape that"},
        {"a:0", "has a shape that"},
        {"a:02", "has a shape that"},
        {"a:2x", "has a shape that"},
        {"a:x2", "has a shape that"},
        {"a:-2", "has a shape that"},
        {"a:2147483648", "has a shape that"},
        {"a:99999999999999999999999", "has a shape that"},
        {"a:2y", "has characters after its shape"},
        {"a:2\tb:2", "has characters after its shape"},
        {"a:2:3", "has characters after its shape"},
        {"a:1x1x1x1x1x1x1", "more than 6 numbers"},
        {"a:2x65536x65536", "has rows of more than 2^32 elements"},
        {"a:2147483647x513", "has more than 2^40 elements"},
        {"a:1048576x1048576 b:1", "more than 2^40 elements"},
        {"a/b:2", "other characters"},
        {"a\"b:2", "other characters"},
        {"a\n:2", "other characters"},
        {"a=b:2", "other characters"},
        {"a}:2", "other characters"},
        {"a#:2", "other characters"},
        {"a{0-1:2", "has an open brace"},
        {"a.{0-1}.{0-1}.{0-1}:2", "more than two pairs of braces"},
        {"a.{}:2", "ascending numbers"},
        {"a.{3}:2", "ascending numbers"},
        {"a.{3-3}:2", "ascending numbers"},
        {"a.{3-2}:2", "ascending numbers"},
        {"a.{2,1}:2", "ascending numbers"},
        {"a.{1,1}:2", "ascending numbers"},
        {"a.{0,1}:2", "ascending numbers"}, /* must be written {0-1} */
        {"a.{0-2,3}:2", "ascending numbers"},
        {"a.{0-02}:2", "ascending numbers"},
        {"a.{0-1,}:2", "ascending numbers"},
        {"a.{,0-1}:2", "ascending numbers"},
        {"a.{0-1 }:2", "ascending numbers"},
        {"a.{0--1}:2", "ascending numbers"},
        {"a.{0-1-2}:2", "ascending numbers"},
        {"a.{0-1000000}:2", "ascending numbers"},
        {"a.{0-4096}:1", "more than 4096 tensors"},
        {"a.{0-999999}.{0-999999}:1", "more than 4096 tensors"},
        {"b.{0-99}:1 a.{0-3999}:1", "more than 4096 tensors"},
        {"a:1 a:1", "a is there twice"},
        {"a.1:1 a.{0-2}:2", "a.1 is there twice"},
        {"a.{0-1}:1 a.{1-2}:2", "a.1 is there twice"},
        {"__metadata__:1", "safetensors files use for other things"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (tw_tensor_list_check(rows[i].text, &size, &err) != TW_CONFIG)
            fail_msg("accepted: %s", rows[i].text);
        if (strstr(err.message, rows[i].why) == NULL) fail_msg("%s: %s", rows[i].text, err.message);
    }
}

/* The limit applies to the longest name, which has the last number in braces. */
TEST(names_end_at_127_characters) {
    char text[256];
    const char *const ends[] = {"", ".{0-10}", ".{8-9,100}.{2-3}"};
    const size_t lengths[] = {0, 3, 6};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const int fill = (int)(TW_TENSOR_NAME_BYTES - 1 - lengths[i]);
        (void)snprintf(text, sizeof(text), "%0*d%s:1", fill, 0, ends[i]);
        expand(text);
        (void)snprintf(text, sizeof(text), "%0*d%s:1", fill + 1, 0, ends[i]);
        assert_int_equal(tw_tensor_list_check(text, &size, &err), TW_CONFIG);
        assert_non_null(strstr(err.message, "more than 127 characters"));
    }
}

TEST(a_list_may_be_as_long_as_its_room) {
    enum { MOST = TW_TENSORS_TEXT_BYTES - 1 };
    static char text[TW_TENSORS_TEXT_BYTES + 1];
    size_t at = 0;
    for (unsigned i = 0; at < MOST - 100; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "a%u:1 ", i);
    while (at < MOST - 2) text[at++] = 'z';
    text[at++] = ':';
    text[at++] = '1';
    if (tw_tensor_list_check(text, &size, &err) != TW_OK) fail_msg("%s", err.message);
    text[at] = '1';
    text[at + 1] = '\0';
    assert_int_equal(tw_tensor_list_check(text, &size, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "more than 8191 characters"));
}
