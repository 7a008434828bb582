#include "base/json_field.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

struct span {
    size_t begin, end; /* range of a string, without its quotes */
};

struct scan {
    const uint8_t *line;
    size_t size, at;
    bool is_object[TW_JSON_DEPTH_MAX +
                   /* whether each open level is an object (else an array); [depth] is the
                    * innermost */
                   1];
    unsigned depth;
};

static enum tw_status fail_json(const struct scan *scan, struct tw_error *err, const char *what) {
    return tw_fail(err, TW_DATA, "invalid JSON: %s at byte %zu", what, scan->at + 1);
}

static int peek(const struct scan *scan) {
    return scan->at < scan->size ? scan->line[scan->at] : -1;
}

static void skip_space(struct scan *scan) {
    enum { RECORD_SEPARATOR = 0x1E }; /* separator of JSON text sequences, RFC 7464 */
    for (int c = peek(scan);
         c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == RECORD_SEPARATOR; c = peek(scan)) {
        scan->at++;
    }
}

static bool take(struct scan *scan, int c) {
    if (peek(scan) != c) return false;
    scan->at++;
    return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

static int hex_digit(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum tw_status scan_string(struct scan *scan, struct span *span, struct tw_error *err) {
    if (!take(scan, '"')) return fail_json(scan, err, "no string");
    span->begin = scan->at;
    for (;;) {
        /* Fast path for characters without a special meaning. */
        while (scan->at < scan->size && scan->line[scan->at] >= ' ' &&
               scan->line[scan->at] != '"' && scan->line[scan->at] != '\\') {
            scan->at++;
        }
        const int c = peek(scan);
        if (c < 0) return fail_json(scan, err, "a string without end");
        if (c < ' ') return fail_json(scan, err, "a control character in a string");
        span->end = scan->at++;
        if (c == '"') return TW_OK;
        const int escaped = peek(scan);
        if (escaped <= 0 || strchr("\"\\/bfnrtu", escaped) == NULL) {
            return fail_json(scan, err, "an unknown escape");
        }
        scan->at++;
        for (int i = 0; escaped == 'u' && i < 4; i++, scan->at++) {
            if (hex_digit(peek(scan)) < 0) return fail_json(scan, err, "an unknown escape");
        }
    }
}

static uint32_t hex4(const uint8_t *digits) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value = value << 4 | (uint32_t)hex_digit(digits[i]);
    return value;
}

/* Decodes the escape \uXXXX at `from`. Sets *taken to the bytes read: 6, or 12 for a surrogate
 * pair. A lone surrogate is returned unchanged. Its three bytes are invalid UTF-8, and the caller
 * of tw_json_field counts them as such. */
static uint32_t unescape_u(const uint8_t *from, size_t left, size_t *taken) {
    const uint32_t first = hex4(from + 2);
    *taken = 6;
    if (first < 0xD800 || first > 0xDFFF) return first;
    if (first > 0xDBFF || left < 12 || from[6] != '\\' || from[7] != 'u') return first;
    const uint32_t second = hex4(from + 8);
    if (second < 0xDC00 || second > 0xDFFF) return first;
    *taken = 12;
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
}

static size_t put_utf8(uint8_t *to, uint32_t code) {
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        return 1;
    }
    const unsigned more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    to[0] = (uint8_t)(0xFF00u >> (more + 1) | code >> (6 * more));
    for (unsigned i = 1; i <= more; i++) {
        to[i] = (uint8_t)(0x80 | (code >> (6 * (more - i)) & 0x3F));
    }
    return more + 1;
}

/* Unescapes a scanned string into `to`, which may be `from`: unescaping never lengthens the
 * text. */
static size_t unescape(const uint8_t *from, size_t size, uint8_t *to) {
    static const char NAMES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        const uint8_t *const escape = memchr(from + at, '\\', size - at);
        const size_t plain = escape != NULL ? (size_t)(escape - from) - at : size - at;
        memmove(to + used, from + at, plain);
        used += plain;
        at += plain;
        if (escape == NULL) break;
        if (from[at + 1] == 'u') {
            size_t taken;
            used += put_utf8(to + used, unescape_u(from + at, size - at, &taken));
            at += taken;
        } else {
            const char *const name = strchr(NAMES, from[at + 1]);
            TW_ASSERT(name != NULL);
            to[used++] = (uint8_t)MEANT[name - NAMES];
            at += 2;
        }
    }
    return used;
}

static bool is_named(const struct scan *scan, struct span key, const char *field) {
    uint8_t text[6 * TW_JSON_FIELD_BYTES];
    const size_t size = key.end - key.begin, length = strlen(field);
    if (size < length || size > sizeof(text)) return false;
    if (memchr(scan->line + key.begin, '\\', size) == NULL) {
        return size == length && memcmp(scan->line + key.begin, field, length) == 0;
    }
    return unescape(scan->line + key.begin, size, text) == length &&
           memcmp(text, field, length) == 0;
}

/* ---- other values ---------------------------------------------------------------------------- */

static bool take_digits(struct scan *scan) {
    const size_t begin = scan->at;
    while (peek(scan) >= '0' && peek(scan) <= '9') scan->at++;
    return scan->at > begin;
}

static bool take_number(struct scan *scan) {
    (void)take(scan, '-');
    if (!take(scan, '0') && !take_digits(scan)) return false;
    if (take(scan, '.') && !take_digits(scan)) return false;
    if (!take(scan, 'e') && !take(scan, 'E')) return true;
    if (!take(scan, '+')) (void)take(scan, '-');
    return take_digits(scan);
}

static bool take_word(struct scan *scan, const char *word) {
    const size_t length = strlen(word);
    if (scan->size - scan->at < length || memcmp(scan->line + scan->at, word, length) != 0) {
        return false;
    }
    scan->at += length;
    return true;
}

/* Scans a value that is neither array nor object. */
static enum tw_status scan_leaf(struct scan *scan, struct tw_error *err) {
    /* The last three are not JSON, but Python writes them. */
    static const char *const WORDS[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    struct span span;
    if (peek(scan) == '"') return scan_string(scan, &span, err);
    bool is_value = false;
    for (unsigned i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]) && !is_value; i++) {
        is_value = take_word(scan, WORDS[i]);
    }
    return is_value || take_number(scan) ? TW_OK : fail_json(scan, err, "no value");
}

static enum tw_status scan_key(struct scan *scan, struct span *key, struct tw_error *err) {
    skip_space(scan);
    if (peek(scan) == '\'') {
        return fail_json(scan, err, "single quotes, as Python's str() writes and no json.dumps(),");
    }
    TW_TRY(scan_string(scan, key, err));
    skip_space(scan);
    if (!take(scan, ':')) return fail_json(scan, err, "no :");
    skip_space(scan);
    return TW_OK;
}

/* Enters the array or object that begins here and moves to its first value. Sets *is_open to false
 * if it is empty and thus already closed. */
static enum tw_status enter_level(struct scan *scan, bool *is_open, struct tw_error *err) {
    struct span key;
    if (scan->depth == TW_JSON_DEPTH_MAX)
        return fail_json(scan, err, "more than 256 brackets open");
    const bool is_object = scan->line[scan->at++] == '{';
    skip_space(scan);
    *is_open = false;
    if (take(scan, is_object ? '}' : ']')) return TW_OK;
    scan->is_object[++scan->depth] = is_object;
    *is_open = true;
    return is_object ? scan_key(scan, &key, err) : TW_OK;
}

/* Skips any value. */
static enum tw_status scan_value(struct scan *scan, struct tw_error *err) {
    const unsigned outside = scan->depth;
    struct span key;
    for (;;) {
        bool is_open = false;
        skip_space(scan);
        if (peek(scan) == '{' || peek(scan) == '[') {
            TW_TRY(enter_level(scan, &is_open, err));
        } else {
            TW_TRY(scan_leaf(scan, err));
        }
        if (is_open) continue;
        for (;;) { /* close the levels that end after this value */
            if (scan->depth == outside) return TW_OK;
            skip_space(scan);
            const bool is_object = scan->is_object[scan->depth];
            if (take(scan, ',')) {
                if (is_object) TW_TRY(scan_key(scan, &key, err));
                break;
            }
            if (!take(scan, is_object ? '}' : ']')) return fail_json(scan, err, "no comma or end");
            scan->depth--;
        }
    }
}

/* ---- field ----------------------------------------------------------------------------------- */

/* Names of the fields seen, for a message: ASCII, truncated. */
struct seen {
    char names[96];
    size_t used;
    const char *chat; /* name of a field that holds a conversation, or NULL */
};

static void note_field(struct seen *seen, const struct scan *scan, struct span key) {
    const size_t size = key.end - key.begin;
    if (seen->used + size + 3 > sizeof(seen->names) - 4) {
        if (seen->used == 0 || seen->names[seen->used - 1] != '.') {
            memcpy(seen->names + seen->used, "...", 4);
            seen->used += 3;
        }
        return;
    }
    if (seen->used > 0) {
        memcpy(seen->names + seen->used, ", ", 2);
        seen->used += 2;
    }
    for (size_t i = key.begin; i < key.end; i++) {
        const uint8_t c = scan->line[i];
        seen->names[seen->used++] = (char)(c >= ' ' && c <= '~' ? c : '?');
    }
    seen->names[seen->used] = 0;
}

static void note_chat(struct seen *seen, const struct scan *scan, struct span key) {
    static const char *const NAMES[] = {"messages", "conversations", "conversation"};
    for (unsigned i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (is_named(scan, key, NAMES[i]) && peek(scan) == '[') seen->chat = NAMES[i];
    }
}

/* Explains why the field is missing. Chat data get their own message: a list of messages becomes a
 * text only through a chat template. */
static enum tw_status fail_missing(const char *field, const struct seen *seen,
                                   struct tw_error *err) {
    if (seen->chat != NULL) {
        return tw_fail(
            err, TW_DATA,
            "chat data (\"%s\") need the chat template of their model: python3 -m thinwire.data "
            "chat SET --model FOLDER --out DIR, of Thinwire's Python package",
            seen->chat);
    }
    if (strchr(field, '.') != NULL) {
        return tw_fail(err, TW_DATA,
                       "no field \"%s\"; there are: %s; a field within a field is not read, but jq "
                       "writes it alone: jq '.%s' IN >OUT.jsonl",
                       field, seen->names, field);
    }
    return tw_fail(err, TW_DATA, "no field \"%s\"; there are: %s; name one with --field", field,
                   seen->names);
}

/* Names the type of the value at the scan's position, for a message. */
static const char *value_name(const struct scan *scan) {
    switch (peek(scan)) {
    case '{': return "an object";
    case '"': return "a string";
    case '[': return "an array";
    case 'n': return "null";
    case 'N': return "NaN";
    case 't':
    case 'f': return "true or false";
    default: return "a number";
    }
}

static enum tw_status scan_member(struct scan *scan, const char *field, struct span *value,
                                  bool *is_found, struct seen *seen, struct tw_error *err) {
    struct span key;
    TW_TRY(scan_key(scan, &key, err));
    note_chat(seen, scan, key);
    if (!is_named(scan, key, field)) {
        note_field(seen, scan, key);
        return scan_value(scan, err);
    }
    if (*is_found) return tw_fail(err, TW_DATA, "the field \"%s\" is there twice", field);
    if (peek(scan) != '"') {
        if (seen->chat != NULL && strcmp(seen->chat, field) == 0) {
            return fail_missing("text", seen, err);
        }
        if (peek(scan) == '[') {
            return tw_fail(err, TW_DATA,
                           "the field \"%s\" is an array, not a string; jq writes an element per "
                           "line: jq -c '.%s[]' IN >OUT.jsonl",
                           field, field);
        }
        return tw_fail(err, TW_DATA, "the field \"%s\" is %s, not a string%s", field,
                       value_name(scan),
                       peek(scan) == '{' ? "; pandas writes a record per line with "
                                           "to_json(orient='records', lines=True)"
                                         : "");
    }
    *is_found = true;
    return scan_string(scan, value, err);
}

/* Explains why the record is not an object: it is another JSON value, or invalid JSON. */
static enum tw_status fail_record(struct scan scan, const char *field, struct tw_error *err) {
    const struct scan start = scan;
    struct tw_error ignored;
    if (scan_value(&scan, &ignored) == TW_OK) skip_space(&scan);
    if (scan.at < scan.size) return fail_json(&start, err, "no { of an object");
    return tw_fail(err, TW_DATA, "the record is %s, not an object with a field \"%s\"",
                   value_name(&start), field);
}

enum tw_status tw_json_field(uint8_t *line, size_t size, const char *field, size_t *begin,
                             size_t *bytes, struct tw_error *err) {
    struct scan scan = {.line = line, .size = size};
    struct span value = {0};
    struct seen seen = {.names = "none"};
    bool is_found = false;
    skip_space(&scan);
    if (!take(&scan, '{')) return fail_record(scan, field, err);
    skip_space(&scan);
    if (!take(&scan, '}')) {
        do {
            TW_TRY(scan_member(&scan, field, &value, &is_found, &seen, err));
            skip_space(&scan);
        } while (take(&scan, ','));
        if (!take(&scan, '}')) return fail_json(&scan, err, "no comma or }");
    }
    skip_space(&scan);
    if (scan.at < size) return fail_json(&scan, err, "text after the object");
    if (!is_found) return fail_missing(field, &seen, err);
    *begin = value.begin;
    *bytes = unescape(line + value.begin, value.end - value.begin, line + value.begin);
    return TW_OK;
}

enum tw_status tw_json_string(uint8_t *value, size_t size, size_t *begin, size_t *bytes,
                              struct tw_error *err) {
    struct scan scan = {.line = value, .size = size};
    struct span span = {0};
    skip_space(&scan);
    TW_TRY(scan_string(&scan, &span, err));
    skip_space(&scan);
    if (scan.at < size) return fail_json(&scan, err, "text after the string");
    *begin = span.begin;
    *bytes = unescape(value + span.begin, span.end - span.begin, value + span.begin);
    return TW_OK;
}

/* ---- beginnings ------------------------------------------------------------------------------ */

enum tw_json_look tw_json_look(const uint8_t *bytes, size_t size, bool is_all, size_t *end) {
    /* length of the longest word or escape, which the end of the buffer may truncate */
    enum { WORD_BYTES = 9 };
    struct scan scan = {.line = bytes, .size = size};
    struct tw_error why;
    if (scan_value(&scan, &why) == TW_OK) {
        *end = scan.at;
        return TW_JSON_VALUE;
    }
    *end = size;
    return scan.at + (is_all ? 0 : WORD_BYTES) >= size ? TW_JSON_CUT : TW_JSON_NONE;
}
