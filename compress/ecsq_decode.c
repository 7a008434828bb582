/* ecsq_decode.c - the decoder of codec_ecsq.h. Symbols are decoded a block at a time; nothing is
 * put out before a first run over the whole payload found it right. */
#include <string.h>

#include "base/limits.h"
#include "compress/ecsq.h"
#include "compress/rans_form.h"

enum {
    BLOCK = TW_ECSQ_BLOCK,
    PIECE = 128, /* symbols counted in a byte */
    ADDED = 512, /* elements decoded before they are added: beside the tables in the first cache */
};

struct reader {
    const struct tw_ecsq *ecsq;
    size_t n;
    const uint8_t *scales;
    uint32_t c;
    int32_t shift_one, shift_more; /* in 2^-8 */
    const uint8_t *at, *end;       /* what is not yet read */
};

struct stream {
    enum tw_ecsq_kind kind;
    uint8_t symbol;       /* of kind one */
    const uint8_t *raw;   /* of kind raw */
    const uint8_t *codes; /* written out, not yet used */
    uint32_t codes_left;
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

static enum tw_status read_codes(struct reader *r, struct stream *stream, uint32_t count) {
    if (!has(r, (size_t)2 * count)) return TW_CORRUPT;
    stream->codes = r->at;
    stream->codes_left = count;
    for (uint32_t i = 0; i < count; i++, r->at += 2) {
        const int32_t code = (int16_t)tw_get_u16(r->at);
        const uint32_t size = (uint32_t)(code < 0 ? -code : code);
        if (size < r->ecsq->limit || size * r->c > TW_ECSQ_PEAK * TW_ECSQ_STEP_ONE) {
            return TW_CORRUPT;
        }
    }
    return TW_OK;
}

static enum tw_status read_coded(struct reader *r, struct stream *stream) {
    struct tw_rans_model model;
    const size_t used =
        tw_rans_model_decode(&model, r->at, (size_t)(r->end - r->at), 2 * r->ecsq->limit);
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

/* The head of a stream of `active` symbols; the reader goes on to the next. */
static enum tw_status stream_open(struct reader *r, struct stream *stream, uint32_t active) {
    if (!has(r, TW_ECSQ_STREAM_HEAD_BYTES)) return TW_CORRUPT;
    const uint8_t kind = r->at[0];
    const uint32_t codes = tw_get_u32(r->at + 1);
    if (kind > TW_ECSQ_ONE || codes > active) return TW_CORRUPT;
    r->at += TW_ECSQ_STREAM_HEAD_BYTES;
    stream->kind = (enum tw_ecsq_kind)kind;
    TW_TRY(read_codes(r, stream, codes));
    if (kind == TW_ECSQ_CODED) return read_coded(r, stream);
    const size_t bytes = kind == TW_ECSQ_RAW ? active : 1;
    if (!has(r, bytes)) return TW_CORRUPT;
    stream->raw = r->at;
    stream->symbol = r->at[0];
    for (size_t i = 0; i < bytes; i++) {
        if (r->at[i] >= 2 * r->ecsq->limit) return TW_CORRUPT;
    }
    r->at += bytes;
    return TW_OK;
}

static enum tw_status stream_next(struct stream *stream, uint8_t *symbols, uint32_t count) {
    if (stream->kind == TW_ECSQ_CODED) {
        return TW_FORM(rans).decode(&stream->decoder, symbols, count);
    }
    if (stream->kind == TW_ECSQ_RAW) {
        memcpy(symbols, stream->raw, count);
        stream->raw += count;
    } else {
        memset(symbols, stream->symbol, count);
    }
    return TW_OK;
}

static enum tw_status stream_close(const struct stream *stream) {
    if (stream->codes_left != 0) return TW_CORRUPT;
    return stream->kind == TW_ECSQ_CODED ? tw_rans_decoder_finish(&stream->decoder) : TW_OK;
}

/* Takes as many of the codes written out as the symbols ask for. They are counted in bytes, which
 * hold what a piece can ask for: vectors of bytes are full. */
static enum tw_status count_codes(const struct tw_ecsq *ecsq, struct stream *stream,
                                  const uint8_t *symbols, uint32_t count) {
    const uint8_t last = (uint8_t)(2 * ecsq->limit - 1);
    const uint32_t whole = count - count % PIECE;
    uint32_t asked = 0;
    for (uint32_t at = 0; at < whole; at += PIECE) {
        uint8_t here = 0;
        for (uint32_t i = 0; i < PIECE; i++) here = (uint8_t)(here + (symbols[at + i] == last));
        asked += here;
    }
    for (uint32_t i = whole; i < count; i++) asked += symbols[i] == last;
    if (asked > stream->codes_left) return TW_CORRUPT;
    stream->codes_left -= asked;
    return TW_OK;
}

/* y[i] = +-(a + shift) s, and +0 where a = 0. Levels are made as integers, whose selections are
 * no branches. */
static void dequantise(const struct reader *r, float s, const uint8_t *restrict symbols,
                       float *restrict y, uint32_t count) {
    const int32_t more = r->shift_more, one = r->shift_one - more;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t symbol = symbols[i], a = (symbol + 1) >> 1;
        const int32_t level = 256 * a + more + (-(a == 1) & one);
        const float size = (float)(-(a > 0) & level) * 0x1p-8f * s;
        y[i] = tw_ecsq_float(tw_ecsq_bits(size) | (uint32_t)symbol << 31);
    }
}

static void put_codes(const struct reader *r, float s, struct stream *stream,
                      const uint8_t *symbols, float *y, uint32_t count) {
    const int last = (int)(2 * r->ecsq->limit - 1);
    for (const uint8_t *at = memchr(symbols, last, count); at != NULL;
         at = memchr(at + 1, last, (size_t)(symbols + count - at - 1))) {
        y[at - symbols] = (float)(int16_t)tw_get_u16(stream->codes) * s;
        stream->codes += 2;
        stream->codes_left--;
    }
}

/* Elements of a block of scale s, 0 for one without codes. */
static void put_values(const struct reader *r, float s, struct stream *stream,
                       const uint8_t *symbols, float *y, uint32_t count) {
    if (s == 0.0f) {
        for (uint32_t i = 0; i < count; i++) y[i] = 0.0f;
    } else {
        dequantise(r, s, symbols, y, count);
        put_codes(r, s, stream, symbols, y, count);
    }
}

/* Block b, whose symbols are there unless its scale is 0. */
static void put_block(const struct reader *r, struct stream *stream, size_t b,
                      const uint8_t *symbols, const struct tw_codec_sink *sink) {
    float *const dst = sink->dst + b * BLOCK;
    const uint32_t count = tw_ecsq_count(r->n, b);
    const float s = tw_ecsq_unit(tw_ecsq_scale(r->scales, b), r->c), weight = sink->weight;
    if (!sink->is_add) {
        put_values(r, s, stream, symbols, dst, count);
        return;
    }
    for (uint32_t at = 0; at < count; at += ADDED) {
        float values[ADDED];
        const uint32_t here = count - at < ADDED ? count - at : ADDED;
        put_values(r, s, stream, symbols + at, values, here);
        for (uint32_t i = 0; i < here; i++) dst[at + i] = dst[at + i] + weight * values[i];
    }
}

/* Blocks [begin, end); the check of a stream ends with the states of its coder. */
static enum tw_status read_stream(struct reader *r, size_t begin, size_t end,
                                  const struct tw_codec_sink *sink) {
    struct stream stream;
    uint8_t symbols[BLOCK];
    const uint32_t active = tw_ecsq_active(r->scales, r->n, begin, end);
    if (active > 0) TW_TRY(stream_open(r, &stream, active));
    for (size_t b = begin; b < end; b++) {
        const uint32_t count = tw_ecsq_count(r->n, b);
        if (tw_ecsq_scale(r->scales, b) != 0) {
            TW_TRY(stream_next(&stream, symbols, count));
            if (sink == NULL) TW_TRY(count_codes(r->ecsq, &stream, symbols, count));
        }
        if (sink != NULL) put_block(r, &stream, b, symbols, sink);
    }
    return active > 0 ? stream_close(&stream) : TW_OK;
}

enum tw_status TW_FORM(ecsq_decode)(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes,
                                    size_t n, const struct tw_codec_sink *sink) {
    struct reader r = {.ecsq = ecsq, .n = n};
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    const size_t blocks = tw_ecsq_blocks(n);
    TW_TRY(read_head(&r, src, bytes));
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(b, blocks)) {
        TW_TRY(read_stream(&r, b, tw_ecsq_stream_end(b, blocks), sink));
    }
    return r.at == r.end ? TW_OK : TW_CORRUPT;
}
