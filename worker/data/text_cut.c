#include "worker/data/text_cut.h"

#include <string.h>

#include "worker/support/utf8.h"

static enum tw_cut found(struct tw_text_cut *cut, size_t taken) {
    *cut = (struct tw_text_cut){.taken = taken, .bytes = taken};
    return TW_CUT_DOCUMENT;
}

/* ---- passages -------------------------------------------------------------------------------- */

enum blank { NOT_BLANK, BLANK, UNKNOWN };

/* Whether the line at `at` is blank. If it is, *end is the start of the next line. */
static enum blank look_at_line(const uint8_t *text, size_t size, size_t at, bool is_end,
                               size_t *end) {
    while (at < size && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r')) at++;
    if (at == size) return is_end ? NOT_BLANK : UNKNOWN;
    *end = at + 1;
    return text[at] == '\n' ? BLANK : NOT_BLANK;
}

/* End of the last character that ends at or before TW_PASSAGE_BYTES_MAX. The text is at least that
 * long. */
static size_t character_end(const uint8_t *text) {
    for (size_t back = 1; back < TW_UTF8_BYTES_MAX; back++) {
        const size_t begin = TW_PASSAGE_BYTES_MAX - back;
        if ((text[begin] & 0xC0) == 0x80) continue; /* this byte continues a character */
        return tw_utf8_size(text + begin, back) < 0 ? begin : TW_PASSAGE_BYTES_MAX;
    }
    return TW_PASSAGE_BYTES_MAX;
}

/* A line end up to TW_PASSAGE_LINE_BYTES ends the passage only if blank lines follow; a later line
 * end always does. No passage is longer than TW_PASSAGE_BYTES_MAX. */
static enum tw_cut cut_passage(const uint8_t *text, size_t size, bool is_end,
                               struct tw_text_cut *cut) {
    const size_t most = size < TW_PASSAGE_BYTES_MAX ? size : TW_PASSAGE_BYTES_MAX;
    const bool is_last = is_end && size <= TW_PASSAGE_BYTES_MAX;
    /* all bytes on which this cut can depend are in the buffer */
    const bool is_all = is_end || size > TW_PASSAGE_BYTES_MAX;
    size_t at = TW_PASSAGE_BYTES - 1;
    while (at < most) {
        const uint8_t *const newline = memchr(text + at, '\n', most - at);
        if (newline == NULL) break;
        at = (size_t)(newline - text) + 1;
        if (at > TW_PASSAGE_LINE_BYTES) return found(cut, at);
        size_t end = at, next = at;
        enum blank blank = look_at_line(text, most, at, is_all, &next);
        while (blank == BLANK && next <= TW_PASSAGE_LINE_BYTES) {
            end = next;
            blank = look_at_line(text, most, end, is_all, &next);
        }
        if (blank == UNKNOWN) return TW_CUT_MORE;
        if (end > at) return found(cut, end);
    }
    if (is_last) return found(cut, size);
    return is_all ? found(cut, character_end(text)) : TW_CUT_MORE;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static enum tw_cut cut_line(const uint8_t *text, size_t size, bool is_end, size_t bytes_max,
                            struct tw_text_cut *cut) {
    size_t begin = 0;
    while (begin < size) {
        const bool is_return = text[begin] == '\r' && begin + 1 < size && text[begin + 1] == '\n';
        if (text[begin] != '\n' && !is_return) break;
        begin += is_return ? 2 : 1;
    }
    *cut = (struct tw_text_cut){.taken = begin, .begin = begin};
    if (begin == size) return TW_CUT_DOCUMENT;
    const uint8_t *const newline = memchr(text + begin, '\n', size - begin);
    const size_t end = newline != NULL ? (size_t)(newline - text) : size;
    /* One more byte is allowed, because a \r before the line end is not part of the line. */
    if (newline == NULL && !is_end) {
        return end - begin > bytes_max + 1 ? TW_CUT_TOO_LONG : TW_CUT_MORE;
    }
    cut->bytes = end - begin;
    if (newline != NULL && cut->bytes > 0 && text[end - 1] == '\r') cut->bytes--;
    cut->taken = newline != NULL ? end + 1 : end;
    return cut->bytes > bytes_max ? TW_CUT_TOO_LONG : TW_CUT_DOCUMENT;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static enum tw_cut cut_whole(size_t size, bool is_end, struct tw_text_cut *cut) {
    *cut = (struct tw_text_cut){.taken = size, .bytes = size};
    if (size > TW_DOCUMENT_BYTES_MAX) return TW_CUT_TOO_LONG;
    return is_end ? TW_CUT_DOCUMENT : TW_CUT_MORE;
}

enum tw_cut tw_text_cut(enum tw_text_unit unit, const uint8_t *text, size_t size, bool is_end,
                        struct tw_text_cut *cut) {
    switch (unit) {
    case TW_TEXT_PASSAGES: return cut_passage(text, size, is_end, cut);
    case TW_TEXT_LINES: return cut_line(text, size, is_end, TW_DOCUMENT_BYTES_MAX, cut);
    case TW_TEXT_RECORDS: return cut_line(text, size, is_end, TW_RECORD_TEXT_BYTES_MAX, cut);
    case TW_TEXT_WHOLE: break;
    }
    return cut_whole(size, is_end, cut);
}
