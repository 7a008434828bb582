#include "worker/data/input_kind.h"

#include <string.h>

#include "worker/data/json_field.h"
#include "worker/data/text_cut.h"
#include "worker/support/utf8.h"

enum { LINES_LOOKED_AT = 8, INVALID_MIN = 16 };

static size_t skip_blank(const uint8_t *bytes, size_t size, size_t at) {
    while (at < size &&
           (bytes[at] == ' ' || bytes[at] == 0x1E || (bytes[at] >= '\t' && bytes[at] <= '\r'))) {
        at++; /* skips 0x1E, which begins each record of JSON text sequences (RFC 7464) */
    }
    return at;
}

static size_t line_end(const uint8_t *bytes, size_t size, size_t at) {
    const uint8_t *const newline = memchr(bytes + at, '\n', size - at);
    return newline != NULL ? (size_t)(newline - bytes) : size;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Whether one of the next lines is a JSON object and nothing else. If one is, a broken first line
 * does not turn JSON Lines into plain text. */
static bool has_object_line(const uint8_t *bytes, size_t size, size_t at) {
    for (unsigned i = 0; i < LINES_LOOKED_AT && at < size; i++) {
        const size_t begin = skip_blank(bytes, size, at), end = line_end(bytes, size, begin);
        size_t value_end = 0;
        if (end == size) break;
        if (bytes[begin] == '{' &&
            tw_json_look(bytes + begin, end - begin, true, &value_end) == TW_JSON_VALUE &&
            skip_blank(bytes, end, begin + value_end) == end) {
            return true;
        }
        at = end + 1;
    }
    return false;
}

/* Whether the { at `at` is followed by a key and a colon. Such a text counts as JSON, even if it is
 * broken later. Sets *is_wide if a line ends between the { and the key. */
static bool has_first_key(const uint8_t *bytes, size_t size, size_t at, bool *is_wide) {
    size_t key_bytes = 0;
    const size_t key = skip_blank(bytes, size, at + 1);
    if (key == size || bytes[key] != '"') return false;
    if (tw_json_look(bytes + key, size - key, true, &key_bytes) != TW_JSON_VALUE) return false;
    const size_t colon = skip_blank(bytes, size, key + key_bytes);
    *is_wide = memchr(bytes + at, '\n', key - at) != NULL;
    return colon < size && bytes[colon] == ':';
}

/* The kind of a text whose first character is the { at `at`. */
static enum tw_input_kind kind_of_object(const uint8_t *bytes, size_t size, size_t at,
                                         bool is_all) {
    size_t value_bytes = 0;
    const enum tw_json_look look = tw_json_look(bytes + at, size - at, is_all, &value_bytes);
    const size_t end = look == TW_JSON_VALUE ? at + value_bytes : size;
    if (look == TW_JSON_NONE) {
        bool is_wide = false;
        const size_t next = line_end(bytes, size, at);
        if (has_first_key(bytes, size, at, &is_wide)) {
            return is_wide ? TW_INPUT_OBJECTS : TW_INPUT_LINES;
        }
        return has_object_line(bytes, size, next) ? TW_INPUT_LINES : TW_INPUT_TEXT;
    }
    /* A raw line end cannot be within a JSON string, so this object covers several lines. */
    if (memchr(bytes + at, '\n', end - at) != NULL) return TW_INPUT_OBJECTS;
    const size_t rest = skip_blank(bytes, line_end(bytes, size, end), end);
    if (rest == size || bytes[rest] == '\n' || bytes[rest] == ',') return TW_INPUT_LINES;
    return bytes[rest] == '{' ? TW_INPUT_OBJECTS : TW_INPUT_TEXT;
}

/* The kind of a text whose first character is the [ at `at`. */
static enum tw_input_kind kind_of_array(const uint8_t *bytes, size_t size, size_t at, bool is_all) {
    size_t value_bytes = 0;
    const enum tw_json_look look = tw_json_look(bytes + at, size - at, is_all, &value_bytes);
    if (look == TW_JSON_NONE) {
        bool is_wide = false;
        const size_t first = skip_blank(bytes, size, at + 1);
        const bool is_json =
            first < size && bytes[first] == '{' && has_first_key(bytes, size, first, &is_wide);
        return is_json ? TW_INPUT_ARRAY : TW_INPUT_TEXT;
    }
    if (look == TW_JSON_CUT) return TW_INPUT_ARRAY;
    const size_t rest = skip_blank(bytes, size, at + value_bytes);
    if (rest == size) return TW_INPUT_ARRAY;
    const bool is_next_line =
        memchr(bytes + at + value_bytes, '\n', rest - at - value_bytes) != NULL;
    return is_next_line && bytes[rest] == '[' ? TW_INPUT_LINES : TW_INPUT_TEXT;
}

/* Whether at least two lines follow that are one JSON string each, as `jq .text` writes them. One
 * such line is not enough, because a plain text may begin with a line in quotes. */
static bool has_string_lines(const uint8_t *bytes, size_t size, size_t at) {
    unsigned count = 0;
    for (; count < LINES_LOOKED_AT && at < size; count++) {
        const size_t end = line_end(bytes, size, at);
        size_t value_bytes = 0;
        if (end == size) break;
        if (bytes[at] != '"' ||
            tw_json_look(bytes + at, end - at, true, &value_bytes) != TW_JSON_VALUE ||
            skip_blank(bytes, end, at + value_bytes) != end) {
            return false;
        }
        at = skip_blank(bytes, size, end);
    }
    return count >= 2;
}

enum tw_input_kind tw_input_kind_of(const uint8_t *bytes, size_t size, bool is_all,
                                    bool has_json_name) {
    enum tw_input_kind kind = TW_INPUT_TEXT;
    const bool has_mark = size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0;
    if (size >= TW_TAR_BLOCK && (memcmp(bytes + 257, "ustar", 5) == 0 || tw_tar_is_header(bytes))) {
        return TW_INPUT_TAR;
    }
    const size_t at = skip_blank(bytes, size, has_mark ? 3 : 0);
    if (at == size) return kind;
    if (bytes[at] == '{') kind = kind_of_object(bytes, size, at, is_all);
    if (bytes[at] == '[') kind = kind_of_array(bytes, size, at, is_all);
    if (bytes[at] == '"' && has_string_lines(bytes, size, at)) kind = TW_INPUT_LINES;
    return kind == TW_INPUT_TEXT && has_json_name ? TW_INPUT_LINES : kind;
}

/* ---- encodings ------------------------------------------------------------------------------- */

bool tw_input_is_other_encoding(const uint8_t *bytes, size_t size) {
    size_t valid = 0, invalid = 0;
    for (size_t at = 0; at < size;) {
        uint64_t word = UINT64_C(0x80);
        if (size - at >= sizeof(word)) memcpy(&word, bytes + at, sizeof(word));
        if ((word & UINT64_C(0x8080808080808080)) == 0) { /* all eight bytes are ASCII */
            at += sizeof(word);
            continue;
        }
        const int length = bytes[at] < 0x80 ? 1 : tw_utf8_size(bytes + at, size - at);
        if (length > 1) valid++;
        /* an invalid character counts, unless the end of the buffer may have truncated it */
        if (length <= 0 && at + TW_UTF8_BYTES_MAX <= size) invalid++;
        at += length <= 0 ? 1 : (size_t)length;
    }
    return invalid >= INVALID_MIN && invalid > valid;
}

const char *tw_input_kind_name(enum tw_input_kind kind) {
    static const char *const NAMES[TW_INPUT_KINDS] = {
        [TW_INPUT_TEXT] = "plain text",  [TW_INPUT_LINES] = "JSON Lines",
        [TW_INPUT_ARRAY] = "JSON array", [TW_INPUT_OBJECTS] = "JSON objects",
        [TW_INPUT_TAR] = "tar archive",  [TW_INPUT_TOKENS] = "token numbers",
    };
    return NAMES[kind];
}
