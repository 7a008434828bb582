#include "worker/data/json_cut.h"

#include <string.h>

static enum tw_cut fail_cut(struct tw_error *err, const char *why) {
    (void)tw_fail(err, TW_DATA, "%s", why);
    return TW_CUT_BROKEN;
}

static size_t skip_blank(const uint8_t *text, size_t size, size_t at) {
    while (at < size &&
           (text[at] == ' ' || text[at] == 0x1E || (text[at] >= '\t' && text[at] <= '\r'))) {
        at++; /* skips 0x1E, which begins each record of JSON text sequences (RFC 7464) */
    }
    return at;
}

/* Returns the position after the string whose first quote is at `at`, or size + 1 if the string
 * does not end within text[size]. */
static size_t string_end(const uint8_t *text, size_t size, size_t at) {
    for (at++; at < size; at++) {
        const uint8_t *const quote = memchr(text + at, '"', size - at);
        if (quote == NULL) break;
        size_t slashes = 0;
        at = (size_t)(quote - text);
        while (text[at - 1 - slashes] == '\\') slashes++;
        /* after an even number of backslashes, the quote is not escaped */
        if (slashes % 2 == 0) return at + 1;
    }
    return size + 1;
}

/* Returns the position after the value at `at` < size, or size + 1 if the value does not end within
 * text[size]. */
static size_t value_end(const uint8_t *text, size_t size, size_t at) {
    size_t depth = 0;
    const size_t begin = at;
    while (at < size) {
        switch (text[at]) {
        case '"': at = string_end(text, size, at); break;
        case '{':
        case '[':
            depth++;
            at++;
            break;
        case '}':
        case ']':
            if (depth == 0) return at;
            depth--;
            at++;
            break;
        case ',':
        case ' ':
        case '\n':
        case '\r':
        case '\t':
            if (depth == 0) return at;
            at++;
            break;
        default: at++; break;
        }
        const bool is_whole = text[begin] == '{' || text[begin] == '[' || text[begin] == '"';
        if (at > size || (is_whole && depth == 0)) return at;
    }
    return size + 1;
}

static enum tw_cut cut_value(const uint8_t *text, size_t size, size_t at, bool is_end,
                             struct tw_text_cut *cut, struct tw_error *err) {
    const size_t end = value_end(text, size, at);
    *cut = (struct tw_text_cut){.taken = end, .begin = at, .bytes = end - at};
    if ((end > size ? size : end) - at > TW_RECORD_TEXT_BYTES_MAX) {
        return fail_cut(err,
                        "a record of more than 16 MiB; JSON Lines have one record on each line");
    }
    if (end <= size) return TW_CUT_DOCUMENT;
    return is_end ? fail_cut(err, "it ends within a record: it is cut short") : TW_CUT_MORE;
}

/* Checks that only blanks follow the last element. */
static enum tw_cut cut_end(const uint8_t *text, size_t size, size_t at, bool is_end,
                           struct tw_text_cut *cut, struct tw_error *err) {
    enum { BLANKS_MAX = 1 << 16 };
    const size_t end = skip_blank(text, size, at);
    *cut = (struct tw_text_cut){.taken = size, .begin = size};
    if (end < size || size - at > BLANKS_MAX) {
        return fail_cut(err, "other text after the ] of the array");
    }
    return is_end ? TW_CUT_DOCUMENT : TW_CUT_MORE;
}

enum tw_cut tw_json_cut_array(const uint8_t *text, size_t size, bool is_first, bool is_end,
                              struct tw_text_cut *cut, struct tw_error *err) {
    const enum tw_cut no_end = TW_CUT_MORE;
    const char *const is_cut = "it ends before the ] of the array: it is cut short";
    size_t at = skip_blank(text, size, 0);
    if (at == size) return is_end ? fail_cut(err, is_cut) : no_end;
    if (!is_first && text[at] == ']') return cut_end(text, size, at + 1, is_end, cut, err);
    if (text[at] != (is_first ? '[' : ',')) return fail_cut(err, "no comma between two records");
    at = skip_blank(text, size, at + 1);
    if (at == size) return is_end ? fail_cut(err, is_cut) : no_end;
    if (is_first && text[at] == ']') return cut_end(text, size, at + 1, is_end, cut, err);
    const enum tw_cut result = cut_value(text, size, at, is_end, cut, err);
    if (result != TW_CUT_DOCUMENT) return result;
    if (cut->bytes == 0) return fail_cut(err, "no record after a comma");
    /* An element that ends the file means that the file is truncated: at least the ] must
     * follow. */
    if (skip_blank(text, size, cut->taken) < size) return TW_CUT_DOCUMENT;
    return is_end ? fail_cut(err, is_cut) : no_end;
}

enum tw_cut tw_json_cut_objects(const uint8_t *text, size_t size, bool is_end,
                                struct tw_text_cut *cut, struct tw_error *err) {
    const size_t at = skip_blank(text, size, 0);
    *cut = (struct tw_text_cut){.taken = size, .begin = size};
    if (at == size) return TW_CUT_DOCUMENT;
    if (text[at] != '{') return fail_cut(err, "no { of an object");
    return cut_value(text, size, at, is_end, cut, err);
}
