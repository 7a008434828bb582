/* Tests of worker/tokenizer/bpe_pattern.c: normalising a text piece by piece gives the same as
 * normalising it whole. */
#include "worker/tokenizer/bpe_pattern.h"

#include <utf8proc.h>

#include "base/rng.h"
#include "tests/test.h"

static const struct tw_bpe_nfc *nfc;
static struct tw_bpe_nfc_buffer buffer;
static struct tw_error err;

/* The code point before Hangul's final consonants. After a syllable, utf8proc_map drops it. */
enum { NO_FINAL = 0x11A7 };

static void assert_normal(const uint8_t *text, size_t bytes) {
    struct tw_bpe_piece piece = {text, bytes};
    uint8_t *wanted = NULL;
    const utf8proc_ssize_t size =
        utf8proc_map(text, (utf8proc_ssize_t)bytes, &wanted, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(size >= 0);
    assert_int_equal(tw_bpe_nfc_apply(nfc, &buffer, &piece, &err), TW_OK);
    assert_int_equal(piece.bytes, size);
    assert_memory_equal(piece.text, wanted, (size_t)size);
    free(wanted);
}

static size_t put(uint8_t *text, int32_t code) {
    return (size_t)utf8proc_encode_char(code, text);
}

TEST(every_character_becomes_its_normal_form) {
    for (int32_t code = 1; code < 0x110000; code++) {
        uint8_t text[32];
        size_t bytes = 0;
        if (code >= 0xD800 && code < 0xE000) continue;
        bytes += put(text + bytes, 'a');
        bytes += put(text + bytes, code);
        bytes += put(text + bytes, code);
        bytes += put(text + bytes, 0x316); /* a mark below, which sorts before most marks above */
        bytes += put(text + bytes, 0xAC00);
        assert_normal(text, bytes);
    }
}

/* Characters that compose need not be marks: two vowel signs of Bengali, or a vowel and a final of
 * Hangul. */
TEST(parts_of_every_character_come_together) {
    for (int32_t code = 1; code < 0x30000; code++) {
        int32_t parts[TW_BPE_NFC_PARTS_MAX];
        uint8_t text[64];
        size_t bytes = 0;
        if (code >= 0xD800 && code < 0xE000) continue;
        const utf8proc_ssize_t count = utf8proc_decompose_char(
            code, parts, TW_BPE_NFC_PARTS_MAX, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL);
        for (utf8proc_ssize_t i = 0; i < count; i++) bytes += put(text + bytes, parts[i]);
        assert_normal(text, bytes);
    }
    struct tw_bpe_piece kept = {(const uint8_t *)"\xEA\xB0\x80\xE1\x86\xA7", 6};
    assert_int_equal(tw_bpe_nfc_apply(nfc, &buffer, &kept, &err), TW_OK);
    assert_int_equal(kept.bytes, 6);
    struct tw_bpe_piece piece = {(const uint8_t *)"\xE0\xA7\x87\xE0\xA6\xBE", 6};
    assert_int_equal(tw_bpe_nfc_apply(nfc, &buffer, &piece, &err), TW_OK);
    assert_int_equal(piece.bytes, 3);
    assert_memory_equal(piece.text, "\xE0\xA7\x8B", 3);
}

TEST(random_text_becomes_its_normal_form) {
    static const int32_t FIRST[] = {' ',    'A',    0xC0,   0x300,  0x340,   0x590,   0x900,
                                    0x9B0,  0xB40,  0x1100, 0x1160, 0x11A0,  0x1E00,  0x1F00,
                                    0x2126, 0x3040, 0xAC00, 0xF900, 0x11090, 0x1D150, 0x2F800};
    const uint64_t seed = 4;
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (uint32_t round = 0; round < 20000; round++) {
        uint8_t text[256];
        size_t bytes = 0;
        const size_t count = (size_t)tw_rng_below(&rng, 60);
        for (size_t i = 0; i < count; i++) {
            const int32_t first = FIRST[tw_rng_below(&rng, sizeof(FIRST) / sizeof(*FIRST))];
            const int32_t code = first + (int32_t)tw_rng_below(&rng, 64);
            if (code != NO_FINAL) bytes += put(text + bytes, code);
        }
        assert_normal(text, bytes);
    }
}

TEST(normal_text_is_not_copied) {
    const uint8_t text[] = "plain, gr\xC3\xB6\xC3\x9F"
                           "er, \xE4\xB8\xAD\xE6\x96\x87, \xEA\xB0\x81";
    struct tw_bpe_piece piece = {text, sizeof(text) - 1};
    assert_int_equal(tw_bpe_nfc_apply(nfc, &buffer, &piece, &err), TW_OK);
    assert_ptr_equal(piece.text, text);
}

TEST(a_mountain_of_marks_is_cut) {
    enum { MARKS = 300 * 1000 };
    uint8_t *const text = malloc(2 * MARKS);
    assert_non_null(text);
    for (size_t i = 0; i < MARKS; i++) (void)put(text + 2 * i, i % 2 == 0 ? 0x301 : 0x316);
    struct tw_bpe_piece piece = {text, 2 * MARKS};
    assert_int_equal(tw_bpe_nfc_apply(nfc, &buffer, &piece, &err), TW_OK);
    assert_int_equal(piece.bytes, 2 * MARKS);
    assert_memory_equal(piece.text, "\xCC\x96\xCC\x96", 4); /* marks are sorted up to the limit */
    free(text);
}

static int start(void **state) {
    nfc = tw_bpe_nfc_table();
    return 0;
}

static int stop(void **state) {
    tw_bpe_nfc_buffer_deinit(&buffer);
    return 0;
}

int main(void) {
    return test_run(start, stop);
}
