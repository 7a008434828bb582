/* codec_auto.c - the format of `auto` payloads, and encoding without a byte limit. */
#include "compress/codec_auto.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"

static const enum tw_codec_id ladder[TW_AUTO_RUNGS] = {
    TW_CODEC_INT8,  TW_CODEC_INT4,   TW_CODEC_ECSQ4,   TW_CODEC_ECSQ3,  TW_CODEC_ECSQ2,
    TW_CODEC_ECSQ1, TW_CODEC_ECSQ05, TW_CODEC_TOPK256, TW_CODEC_TOPK64, TW_CODEC_TOPK32,
};

enum {
    INT4_RUNG = 1,
    PIECE_END = TW_AUTO_PIECE_MAX + TW_AUTO_BLOCK, /* above every piece */
    RUNG_SHIFT = 24,
};
_Static_assert(PIECE_END <= 1 << RUNG_SHIFT, "elements and rung share a word");

const struct tw_codec *tw_auto_rung(uint32_t rung) {
    TW_ASSERT(rung < TW_AUTO_RUNGS);
    return tw_codec_get(ladder[rung]);
}

bool tw_auto_is_ecsq(uint32_t rung) {
    return ladder[rung] >= TW_CODEC_ECSQ4 && ladder[rung] <= TW_CODEC_ECSQ05;
}

static size_t pieces_max(size_t n) {
    return n < TW_AUTO_BLOCK ? 1 : n / TW_AUTO_BLOCK;
}

/* No codec of the ladder needs more bytes than ecsq, with two exceptions. Each piece may begin a
 * new block and a new stream: 32 bytes. topk needs a buffer for a whole chunk even if the piece is
 * shorter: 256 bytes. */
static size_t bound(size_t n) {
    if (n == 0) return 0;
    return TW_AUTO_HEAD_BYTES + pieces_max(n) * (TW_AUTO_PIECE_HEAD_BYTES + 32) + 256 +
           tw_codec_get(TW_CODEC_ECSQ4)->bound(n);
}

uint64_t tw_auto_bytes_min(uint64_t n) {
    const uint64_t pieces = n / TW_AUTO_PIECE_MAX + 1;
    const struct tw_codec *lowest = tw_auto_rung(TW_AUTO_RUNGS - 1);
    return TW_AUTO_HEAD_BYTES + pieces * TW_AUTO_PIECE_HEAD_BYTES + lowest->bound((size_t)n);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Iterates over the pieces of a payload, and checks each header. */
struct walk {
    const uint8_t *head, *body;
    size_t rest; /* bytes of the body not read yet */
    uint32_t pieces_left;
    const struct tw_codec *codec; /* codec of the current piece; the fields below describe that
                                     piece, too */
    uint32_t rung;
    size_t elements, bytes;
    const uint8_t *payload;
};

static enum tw_status walk_begin(struct walk *walk, const uint8_t *src, size_t bytes, size_t n) {
    *walk = (struct walk){.pieces_left = 0};
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    if (n > TW_PAYLOAD_BYTES_MAX || bytes < TW_AUTO_HEAD_BYTES) return TW_CORRUPT;
    const uint32_t count = tw_get_u32(src);
    if (count == 0 || count > pieces_max(n)) return TW_CORRUPT;
    const size_t heads = TW_AUTO_HEAD_BYTES + (size_t)count * TW_AUTO_PIECE_HEAD_BYTES;
    if (bytes < heads) return TW_CORRUPT;
    *walk = (struct walk){.head = src + TW_AUTO_HEAD_BYTES,
                          .body = src + heads,
                          .rest = bytes - heads,
                          .pieces_left = count};
    return TW_OK;
}

/* Moves to the next piece, which must exist. is_single: the payload has only one piece. */
static enum tw_status walk_next(struct walk *walk, bool is_single) {
    const uint32_t word = tw_get_u32(walk->head);
    const uint32_t bytes = tw_get_u32(walk->head + 4);
    const uint32_t elements = word & ((1u << RUNG_SHIFT) - 1), rung = word >> RUNG_SHIFT;
    if (elements >= PIECE_END || (elements < TW_AUTO_BLOCK && !is_single)) return TW_CORRUPT;
    if (rung >= TW_AUTO_RUNGS || bytes > walk->rest) return TW_CORRUPT;
    walk->rung = rung;
    walk->codec = tw_auto_rung(rung);
    walk->elements = elements;
    walk->bytes = bytes;
    walk->payload = walk->body;
    walk->head += TW_AUTO_PIECE_HEAD_BYTES;
    walk->body += bytes;
    walk->rest -= bytes;
    walk->pieces_left--;
    return TW_OK;
}

enum tw_status tw_auto_mix(const uint8_t *src, size_t bytes, size_t n,
                           uint64_t elements[TW_AUTO_RUNGS]) {
    struct walk walk;
    size_t sum = 0;
    TW_TRY(walk_begin(&walk, src, bytes, n));
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) elements[r] = 0;
    const bool is_single = walk.pieces_left == 1;
    while (walk.pieces_left > 0) {
        TW_TRY(walk_next(&walk, is_single));
        elements[walk.rung] += walk.elements;
        sum += walk.elements;
    }
    return sum == n && walk.rest == 0 ? TW_OK : TW_CORRUPT;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    uint64_t elements[TW_AUTO_RUNGS];
    struct walk walk;
    TW_TRY(tw_auto_mix(src, bytes, n, elements));
    TW_TRY(walk_begin(&walk, src, bytes, n));
    const bool is_single = walk.pieces_left == 1;
    while (walk.pieces_left > 0) {
        TW_TRY(walk_next(&walk, is_single));
        TW_TRY(walk.codec->check(walk.payload, walk.bytes, walk.elements));
    }
    return TW_OK;
}

/* Decodes all pieces into dst or, if weight is not NULL, adds them to dst with that weight. */
static enum tw_status read_all(const uint8_t *src, size_t bytes, const float *weight, float *dst,
                               size_t n) {
    uint64_t elements[TW_AUTO_RUNGS];
    struct walk walk;
    TW_TRY(tw_auto_mix(src, bytes, n, elements)); /* also checks the number of pieces */
    TW_TRY(walk_begin(&walk, src, bytes, n));
    const bool is_single = walk.pieces_left == 1;
    for (; walk.pieces_left > 0; dst += walk.elements) {
        TW_TRY(walk_next(&walk, is_single));
        const struct tw_codec *codec = walk.codec;
        TW_TRY(weight == NULL
                   ? codec->decode(walk.payload, walk.bytes, dst, walk.elements)
                   : codec->decode_add(walk.payload, walk.bytes, *weight, dst, walk.elements));
    }
    return TW_OK;
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    return read_all(src, bytes, NULL, dst, n);
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    return read_all(src, bytes, &weight, dst, n);
}

/* ---- writing --------------------------------------------------------------------------------- */

void tw_auto_put_count(uint8_t *dst, uint32_t pieces_count) {
    tw_put_u32(dst, pieces_count);
}

enum tw_status tw_auto_put(const struct tw_auto_piece *piece, uint8_t *head, uint8_t *to,
                           size_t capacity, size_t *bytes_out) {
    const struct tw_codec *codec = tw_auto_rung(piece->rung);
    TW_ASSERT(piece->elements < PIECE_END);
    if (tw_auto_is_ecsq(piece->rung) && piece->rate_1024 != 1024) {
        const uint32_t bits_256 = (uint32_t)(codec->bits * piece->rate_1024 / 4.0);
        const struct tw_codec_source source = {.x = piece->x, .n = piece->elements};
        TW_TRY(codec->encode_at(codec->id, bits_256, source, to, capacity, bytes_out));
    } else {
        TW_TRY(codec->encode(piece->x, piece->elements, to, capacity, bytes_out));
    }
    tw_put_u32(head, (uint32_t)piece->elements | piece->rung << RUNG_SHIFT);
    tw_put_u32(head + 4, (uint32_t)*bytes_out);
    return TW_OK;
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    *bytes_out = 0;
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < bound(n)) return TW_LIMIT;
    if (n == 0) return TW_OK;
    /* Every piece has the largest size; a remainder below the smallest size is added to the last
     * piece. */
    const size_t whole = n / TW_AUTO_PIECE_MAX;
    const bool has_more = whole == 0 || n % TW_AUTO_PIECE_MAX >= TW_AUTO_BLOCK;
    const size_t count = whole + has_more;
    uint8_t *head = dst + TW_AUTO_HEAD_BYTES, *to = head + count * TW_AUTO_PIECE_HEAD_BYTES;
    tw_auto_put_count(dst, (uint32_t)count);
    for (size_t i = 0; i < count; i++, head += TW_AUTO_PIECE_HEAD_BYTES) {
        const size_t begin = i * TW_AUTO_PIECE_MAX;
        const struct tw_auto_piece piece = {.rate_1024 = 1024,
                                            .x = src + begin,
                                            .elements =
                                                i + 1 < count ? TW_AUTO_PIECE_MAX : n - begin,
                                            .rung = INT4_RUNG};
        size_t bytes;
        TW_TRY(tw_auto_put(&piece, head, to, (size_t)(dst + capacity - to), &bytes));
        to += bytes;
    }
    *bytes_out = (size_t)(to - dst);
    return TW_OK;
}

const struct tw_codec tw_codec_auto = {.name = "auto",
                                       .id = TW_CODEC_AUTO,
                                       .bits = 4.25,
                                       .needs_feedback = true,
                                       .bound = bound,
                                       .encode = encode,
                                       .decode = decode,
                                       .decode_add = decode_add,
                                       .check = check};
