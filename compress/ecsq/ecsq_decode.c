/* ecsq_decode.c - the decoder of codec_ecsq.h. Codes are decoded a block at a time. Before any of
 * them becomes a value, the decoder checks that the signs and sizes which the block needs are
 * present. */
#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "compress/ecsq/ecsq.h"
#include "compress/ecsq/ecsq_isa.h"
#include "compress/rans/rans_isa.h"

enum {
    BLOCK = TW_ECSQ_BLOCK,
    PIECE = TW_ECSQ_PIECE,
};

struct reader {
    const struct tw_ecsq *ecsq;
    size_t n;
    const uint8_t *scales;
    uint32_t c;
    int32_t shift_one, shift_more; /* in 2^-8 */
    const uint8_t *at, *end;       /* unread bytes */
};

struct stream {
    enum tw_ecsq_kind kind;
    uint8_t code;                    /* TW_ECSQ_ONE: the value of every code in the stream */
    const uint8_t *raw;              /* TW_ECSQ_RAW: the unread codes */
    const uint8_t *written;          /* sizes written in full, not used yet */
    uint32_t written_left;           /* number of sizes in `written` */
    size_t signs_count;              /* number of signs used so far */
    struct tw_ecsq_signs_left signs; /* unread signs */
    struct tw_rans_decoder decoder;
};

static bool has(const struct reader *r, size_t bytes) {
    return (size_t)(r->end - r->at) >= bytes;
}

static enum tw_status read_head(struct reader *r, const uint8_t *src, size_t bytes) {
    const size_t blocks = tw_ecsq_blocks(r->n);
    if (r->n > TW_PAYLOAD_BYTES_MAX || bytes < TW_ECSQ_HEAD_BYTES + 2 * blocks) return TW_CORRUPT;
    r->c = tw_get_u16(src);
    if (r->c < r->ecsq->step_min || r->c > TW_ECSQ_STEP_MAX) return TW_CORRUPT;
    r->shift_one = (int8_t)src[2];
    r->shift_more = (int8_t)src[3];
    r->scales = src + TW_ECSQ_HEAD_BYTES;
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks; b++) {
        const uint16_t scale = tw_ecsq_scale(r->scales, b);
        bad |= (scale != 0 && scale < TW_ECSQ_SCALE_MIN) || scale >= TW_ECSQ_SCALE_END;
    }
    r->at = r->scales + 2 * blocks;
    r->end = src + bytes;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static enum tw_status read_written(struct reader *r, struct stream *stream, uint32_t count) {
    if (!has(r, (size_t)2 * count)) return TW_CORRUPT;
    stream->written = r->at;
    stream->written_left = count;
    for (uint32_t i = 0; i < count; i++, r->at += 2) {
        const uint32_t a = tw_get_u16(r->at);
        if (a < tw_ecsq_limit(r->ecsq) || a * r->c > TW_ECSQ_PEAK * TW_ECSQ_STEP_ONE) {
            return TW_CORRUPT;
        }
    }
    return TW_OK;
}

static enum tw_status read_coded(struct reader *r, struct stream *stream) {
    struct tw_rans_model model;
    const size_t used =
        tw_rans_model_decode(&model, r->at, (size_t)(r->end - r->at), tw_ecsq_alphabet(r->ecsq));
    if (used == 0) return TW_CORRUPT;
    r->at += used;
    if (!has(r, 4 + TW_RANS_STATES_BYTES)) return TW_CORRUPT;
    const size_t words_bytes = 2 * (size_t)tw_get_u32(r->at);
    const uint8_t *const states = r->at + 4;
    r->at = states + TW_RANS_STATES_BYTES;
    if (!has(r, words_bytes)) return TW_CORRUPT;
    TW_TRY(tw_rans_decoder_init(&stream->decoder, &model, states, r->at, words_bytes));
    r->at += words_bytes;
    return TW_OK;
}

/* Reads all codes of a raw stream, or the only code of a stream of kind TW_ECSQ_ONE. */
static enum tw_status read_plain(struct reader *r, struct stream *stream, uint32_t codes) {
    const size_t bytes = stream->kind == TW_ECSQ_RAW ? codes : 1;
    if (!has(r, bytes)) return TW_CORRUPT;
    stream->raw = r->at;
    stream->code = r->at[0];
    for (size_t i = 0; i < bytes; i++) {
        if (r->at[i] >= tw_ecsq_alphabet(r->ecsq)) return TW_CORRUPT;
    }
    r->at += bytes;
    return TW_OK;
}

/* Reads a stream of `active` elements up to its signs. */
static enum tw_status stream_open(struct reader *r, struct stream *stream, uint32_t active) {
    if (!has(r, TW_ECSQ_STREAM_HEAD_BYTES)) return TW_CORRUPT;
    const uint8_t kind = r->at[0];
    const uint32_t written = tw_get_u32(r->at + 1);
    if (kind > TW_ECSQ_ONE || written > active) return TW_CORRUPT;
    r->at += TW_ECSQ_STREAM_HEAD_BYTES;
    stream->kind = (enum tw_ecsq_kind)kind;
    stream->signs_count = 0;
    TW_TRY(read_written(r, stream, written));
    TW_TRY(kind == TW_ECSQ_CODED ? read_coded(r, stream)
                                 : read_plain(r, stream, tw_ecsq_codes(r->ecsq, active)));
    stream->signs = (struct tw_ecsq_signs_left){.at = r->at, .end = r->end};
    return TW_OK;
}

static enum tw_status stream_next(struct stream *stream, uint8_t *codes, uint32_t count) {
    if (stream->kind == TW_ECSQ_CODED) {
        return TW_COMPRESS_ISA(rans).decode(&stream->decoder, codes, count);
    }
    if (stream->kind == TW_ECSQ_RAW) {
        memcpy(codes, stream->raw, count);
        stream->raw += count;
    } else {
        memset(codes, stream->code, count);
    }
    return TW_OK;
}

/* Ends a stream and moves to the next one. Returns TW_CORRUPT unless all its bytes were used,
 * including the last byte of signs. */
static enum tw_status stream_close(struct reader *r, const struct stream *stream) {
    const size_t bytes = (stream->signs_count + 7) / 8, odd = stream->signs_count % 8;
    if (stream->written_left != 0) return TW_CORRUPT;
    if (stream->kind == TW_ECSQ_CODED) TW_TRY(tw_rans_decoder_finish(&stream->decoder));
    if (odd > 0 && r->at[bytes - 1] >> odd != 0) return TW_CORRUPT;
    r->at += bytes;
    return TW_OK;
}

/* Returns TW_CORRUPT unless the stream has the signs and full sizes that codes[count] need. The
 * zeros after the codes need none. */
static enum tw_status check_codes(const struct reader *r, struct stream *stream,
                                  const uint8_t *codes, uint32_t count) {
    struct tw_ecsq_asked asked = {0};
    for (uint32_t at = 0; at < count; at += PIECE) tw_ecsq_ask(r->ecsq, codes + at, &asked);
    if (asked.written > stream->written_left) return TW_CORRUPT;
    stream->written_left -= asked.written;
    stream->signs_count += asked.signs;
    return has(r, (stream->signs_count + 7) / 8) ? TW_OK : TW_CORRUPT;
}

/* Decodes PIECE elements to y[PIECE]. */
static void put_piece(const struct tw_ecsq_levels *levels, struct stream *stream,
                      const uint8_t *codes, float *y) {
    for (uint32_t large = tw_ecsq_put(levels, false, codes, &stream->signs, y); large != 0;
         large &= large - 1) {
        float *const at = y + __builtin_ctz(large);
        *at = copysignf((float)tw_get_u16(stream->written) * levels->s, *at);
        stream->written += 2;
    }
}

/* Decodes a piece and adds it, times the weight, to dst[count], count <= PIECE. */
static void add_piece(const struct tw_ecsq_levels *levels, struct stream *stream,
                      const uint8_t *codes, float *dst, uint32_t count) {
    float values[PIECE];
    if (count == PIECE && tw_ecsq_put(levels, true, codes, &stream->signs, dst) == 0) return;
    put_piece(levels, stream, codes, values);
    for (uint32_t i = 0; i < count; i++) dst[i] = dst[i] + levels->weight * values[i];
}

/* Decodes a block to y[count]. Zeros must follow its codes, because whole pieces are decoded. */
static void put_values(const struct tw_ecsq_levels *levels, struct stream *stream,
                       const uint8_t *codes, float *y, uint32_t count) {
    const uint32_t whole = count - count % PIECE;
    for (uint32_t at = 0; at < whole; at += PIECE) {
        put_piece(levels, stream, codes + at / levels->in_code, y + at);
    }
    if (count > whole) {
        float last[PIECE];
        put_piece(levels, stream, codes + whole / levels->in_code, last);
        memcpy(y + whole, last, (count - whole) * sizeof(*y));
    }
}

static void add_values(const struct tw_ecsq_levels *levels, struct stream *stream,
                       const uint8_t *codes, float *dst, uint32_t count) {
    for (uint32_t at = 0; at < count; at += PIECE) {
        const uint32_t here = count - at < PIECE ? count - at : PIECE;
        add_piece(levels, stream, codes + at / levels->in_code, dst + at, here);
    }
}

static struct tw_ecsq_levels levels_of(const struct reader *r, size_t b, float weight) {
    struct tw_ecsq_levels levels = {
        .s = tw_ecsq_unit(tw_ecsq_scale(r->scales, b), r->c),
        .weight = weight,
        .one = r->shift_one,
        .more = r->shift_more,
        .limit = tw_ecsq_limit(r->ecsq),
        .size_bits = r->ecsq->size_bits,
        .in_code = r->ecsq->in_code,
    };
    for (int32_t a = 1; a < TW_ECSQ_SIZES; a++) {
        const int32_t shift = a == 1 ? levels.one : levels.more;
        levels.level[a] = (float)(256 * a + shift) * 0x1p-8f * levels.s;
    }
    for (int32_t a = 0; a < TW_ECSQ_SIZES; a++) levels.added[a] = weight * levels.level[a];
    return levels;
}

/* Decodes block b into the sink. `codes` is ignored if the block's scale is 0. */
static void put_block(const struct reader *r, struct stream *stream, size_t b, const uint8_t *codes,
                      const struct tw_codec_sink *sink) {
    const uint32_t count = tw_ecsq_count(r->n, b);
    float *const dst = sink->dst + b * BLOCK;
    if (tw_ecsq_scale(r->scales, b) != 0) {
        const struct tw_ecsq_levels levels = levels_of(r, b, sink->weight);
        if (sink->is_add) {
            add_values(&levels, stream, codes, dst, count);
        } else {
            put_values(&levels, stream, codes, dst, count);
        }
    } else if (sink->is_add) {
        const float zero = sink->weight * 0.0f;
        for (uint32_t i = 0; i < count; i++) dst[i] = dst[i] + zero;
    } else {
        memset(dst, 0, count * sizeof(*dst));
    }
}

/* Reads the codes of block b and appends zeros. If the number of elements is odd, the last code has
 * a second size, which must be 0. */
static enum tw_status next_block(const struct reader *r, struct stream *stream, size_t b,
                                 uint8_t *codes) {
    const struct tw_ecsq *const ecsq = r->ecsq;
    const uint32_t elements = tw_ecsq_count(r->n, b), count = tw_ecsq_codes(ecsq, elements);
    TW_TRY(stream_next(stream, codes, count));
    memset(codes + count, 0, PIECE);
    const bool is_odd = elements % ecsq->in_code != 0;
    return is_odd && codes[count - 1] >> ecsq->size_bits != 0 ? TW_CORRUPT : TW_OK;
}

/* Decodes the stream of blocks [begin, end). */
static enum tw_status read_stream(struct reader *r, size_t begin, size_t end,
                                  const struct tw_codec_sink *sink) {
    struct stream stream;
    uint8_t codes[BLOCK + PIECE];
    const uint32_t active = tw_ecsq_active(r->scales, r->n, begin, end);
    if (active > 0) TW_TRY(stream_open(r, &stream, active));
    for (size_t b = begin; b < end; b++) {
        const uint32_t count = tw_ecsq_codes(r->ecsq, tw_ecsq_count(r->n, b));
        if (tw_ecsq_scale(r->scales, b) != 0) {
            TW_TRY(next_block(r, &stream, b, codes));
            TW_TRY(check_codes(r, &stream, codes, count));
        }
        if (sink != NULL) put_block(r, &stream, b, codes, sink);
    }
    return active > 0 ? stream_close(r, &stream) : TW_OK;
}

enum tw_status TW_COMPRESS_ISA(ecsq_decode)(const struct tw_ecsq *ecsq, const uint8_t *src,
                                            size_t bytes, size_t n,
                                            const struct tw_codec_sink *sink) {
    struct reader r = {.ecsq = ecsq, .n = n};
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    const size_t blocks = tw_ecsq_blocks(n);
    TW_TRY(read_head(&r, src, bytes));
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(ecsq, b, blocks)) {
        TW_TRY(read_stream(&r, b, tw_ecsq_stream_end(ecsq, b, blocks), sink));
    }
    return r.at == r.end ? TW_OK : TW_CORRUPT;
}
