#include "worker/tokenizer/bpe_nfc.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"

/* every character below U+0300 is its own normal form in every context */
enum { FIRST_UNSTABLE = 0x300 };

static const utf8proc_option_t DECOMPOSE = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
static const utf8proc_option_t COMPOSE = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

/* ---- which characters are stable -------------------------------------------------------------
 *
 * A stable character is its own normal form and cannot compose with the character before it. No
 * mark is reordered across it. So a text may be cut before it (UAX #15 section 9). */

static int class_of(int32_t code) {
    return utf8proc_get_property(code)->combining_class & 255;
}

static struct tw_bpe_nfc table;
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void mark_unstable(int32_t code) {
    table.unstable[code / 64] |= UINT64_C(1) << (code % 64);
}

/* Marks all unstable characters. Among them is the last part of any character's decomposition,
 * because it composes with a character before it. */
static void fill_table(void) {
    for (int32_t code = FIRST_UNSTABLE; code < TW_BPE_NFC_CODES; code++) {
        int32_t codes[TW_BPE_NFC_PARTS_MAX];
        const utf8proc_ssize_t count =
            utf8proc_decompose_char(code, codes, TW_BPE_NFC_PARTS_MAX, DECOMPOSE, NULL);
        TW_ASSERT(count >= 1 && count <= TW_BPE_NFC_PARTS_MAX);
        if (class_of(code) != 0) mark_unstable(code);
        if (count == 1 && codes[0] == code) continue;
        const int32_t last = codes[count - 1];
        if (utf8proc_normalize_utf32(codes, count, COMPOSE) != 1 || codes[0] != code) {
            mark_unstable(code);
        } else if (last < TW_BPE_NFC_CODES) {
            mark_unstable(last);
        }
    }
}

const struct tw_bpe_nfc *tw_bpe_nfc_table(void) {
    (void)pthread_once(&table_once, fill_table);
    return &table;
}

static bool is_unstable(const struct tw_bpe_nfc *nfc, int32_t code) {
    return code >= FIRST_UNSTABLE && code < TW_BPE_NFC_CODES &&
           (nfc->unstable[code / 64] >> (code % 64) & 1) != 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Decodes the character at text (valid UTF-8) into *code and returns its size. */
static size_t code_at(const uint8_t *text, int32_t *code) {
    const int32_t a = text[0];
    if (a < 0x80) {
        *code = a;
        return 1;
    }
    if (a < 0xE0) {
        *code = (a & 31) << 6 | (text[1] & 63);
        return 2;
    }
    if (a < 0xF0) {
        *code = (a & 15) << 12 | (text[1] & 63) << 6 | (text[2] & 63);
        return 3;
    }
    *code = (a & 7) << 18 | (text[1] & 63) << 12 | (text[2] & 63) << 6 | (text[3] & 63);
    return 4;
}

/* Finds a run to normalise: from the last stable character before the first unstable one, to the
 * next stable one. If there is no unstable character, both ends are piece.bytes. */
static struct tw_bpe_range find_run(const struct tw_bpe_nfc *nfc, struct tw_bpe_piece piece,
                                    size_t from) {
    size_t begin = from, at = from, size, count = 0;
    int32_t code;
    for (; at < piece.bytes; begin = at, at += size) {
        size = piece.text[at] < 0x80 ? 1 : 2;
        /* quick test: characters from U+0300 on begin with a byte of at least 0xCC */
        if (piece.text[at] < 0xCC) continue;
        size = code_at(piece.text + at, &code);
        if (is_unstable(nfc, code)) break;
    }
    if (at == piece.bytes) return (struct tw_bpe_range){piece.bytes, piece.bytes};
    for (; at < piece.bytes && count < TW_BPE_NFC_RUN_MAX - 2; at += size, count++) {
        size = code_at(piece.text + at, &code);
        if (!is_unstable(nfc, code)) break;
    }
    return (struct tw_bpe_range){begin, at};
}

/* Sorts the marks after one base by combining class, stably. This is a counting sort, because an
 * insertion sort would take quadratic time on a text of marks. */
static void sort_marks(int32_t *codes, int32_t *sorted, size_t count) {
    size_t places[257] = {0};
    for (size_t i = 0; i < count; i++) places[class_of(codes[i]) + 1]++;
    for (size_t i = 1; i < 257; i++) places[i] += places[i - 1];
    for (size_t i = 0; i < count; i++) sorted[places[class_of(codes[i])]++] = codes[i];
    memcpy(codes, sorted, count * sizeof(*codes));
}

static void order_marks(int32_t *codes, int32_t *sorted, size_t count) {
    for (size_t begin = 0, end; begin < count; begin = end) {
        bool is_ordered = true;
        for (end = begin; end < count && class_of(codes[end]) != 0; end++) {
            if (end > begin && class_of(codes[end]) < class_of(codes[end - 1])) is_ordered = false;
        }
        if (!is_ordered) sort_marks(codes + begin, sorted, end - begin);
        if (end == begin) end++;
    }
}

/* Appends the normal form of a run to the buffer, which must have room for it. */
static void put_normal(struct tw_bpe_nfc_buffer *buffer, struct tw_bpe_piece run) {
    const size_t room = sizeof(buffer->codes) / sizeof(*buffer->codes);
    size_t count = 0;
    for (size_t at = 0; at < run.bytes;) {
        int32_t code;
        at += code_at(run.text + at, &code);
        const utf8proc_ssize_t parts = utf8proc_decompose_char(
            code, buffer->codes + count, (utf8proc_ssize_t)(room - count), DECOMPOSE, NULL);
        TW_ASSERT(parts >= 0 && (size_t)parts <= room - count);
        count += (size_t)parts;
    }
    order_marks(buffer->codes, buffer->sorted, count);
    const utf8proc_ssize_t composed =
        utf8proc_normalize_utf32(buffer->codes, (utf8proc_ssize_t)count, COMPOSE);
    TW_ASSERT(composed >= 0);
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        buffer->count +=
            (size_t)utf8proc_encode_char(buffer->codes[i], buffer->bytes + buffer->count);
    }
}

static enum tw_status reserve(struct tw_bpe_nfc_buffer *buffer, size_t more, struct tw_error *err) {
    if (more <= buffer->capacity - buffer->count) return TW_OK;
    const size_t capacity = (buffer->count + more) / 2 * 3 + 64;
    uint8_t *const bytes = realloc(buffer->bytes, capacity);
    if (bytes == NULL) return tw_fail(err, TW_NOMEM, "no memory to normalise %zu bytes", capacity);
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return TW_OK;
}

void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer) {
    free(buffer->bytes);
    buffer->bytes = NULL;
    buffer->count = buffer->capacity = 0;
}

enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err) {
    struct tw_bpe_range run = find_run(nfc, *piece, 0);
    if (run.begin == piece->bytes) return TW_OK;
    buffer->count = 0;
    for (size_t from = 0; from < piece->bytes; run = find_run(nfc, *piece, from)) {
        /* No character grows to more than 3 times its size (UAX #15, table 5). */
        TW_TRY(reserve(buffer, run.begin - from + 3 * (run.end - run.begin), err));
        memcpy(buffer->bytes + buffer->count, piece->text + from, run.begin - from);
        buffer->count += run.begin - from;
        put_normal(buffer, (struct tw_bpe_piece){piece->text + run.begin, run.end - run.begin});
        from = run.end;
    }
    *piece = (struct tw_bpe_piece){buffer->bytes, buffer->count};
    return TW_OK;
}
