#include "worker/data/text_cut.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/support/utf8.h"

/* ---- passages, lines, records ---------------------------------------------------------------- */

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

/* ---- JSON ------------------------------------------------------------------------------------ */

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

/* ---- tar ------------------------------------------------------------------------------------- */

enum {
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    TYPE_AT = 156,
    EXTRA_BYTES_MAX = 1 << 20, /* largest size of a member's long name or pax attributes */
};

/* ---- headers --------------------------------------------------------------------------------- */

static bool is_zero(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static uint64_t padded(uint64_t bytes) {
    return (bytes + TW_TAR_BLOCK - 1) / TW_TAR_BLOCK * TW_TAR_BLOCK;
}

static bool is_regular(const uint8_t *header) {
    return header[TYPE_AT] == '0' || header[TYPE_AT] == 0 || header[TYPE_AT] == '7';
}

void tw_tar_name(const uint8_t header[TW_TAR_BLOCK], char name[TW_TAR_NAME_BYTES]) {
    memcpy(name, header, TW_TAR_NAME_BYTES - 1);
    name[TW_TAR_NAME_BYTES - 1] = 0;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Cuts the content of a regular member, whose header is at `at`. */
static enum tw_cut cut_member(const uint8_t *text, size_t size, size_t at, bool is_end,
                              struct tw_text_cut *cut, struct tw_error *err) {
    const uint64_t bytes = tw_tar_number(text + at + SIZE_AT, SIZE_BYTES);
    const size_t begin = at + TW_TAR_BLOCK;
    if (bytes > UINT64_MAX / 4) return fail_cut(err, "a member without a size: it is damaged");
    *cut = (struct tw_text_cut){
        .taken = begin + (size_t)padded(bytes), .begin = begin, .bytes = (size_t)bytes};
    if (bytes > TW_RECORD_TEXT_BYTES_MAX) return TW_CUT_TOO_LONG;
    if (size > cut->taken) return TW_CUT_DOCUMENT;
    if (!is_end) return TW_CUT_MORE;
    /* Blocks of zeros end an archive. Without them, members may be missing. */
    return fail_cut(err, "it ends without the zeros that end an archive: it is cut short");
}

enum tw_cut tw_tar_cut(const uint8_t *text, size_t size, bool is_end, struct tw_text_cut *cut,
                       struct tw_error *err) {
    enum { LEAD_BYTES = 1 << 16 }; /* size of folders, links and zeros that are skipped together */
    size_t at = 0;
    while (at < LEAD_BYTES && size - at >= TW_TAR_BLOCK) {
        const uint8_t *const header = text + at;
        /* a block of zeros: the archive ends, or another one follows */
        if (is_zero(header, TW_TAR_BLOCK)) {
            at += TW_TAR_BLOCK;
            continue;
        }
        if (!tw_tar_is_header(header)) return fail_cut(err, "no member begins here: it is damaged");
        if (is_regular(header)) return cut_member(text, size, at, is_end, cut, err);
        const uint64_t bytes = tw_tar_number(header + SIZE_AT, SIZE_BYTES);
        const bool has_content = strchr("xgLKDVMNS", header[TYPE_AT]) != NULL;
        if (has_content && bytes > EXTRA_BYTES_MAX) {
            return fail_cut(err, "a member of a kind that is not read (sparse, or of a backup)");
        }
        const size_t next = at + TW_TAR_BLOCK + (has_content ? (size_t)padded(bytes) : 0);
        if (next > size) {
            return is_end ? fail_cut(err, "it ends within a member: it is cut short") : TW_CUT_MORE;
        }
        at = next;
    }
    *cut = (struct tw_text_cut){.taken = at, .begin = at};
    if (at >= LEAD_BYTES) return TW_CUT_DOCUMENT;
    if (!is_end) return TW_CUT_MORE;
    if (!is_zero(text + at, size - at)) {
        return fail_cut(err, "it ends within a header: it is cut short");
    }
    *cut = (struct tw_text_cut){.taken = size, .begin = size};
    return TW_CUT_DOCUMENT;
}

/* ---- samples of WebDataset ------------------------------------------------------------------- */

/* Length of the WebDataset key: the name up to the first dot after its last slash. */
static size_t key_bytes(const char *name) {
    const char *const slash = strrchr(name, '/');
    const char *const base = slash != NULL ? slash + 1 : name;
    return (size_t)(base - name) + strcspn(base, ".");
}

static bool has_ending(const char *name, const char *const *endings, unsigned count) {
    const char *const dot = strrchr(name, '.');
    for (unsigned i = 0; dot != NULL && i < count; i++) {
        if (strcasecmp(dot + 1, endings[i]) == 0) return true;
    }
    return false;
}

bool tw_tar_is_member(enum tw_tar_members members, const char *name) {
    static const char *const TEXTS[] = {"txt", "text", "transcript"}, *const JSON[] = {"json",
                                                                                       "jsn"};
    if (strlen(name) == TW_TAR_NAME_BYTES - 1) return true;
    if (members == TW_TAR_TEXTS) return has_ending(name, TEXTS, 3);
    return members == TW_TAR_ALL || has_ending(name, JSON, 2);
}

enum tw_tar_members tw_tar_members_of(const uint8_t *text, size_t size) {
    char first[TW_TAR_NAME_BYTES] = "", name[TW_TAR_NAME_BYTES];
    struct tw_text_cut cut;
    unsigned count = 0; /* members of the archive's first sample seen so far */
    bool has_text = false, has_json = false;
    for (size_t at = 0; at < size; at += cut.taken) {
        if (tw_tar_cut(text + at, size - at, true, &cut, NULL) != TW_CUT_DOCUMENT) break;
        if (cut.begin < TW_TAR_BLOCK || cut.begin == size - at) break;
        tw_tar_name(text + at + cut.begin - TW_TAR_BLOCK, name);
        if (count == 0) memcpy(first, name, sizeof(first));
        const size_t key = key_bytes(first);
        if (key_bytes(name) != key || memcmp(first, name, key) != 0) break;
        count++;
        has_text = has_text || tw_tar_is_member(TW_TAR_TEXTS, name);
        has_json = has_json || tw_tar_is_member(TW_TAR_JSON, name);
    }
    if (count < 2) return TW_TAR_ALL;
    return has_text ? TW_TAR_TEXTS : has_json ? TW_TAR_JSON : TW_TAR_ALL;
}
