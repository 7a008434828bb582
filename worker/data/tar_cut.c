#include "worker/data/tar_cut.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    TYPE_AT = 156,
    EXTRA_BYTES_MAX = 1 << 20, /* largest size of a member's long name or pax attributes */
};

static enum tw_cut fail_cut(struct tw_error *err, const char *why) {
    (void)tw_fail(err, TW_DATA, "%s", why);
    return TW_CUT_BROKEN;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Parses an octal number, or a binary one if the first bit is set. Returns UINT64_MAX if it is
 * neither. */
static uint64_t number_of(const uint8_t *field, size_t bytes) {
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
    uint64_t sum = SUM_BYTES * ' ';
    for (size_t i = 0; i < TW_TAR_BLOCK; i++) {
        if (i < SUM_AT || i >= SUM_AT + SUM_BYTES) sum += header[i];
    }
    return sum == number_of(header + SUM_AT, SUM_BYTES);
}

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
    const uint64_t bytes = number_of(text + at + SIZE_AT, SIZE_BYTES);
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
        const uint64_t bytes = number_of(header + SIZE_AT, SIZE_BYTES);
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
