/* fuzz_text_cut.c - arbitrary bytes as a text that arrives in pieces. Each byte is consumed once;
 * passages and whole texts contain every byte. Documents do not depend on the pieces. Input: u8
 * unit, u16 size of a piece, u8 repetitions, the text. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "worker/data/text_cut.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 19 };

/* If a prefix of the text already yields a document, a longer prefix must yield the same one. */
static void check_pieces(enum tw_text_unit unit, const uint8_t *text, size_t size, size_t piece,
                         struct tw_text_cut whole) {
    for (size_t there = piece; there < size; there += piece + there / 2) {
        struct tw_text_cut cut;
        const enum tw_cut result = tw_text_cut(unit, text, there, false, &cut);
        if (result == TW_CUT_MORE) continue;
        TW_ASSERT(result == TW_CUT_DOCUMENT);
        TW_ASSERT(cut.bytes == 0 || memcmp(&cut, &whole, sizeof(cut)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t text[ROOM];
    if (size < 4) return 0;
    const enum tw_text_unit unit = (enum tw_text_unit)(data[0] % 4);
    const size_t piece = 1 + (data[1] | (size_t)data[2] << 8),
                 times = data[3] < 250 ? 1 + data[3] % 16u : 2000;
    const uint8_t *const from = data + 4;
    size_t used = 0;
    for (size_t i = 0; i < times && used + size - 4 <= ROOM && size > 4; i++) {
        memcpy(text + used, from, size - 4);
        used += size - 4;
    }
    for (size_t at = 0; at < used;) {
        struct tw_text_cut cut;
        TW_ASSERT(tw_text_cut(unit, text + at, used - at, true, &cut) == TW_CUT_DOCUMENT);
        TW_ASSERT(cut.taken > 0 && cut.taken <= used - at);
        TW_ASSERT(cut.begin + cut.bytes <= cut.taken);
        TW_ASSERT(unit != TW_TEXT_PASSAGES || cut.bytes <= TW_PASSAGE_BYTES_MAX);
        TW_ASSERT(unit == TW_TEXT_LINES || unit == TW_TEXT_RECORDS || cut.bytes == cut.taken);
        check_pieces(unit, text + at, used - at, piece, cut);
        at += cut.taken;
    }
    return 0;
}
