/* Where documents end: the cuts of each unit do not depend on the pieces in which the text arrives.
 */
#include "base/rng.h"
#include "tests/test.h"
#include "worker/data/text_cut.h"

enum { SEED = 11 };

static struct tw_text_cut cut(enum tw_text_unit unit, const void *text, size_t size) {
    struct tw_text_cut one;
    assert_int_equal(tw_text_cut(unit, text, size, true, &one), TW_CUT_DOCUMENT);
    return one;
}

static uint8_t *filled(size_t size, int with) {
    uint8_t *const text = malloc(size);
    assert_non_null(text);
    memset(text, with, size);
    return text;
}

TEST(short_text_is_one_passage) {
    const struct tw_text_cut one = cut(TW_TEXT_PASSAGES, "a\n\nb\n", 5);
    assert_int_equal(one.taken, 5);
    assert_int_equal(one.begin, 0);
    assert_int_equal(one.bytes, 5);
}

TEST(passage_ends_with_the_first_blank_lines_after_16_kib) {
    uint8_t *const text = filled(100000, 'x');
    memcpy(text + 10000, "\n\n", 2); /* too early */
    memcpy(text + 20000, "\n \t\r\n\nnext", 10);
    memcpy(text + 30000, "\n\n", 2); /* too late */
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 100000).taken, 20006);
    free(text);
}

TEST(passage_without_blank_lines_ends_with_a_line) {
    uint8_t *const text = filled(100000, 'x');
    text[17000] = text[TW_PASSAGE_LINE_BYTES - 2] = text[30000] = '\n';
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 100000).taken, 30001);
    /* After the first 20 KiB, a blank line counts only as a line end. */
    text[TW_PASSAGE_LINE_BYTES - 1] = ' ';
    text[TW_PASSAGE_LINE_BYTES] = '\n';
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 100000).taken, TW_PASSAGE_LINE_BYTES + 1);
    free(text);
}

TEST(passage_without_lines_ends_between_characters) {
    uint8_t *const text = filled(300000, 'x');
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 300000).taken, TW_PASSAGE_BYTES_MAX);
    memcpy(text + TW_PASSAGE_BYTES_MAX - 2, "\xE2\x82\xAC", 3);
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 300000).taken, TW_PASSAGE_BYTES_MAX - 2);
    memcpy(text + TW_PASSAGE_BYTES_MAX - 3, "\xE2\x82\xAC", 3);
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 300000).taken, TW_PASSAGE_BYTES_MAX);
    memset(text, 0x80, 300000); /* no characters at all */
    assert_int_equal(cut(TW_TEXT_PASSAGES, text, 300000).taken, TW_PASSAGE_BYTES_MAX);
    free(text);
}

TEST(lines_are_cut_at_their_ends) {
    struct tw_text_cut one = cut(TW_TEXT_LINES, "\n\r\n\nab\r\ncd", 10);
    assert_int_equal(one.begin, 4);
    assert_int_equal(one.bytes, 2);
    assert_int_equal(one.taken, 8);
    one = cut(TW_TEXT_LINES, "cd", 2);
    assert_int_equal(one.bytes, 2);
    one = cut(TW_TEXT_LINES, "\n\n", 2);
    assert_int_equal(one.bytes, 0);
    assert_int_equal(one.taken, 2);
    /* A lone \r may be the start of a line end. */
    assert_int_equal(tw_text_cut(TW_TEXT_LINES, (const uint8_t *)"ab\r", 3, false, &one),
                     TW_CUT_MORE);
}

TEST(too_long_text_is_reported_with_its_begin) {
    struct tw_text_cut one;
    const size_t size = TW_RECORD_TEXT_BYTES_MAX + 8;
    uint8_t *const text = filled(size, 'x');
    text[0] = '\n';
    assert_int_equal(tw_text_cut(TW_TEXT_RECORDS, text, size, false, &one), TW_CUT_TOO_LONG);
    assert_int_equal(one.begin, 1);
    text[TW_RECORD_TEXT_BYTES_MAX + 1] = '\n';
    assert_int_equal(tw_text_cut(TW_TEXT_RECORDS, text, size, false, &one), TW_CUT_DOCUMENT);
    assert_int_equal(one.bytes, TW_RECORD_TEXT_BYTES_MAX);
    assert_int_equal(tw_text_cut(TW_TEXT_LINES, text, size, true, &one), TW_CUT_TOO_LONG);
    assert_int_equal(tw_text_cut(TW_TEXT_WHOLE, text, TW_DOCUMENT_BYTES_MAX, true, &one),
                     TW_CUT_DOCUMENT);
    assert_int_equal(tw_text_cut(TW_TEXT_WHOLE, text, TW_DOCUMENT_BYTES_MAX + 1, false, &one),
                     TW_CUT_TOO_LONG);
    free(text);
}

/* Random text: lines of all lengths, blank lines, \r, and invalid UTF-8. */
static size_t wild(struct tw_rng *rng, uint8_t *text, size_t room) {
    size_t used = 0;
    while (used + 40000 < room) {
        const uint64_t kind = tw_rng_below(rng, 6);
        const size_t length = tw_rng_below(rng, kind == 0 ? 40000 : kind < 4 ? 900 : 3);
        for (size_t i = 0; i < length; i++) {
            text[used++] = (uint8_t)(kind == 4 ? ' ' : 0x80 | tw_rng_below(rng, 128));
        }
        if (tw_rng_below(rng, 4) == 0) text[used++] = '\r';
        if (tw_rng_below(rng, 8) > 0) text[used++] = '\n';
    }
    return used;
}

/* Cutting a prefix gives either TW_CUT_MORE or the same cut as the whole text. */
static void check_prefix(enum tw_text_unit unit, const uint8_t *text, size_t size,
                         struct tw_text_cut whole) {
    struct tw_text_cut one;
    const enum tw_cut result = tw_text_cut(unit, text, size, false, &one);
    if (result == TW_CUT_MORE) return;
    assert_int_equal(result, TW_CUT_DOCUMENT);
    if (one.bytes == 0) return; /* empty lines so far */
    assert_memory_equal(&one, &whole, sizeof(one));
}

TEST(cutting_does_not_depend_on_how_much_is_there) {
    static uint8_t text[600000];
    struct tw_rng rng;
    print_message("seed %d\n", SEED);
    tw_rng_seed(&rng, SEED);
    for (int round = 0; round < 20; round++) {
        const size_t size = wild(&rng, text, sizeof(text));
        for (enum tw_text_unit unit = TW_TEXT_PASSAGES; unit <= TW_TEXT_LINES; unit++) {
            size_t at = 0;
            while (at < size) {
                const struct tw_text_cut whole = cut(unit, text + at, size - at);
                for (int i = 0; i < 8; i++) {
                    check_prefix(unit, text + at, 1 + tw_rng_below(&rng, size - at), whole);
                }
                check_prefix(unit, text + at, whole.taken, whole);
                if (unit == TW_TEXT_PASSAGES) assert_int_equal(whole.bytes, whole.taken);
                assert_true(whole.taken > 0);
                at += whole.taken;
            }
            assert_int_equal(at, size);
        }
    }
}
