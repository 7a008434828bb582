/* Tests of worker/tokenizer/bpe_pattern.c: patterns match as in Oniguruma, or are refused. */
#include "worker/tokenizer/bpe_pattern.h"

#include "tests/test.h"

static struct tw_bpe_matcher matcher;
static struct tw_error err;

/* Splits a text into pieces, each followed by |. Text between matches is in ( ). */
static void assert_split(const char *regex, const char *text, const char *wanted) {
    struct tw_bpe_pattern pattern = {.code = NULL};
    const struct tw_bpe_piece piece = {(const uint8_t *)text, strlen(text)};
    char found[256] = "";
    assert_int_equal(tw_bpe_pattern_compile(&pattern, regex, &err), TW_OK);
    for (size_t from = 0; from < piece.bytes;) {
        struct tw_bpe_range match;
        assert_int_equal(tw_bpe_matcher_next(&matcher, &pattern, piece, from, &match, &err), TW_OK);
        const int gap = (int)(match.begin - from), size = (int)(match.end - match.begin);
        const size_t used = strlen(found);
        (void)snprintf(found + used, sizeof(found) - used, gap > 0 ? "(%.*s)%.*s|" : "%.*s%.*s|",
                       gap, text + from, size, text + match.begin);
        from = match.end;
    }
    assert_string_equal(found, wanted);
    tw_bpe_pattern_free(&pattern);
}

static void assert_refused(const char *regex, const char *why) {
    struct tw_bpe_pattern pattern = {.code = NULL};
    assert_int_equal(tw_bpe_pattern_compile(&pattern, regex, &err), TW_CONFIG);
    if (strstr(err.message, why) == NULL) fail_msg("%s: %s", regex, err.message);
    assert_null(pattern.code);
}

TEST(classes_are_those_of_unicode) {
    assert_split("\\s+", "a \xE2\x80\xA8\xC2\x85 b", "(a) \xE2\x80\xA8\xC2\x85 |(b)|");
    /* U+180E is not white space */
    assert_split("\\s+", "a\xE1\xA0\x8E b", "(a\xE1\xA0\x8E) |(b)|");
    /* U+180E is not white space */
    assert_split("\\S+",
                 "a\xE1\xA0\x8E"
                 "b c",
                 "a\xE1\xA0\x8E"
                 "b|( )c|");
    assert_split("[^\\s\\d]+",
                 "ab1 \xD9\xA3"
                 "c",
                 "ab|(1 \xD9\xA3)c|");
    assert_split("\\p{Han}+|\\p{^L}",
                 "\xE4\xB8\xAD"
                 "a1",
                 "\xE4\xB8\xAD|(a)1|");
    assert_split("[\\u4e00-\\u9fff]+",
                 "a\xE4\xB8\xAD"
                 "b",
                 "(a)\xE4\xB8\xAD|(b)|");
    assert_split("\\x{41}{2}|.", "AAA\n", "AA|A|(\n)|");
    assert_split("(?i:'s|'LL)", "it'S 'll", "(it)'S|( )'ll|");
    assert_split("\\p{N}{1,3}", "12345", "123|45|");
    assert_split("a(?=b)|(?<=b)c|(?<!x)d", "abcd xd", "a|(b)c|d|( xd)|");
}

TEST(syntax_with_two_meanings_is_refused) {
    assert_refused("\\w+", "\\w+");
    assert_refused("a\\b", "\\b");
    assert_refused("\\h", "escapes");
    assert_refused("[a[bc]]", "class within a class");
    assert_refused("[a-z&&b]", "intersection");
    assert_refused("[[:alpha:]]", "class within a class");
    assert_refused("^a", "anchor");
    assert_refused("a$", "anchor");
    assert_refused("a{1,3}+", "repeat");
    assert_refused("a{,3}", "repeat");
    assert_refused("(?<name>a)", "groups");
    assert_refused("(?m:a)", "groups");
    assert_refused("(*ACCEPT)a", "groups");
    assert_refused("\\p{L", "category");
    assert_refused("\\p{Nonsense}", "split pattern");
    assert_refused("[]", "empty class");
    assert_refused("[a", "split pattern");
    assert_refused("(a", "split pattern");
    assert_refused("a\\", "escapes");
    assert_refused("", "bytes");
    assert_refused("a*", "the empty string");
    assert_refused("(?=a)", "the empty string");
}

TEST(a_literal_is_quoted) {
    char regex[64] = "";
    regex[tw_bpe_pattern_quote("a.b \\E", regex, sizeof(regex))] = 0;
    assert_split(regex, "axb a.b \\E", "(axb )a.b \\E|");
    assert_int_equal(tw_bpe_pattern_quote("a.b", regex, 4), 0);
}

TEST(a_pattern_that_explodes_gives_up) {
    struct tw_bpe_pattern pattern = {.code = NULL};
    struct tw_bpe_piece piece = {(const uint8_t *)"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacb",
                                 46};
    struct tw_bpe_range match;
    assert_int_equal(tw_bpe_pattern_compile(&pattern, "(?:a|a|aa)+b", &err), TW_OK);
    assert_int_equal(tw_bpe_matcher_next(&matcher, &pattern, piece, 0, &match, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "gives up"));
    tw_bpe_pattern_free(&pattern);
}

static int start(void **state) {
    return tw_bpe_matcher_init(&matcher, &err) != TW_OK;
}

static int stop(void **state) {
    tw_bpe_matcher_deinit(&matcher);
    return 0;
}

int main(void) {
    return test_run(start, stop);
}
