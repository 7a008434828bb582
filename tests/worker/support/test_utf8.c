/* test_utf8.c - characters come out whole, invalid bytes as U+FFFD. */
#include "worker/support/utf8.h"

#include <stdbool.h>

#include "base/rng.h"
#include "tests/test.h"

#define BAD "\xEF\xBF\xBD"

static size_t stream(const uint8_t *text, size_t size, uint8_t *out) {
    struct tw_utf8_stream held = {.held_bytes = 0};
    size_t written = 0;
    for (size_t i = 0; i < size; i++) {
        const size_t n = tw_utf8_take(&held, text[i], out + written);
        assert_true(n <= TW_UTF8_TAKE_BYTES);
        for (size_t k = 0; k < n;) { /* output is whole characters at any time */
            const int one = tw_utf8_size(out + written + k, n - k);
            assert_true(one > 0);
            k += (size_t)one;
        }
        written += n;
    }
    return written + tw_utf8_end(&held, out + written);
}

static void assert_stream(const char *text, const char *wanted) {
    uint8_t out[256];
    const size_t size = stream((const uint8_t *)text, strlen(text), out);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(out, wanted, size);
}

TEST(well_formed_text_passes_unchanged) {
    const char *const text = "plain, \xC3\xA9, \xE2\x82\xAC, \xF0\x9F\x9A\x80, \xED\x9F\xBF, \n";
    assert_stream(text, text);
}

TEST(a_character_waits_for_its_last_byte) {
    struct tw_utf8_stream held = {.held_bytes = 0};
    uint8_t out[TW_UTF8_TAKE_BYTES];
    assert_int_equal(tw_utf8_take(&held, 0xE2, out), 0);
    assert_int_equal(tw_utf8_take(&held, 0x82, out), 0);
    assert_int_equal(tw_utf8_take(&held, 0xAC, out), 3);
    assert_memory_equal(out, "\xE2\x82\xAC", 3);
}

TEST(invalid_utf8_is_replaced_byte_by_byte) {
    assert_stream("a\x80"
                  "b",
                  "a" BAD "b");
    assert_stream("\xC3(", BAD "(");
    assert_stream("\xC0\xAF", BAD BAD);         /* overlong */
    assert_stream("\xE0\x80\x80", BAD BAD BAD); /* overlong */
    assert_stream("\xED\xA0\x80", BAD BAD BAD); /* surrogate */
    assert_stream("\xF4\x90\x80\x80", BAD BAD BAD BAD);
    assert_stream("\xF0\x9F\x9A", BAD BAD BAD); /* ends too early */
    assert_stream("\xE2\x82\xC3\xA9", BAD BAD "\xC3\xA9");
}

TEST(any_bytes_come_out_as_well_formed_text) {
    struct tw_rng rng;
    static uint8_t text[4096], out[3 * 4096];
    tw_rng_seed(&rng, 20);
    for (unsigned round = 0; round < 50; round++) {
        for (size_t i = 0; i < sizeof(text); i++) {
            const uint64_t random = tw_rng_next(&rng);
            text[i] = (uint8_t)(random % 3 == 0 ? random >> 8 : 0x80 + (random >> 8) % 0x80);
        }
        (void)stream(text, sizeof(text), out);
    }
}
