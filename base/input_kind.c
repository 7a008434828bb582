#include "base/input_kind.h"

#include <string.h>

#include "base/json_field.h"
#include "base/utf8.h"

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

/* ---- tar ------------------------------------------------------------------------------------- */

uint64_t tw_tar_number(const uint8_t *field, size_t bytes) {
    uint64_t value = 0;
    size_t i = 0;
    if ((field[0] & 0x80) != 0) {
        for (i = bytes - 8; i < bytes; i++) value = value << 8 | field[i];
        return value >> 62 == 0 ? value : UINT64_MAX;
    }
    while (i < bytes && field[i] == ' ') i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++) value = value * 8 + field[i] - '0';
    return i == bytes || field[i] == 0 || field[i] == ' ' ? value : UINT64_MAX;
}

bool tw_tar_is_header(const uint8_t header[TW_TAR_BLOCK]) {
    enum { SUM_AT = 148, SUM_BYTES = 8 };
    uint64_t sum = SUM_BYTES * ' ';
    for (size_t i = 0; i < TW_TAR_BLOCK; i++) {
        if (i < SUM_AT || i >= SUM_AT + SUM_BYTES) sum += header[i];
    }
    return sum == tw_tar_number(header + SUM_AT, SUM_BYTES);
}

/* ---- names of files -------------------------------------------------------------------------- */

static uint8_t lower(char c) {
    return (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* Whether path[size] ends so, in any case. */
static bool has_ending(const char *path, size_t size, const char *ending) {
    const size_t tail = strlen(ending);
    if (size <= tail) return false;
    for (size_t i = 0; i < tail; i++) {
        if (lower(path[size - tail + i]) != (uint8_t)ending[i]) return false;
    }
    return true;
}

/* Whether the path has one of the endings, perhaps followed by that of a compressed file. */
static bool is_named_so(const char *path, const char *const *endings) {
    static const char *const PACKED[] = {".gz", ".zst", ".zstd", NULL};
    size_t size = path != NULL ? strlen(path) : 0;
    for (const char *const *packed = PACKED; *packed != NULL; packed++) {
        if (!has_ending(path, size, *packed)) continue;
        size -= strlen(*packed);
        break;
    }
    for (; *endings != NULL; endings++) {
        if (has_ending(path, size, *endings)) return true;
    }
    return false;
}

enum tw_input_kind tw_input_kind_of(const struct tw_file_start *start) {
    static const char *const JSON[] = {".jsonl", ".ndjson", ".json", NULL};
    const uint8_t *const bytes = start->bytes;
    const size_t size = start->size;
    enum tw_input_kind kind = TW_INPUT_TEXT;
    const bool has_mark = size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0;
    if (size >= TW_TAR_BLOCK && (memcmp(bytes + 257, "ustar", 5) == 0 || tw_tar_is_header(bytes))) {
        return TW_INPUT_TAR;
    }
    const size_t at = skip_blank(bytes, size, has_mark ? 3 : 0);
    if (at == size) return kind;
    if (bytes[at] == '{') kind = kind_of_object(bytes, size, at, start->is_all);
    if (bytes[at] == '[') kind = kind_of_array(bytes, size, at, start->is_all);
    if (bytes[at] == '"' && has_string_lines(bytes, size, at)) kind = TW_INPUT_LINES;
    return kind == TW_INPUT_TEXT && is_named_so(start->path, JSON) ? TW_INPUT_LINES : kind;
}

/* ---- tables ---------------------------------------------------------------------------------- */

enum { RECORDS_MIN = 8, RECORDS_LOOKED_AT = 64 };

static bool is_letter(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}

/* A record of a table: the text up to a line end outside quotes (RFC 4180). */
struct record {
    size_t end, fields; /* end: offset after the record's line end; fields: 0 without a line end */
    bool has_names;     /* whether every field begins with a letter, perhaps in quotes */
    /* whether a field begins with a blank, as the text after a comma of a sentence does */
    bool has_gap;
};

static struct record read_record(const uint8_t *bytes, size_t size, size_t at, uint8_t separator) {
    struct record record = {.has_names = true};
    for (size_t fields = 1; at < size; fields++) {
        const bool is_quoted = bytes[at] == '"';
        const size_t first = at + is_quoted;
        record.has_names = record.has_names && first < size && is_letter(bytes[first]);
        record.has_gap = record.has_gap || bytes[at] == ' ';
        for (bool is_within = false; at < size; at++) {
            if (bytes[at] == '"') is_within = is_quoted && !is_within;
            if (!is_within && (bytes[at] == separator || bytes[at] == '\n')) break;
        }
        if (at == size) return record;
        if (bytes[at++] == separator) continue;
        record.end = at;
        record.fields = fields;
        return record;
    }
    return record;
}

/* Whether the text is a table with this separator. */
static bool is_table(const uint8_t *bytes, size_t size, uint8_t separator) {
    const struct record head = read_record(bytes, size, 0, separator);
    struct record record = head;
    unsigned count = 0;
    if (head.fields < 2 || !head.has_names) return false;
    for (; count < RECORDS_LOOKED_AT && record.fields == head.fields; count++) {
        if (record.has_gap && separator != '\t') return false;
        if (record.end == size) return count + 1 >= RECORDS_MIN;
        record = read_record(bytes, size, record.end, separator);
    }
    return count >= RECORDS_MIN && (count == RECORDS_LOOKED_AT || record.fields == 0);
}

/* The separator that is most frequent in the first line. */
static uint8_t frequent_separator(const uint8_t *bytes, size_t size) {
    size_t commas = 0, semicolons = 0, tabs = 0;
    for (size_t i = 0; i < size && bytes[i] != '\n'; i++) {
        commas += bytes[i] == ',';
        semicolons += bytes[i] == ';';
        tabs += bytes[i] == '\t';
    }
    if (tabs > commas && tabs > semicolons) return '\t';
    return semicolons > commas ? ';' : ',';
}

uint8_t tw_input_table_separator(const struct tw_file_start *start) {
    static const char *const TABLES[] = {".csv", ".tsv", NULL};
    const bool has_mark = start->size >= 3 && memcmp(start->bytes, "\xEF\xBB\xBF", 3) == 0;
    const uint8_t *const bytes = start->bytes + (has_mark ? 3 : 0);
    const size_t size = start->size - (has_mark ? 3 : 0);
    const uint8_t separator = frequent_separator(bytes, size);
    return is_named_so(start->path, TABLES) || is_table(bytes, size, separator) ? separator : 0;
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

/* ---- the check ------------------------------------------------------------------------------- */

/* Two letters of text form a number below 31355, so without this check text could pass for 16-bit
 * tokens. */
static bool looks_like_text(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = bytes[i];
        const bool is_text =
            (byte >= 32 && byte < 127) || byte == '\n' || byte == '\t' || byte == '\r';
        if (!is_text) return false;
    }
    return true;
}

/* Whether the numbers seem to be wider than `width`: at twice the width, all upper halves are 0,
 * but at least a quarter of the lower halves are not. If the numbers are four times as wide, half
 * of the lower halves are 0. */
static bool has_empty_halves(const uint8_t *bytes, size_t size, size_t width) {
    enum { NUMBERS_MIN = 32 };
    size_t empty = 0, zeros = 0;
    const size_t numbers = size / (2 * width);
    for (size_t i = 0; i < numbers; i++) {
        const uint8_t *const low = bytes + 2 * width * i;
        uint32_t sums[2] = {0, 0};
        for (size_t k = 0; k < 2 * width; k++) sums[k / width] += low[k];
        zeros += sums[0] == 0;
        empty += sums[1] == 0;
    }
    return numbers >= NUMBERS_MIN && empty == numbers && zeros <= numbers / 4 * 3;
}

static enum tw_status fail_kind(const struct tw_file_start *start, const struct tw_file_kind *kind,
                                struct tw_error *err) {
    return tw_fail(err, TW_DATA, "%.90s is %s, which is not read: %s", start->path, kind->name,
                   kind->remedy);
}

static enum tw_status check_numbers(const struct tw_file_start *start, unsigned width,
                                    struct tw_error *err) {
    const struct tw_file_kind *const kind = tw_file_kind_of_numbers(start->bytes, start->size);
    if (kind != NULL) return fail_kind(start, kind, err);
    if (looks_like_text(start->bytes, start->size)) {
        return tw_fail(err, TW_DATA,
                       "training text %.80s is text, but data.tokenizer is ids: `thinwire data "
                       "prepare --tokenizer FILE` makes tokens of it, or make a run with --set "
                       "data.tokenizer=bytes --set model.vocab=256",
                       start->path);
    }
    if (!has_empty_halves(start->bytes, start->size, width)) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "training text %.80s: every second %u-byte number is 0 at its beginning, so its "
                   "numbers are larger than the run's vocabulary needs: write them as numpy uint%u",
                   start->path, width, 8 * width);
}

/* Refuses formats that only `data prepare` reads. */
static enum tw_status check_run_text(const struct tw_file_start *start, struct tw_error *err) {
    static const char *const PACKED[] = {NULL, "packed by gzip", "packed by zstd"};
    const char *name = PACKED[tw_packing_of_bytes(start->bytes, start->size)];
    const enum tw_input_kind kind = tw_input_kind_of(start);
    if (name == NULL && kind != TW_INPUT_TEXT)
        name = kind == TW_INPUT_TAR ? "a tar archive" : "JSON";
    if (name == NULL) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "%.90s is %s, and a run would train on its bytes: `thinwire data prepare` makes "
                   "a dataset of its texts",
                   start->path, name);
}

/* Numbers of 16 bits, as nanoGPT writes its tokens, have no magic number. Read as text they train
 * well, because every second byte is easy to guess, and teach nothing. */
static enum tw_status check_nul(const struct tw_file_start *start, enum tw_file_use use,
                                struct tw_error *err) {
    const uint8_t *const nul = memchr(start->bytes, 0, start->size);
    if (nul == NULL) return TW_OK;
    return tw_fail(err, TW_DATA, "%.90s is not text: byte %zu of it is NUL%s", start->path,
                   (size_t)(nul - start->bytes) + 1,
                   use == TW_USE_BYTES ? ". If it holds token numbers, make the run with --set "
                                         "data.tokenizer=ids --set model.vocab=N"
                                       : "");
}

static enum tw_status check_table(const struct tw_file_start *start, struct tw_error *err) {
    const uint8_t separator = tw_input_table_separator(start);
    if (separator == 0) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "%.90s is a table (CSV), which is not read: python3 -c \"import pandas as p; "
                   "p.read_csv('IN'%s).to_json('OUT.jsonl', orient='records', lines=True)\"",
                   start->path,
                   separator == '\t'  ? ", sep='\\t'"
                   : separator == ';' ? ", sep=';'"
                                      : "");
}

enum tw_status tw_file_check(const struct tw_file_start *start, enum tw_file_use use,
                             bool *is_binary, struct tw_error *err) {
    bool unused;
    if (is_binary == NULL) is_binary = &unused;
    *is_binary = false;
    if (use == TW_USE_NUMBERS_2 || use == TW_USE_NUMBERS_4) {
        return check_numbers(start, use == TW_USE_NUMBERS_2 ? 2 : 4, err);
    }
    const struct tw_file_kind *const kind = tw_file_kind_of(start->bytes, start->size);
    /* a run may train on markup: that of Wikipedia is a usual benchmark */
    const bool takes_markup = use == TW_USE_PLAIN || use == TW_USE_BYTES;
    if (kind != NULL && !(takes_markup && kind->holds == TW_HOLDS_MARKUP)) {
        *is_binary = kind->holds == TW_HOLDS_NOTHING;
        return fail_kind(start, kind, err);
    }
    if (use == TW_USE_BYTES) TW_TRY(check_run_text(start, err));
    if (use == TW_USE_DOCUMENTS && tw_input_kind_of(start) == TW_INPUT_TAR) return TW_OK;
    if (tw_packing_of_bytes(start->bytes, start->size) != TW_PACKING_NONE) {
        return tw_fail(err, TW_DATA, "%.100s is compressed twice: unpack it once", start->path);
    }
    *is_binary = true;
    TW_TRY(check_nul(start, use, err));
    *is_binary = false;
    if (use != TW_USE_PLAIN) TW_TRY(check_table(start, err));
    if (!tw_input_is_other_encoding(start->bytes, start->size)) return TW_OK;
    return tw_fail(err, TW_DATA,
                   "%.90s is not UTF-8: make it so, `iconv -f WINDOWS-1252 -t UTF-8 IN >OUT` if it "
                   "is Latin-1",
                   start->path);
}
