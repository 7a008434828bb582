/* fuzz_record_cut.c - arbitrary bytes as a JSON array, as JSON objects and as a tar archive that
 * arrive in pieces. Every byte belongs to one document, documents do not depend on the pieces, and
 * every kind has a name. Input: form, size of a piece, the text. */
#include <string.h>

#include "base/assert.h"
#include "base/file_kind.h"
#include "base/input_kind.h"
#include "worker/data/text_cut.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum tw_cut cut_one(unsigned form, const uint8_t *text, size_t size, bool is_first,
                           bool is_end, struct tw_text_cut *cut, struct tw_error *err) {
    if (form == 0) return tw_json_cut_array(text, size, is_first, is_end, cut, err);
    if (form == 1) return tw_json_cut_objects(text, size, is_end, cut, err);
    return tw_tar_cut(text, size, is_end, cut, err);
}

/* If a prefix of the text already yields a document, a longer prefix must yield the same one. */
static void check_pieces(unsigned form, const uint8_t *text, size_t size, bool is_first,
                         size_t piece, enum tw_cut whole, struct tw_text_cut want) {
    for (size_t there = piece; there < size; there += piece + there / 2) {
        struct tw_text_cut cut;
        struct tw_error err;
        const enum tw_cut result = cut_one(form, text, there, is_first, false, &cut, &err);
        if (result != TW_CUT_DOCUMENT || cut.bytes == 0) continue;
        TW_ASSERT(whole == TW_CUT_DOCUMENT);
        TW_ASSERT(memcmp(&cut, &want, sizeof(cut)) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const unsigned form = data[0] % 3;
    const size_t piece = 1 + (data[1] | (size_t)data[2] << 8), all = size - 3;
    const uint8_t *const text = data + 3;
    (void)tw_file_kind_of(text, all);
    const struct tw_file_start start = {.path = (data[0] & 128) != 0 ? "x.JSON.gz" : NULL,
                                        .bytes = text,
                                        .size = all,
                                        .is_all = (data[0] & 64) != 0};
    TW_ASSERT(tw_input_kind_of(&start) < TW_INPUT_TOKENS);
    for (unsigned use = 0; use <= TW_USE_PLAIN; use++) {
        struct tw_error why;
        const enum tw_status status = tw_file_check(&start, use, NULL, &why);
        TW_ASSERT(status == TW_OK || status == TW_DATA);
    }
    (void)tw_input_is_other_encoding(text, all);
    (void)tw_tar_members_of(text, all);
    for (size_t at = 0; at < all;) {
        struct tw_text_cut cut;
        struct tw_error err = {.message = ""};
        const enum tw_cut result = cut_one(form, text + at, all - at, at == 0, true, &cut, &err);
        check_pieces(form, text + at, all - at, at == 0, piece, result, cut);
        if (result == TW_CUT_BROKEN) {
            TW_ASSERT(err.status == TW_DATA && err.message[0] != 0);
            break;
        }
        if (result == TW_CUT_TOO_LONG) break;
        TW_ASSERT(result == TW_CUT_DOCUMENT);
        TW_ASSERT(cut.taken > 0 && cut.taken <= all - at);
        TW_ASSERT(cut.begin + cut.bytes <= cut.taken);
        at += cut.taken;
    }
    return 0;
}
