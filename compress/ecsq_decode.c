/* ecsq_decode.c - the decoder of the ecsq codecs (ecsq.h). Codes are decoded a block at a time.
 * Before any of them becomes a value, the decoder checks that the signs and magnitudes which the
 * block needs are present. */
#include <math.h>

#include "compress/ecsq.h"
#include "compress/rans.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

enum {
    BLOCK = TW_ECSQ_BLOCK,
    PIECE = 32,      /* elements decoded, or codes examined, at a time */
    MAGNITUDES = 32, /* largest number of possible magnitudes in a code */
};
_Static_assert(BLOCK % PIECE == 0, "whole blocks are whole pieces");

/* ---- codes and signs to elements ------------------------------------------------------------ */

/* Parameters for decoding a block's codes to values. */
struct levels {
    float level[MAGNITUDES]; /* (a + shift) * s */
    float added[MAGNITUDES]; /* weight * level */
    float s, weight;
    int32_t one, more; /* shifts, in 2^-8 */
    uint32_t limit, magnitude_bits, in_code;
};

/* Number of signs, and of magnitudes written in full, that belong to a set of codes. */
struct asked {
    uint32_t signs, written; /* magnitudes written in full */
};

/* Reader of sign bits, with the unread rest of a payload. */
struct signs_left {
    const uint8_t *at, *end;
    unsigned taken; /* number of bits already read from the byte at `at` */
};

/* Returns at least the next 32 bits; bits beyond the end are 0. */
static inline uint64_t signs_next(const struct signs_left *signs) {
    const size_t bytes = (size_t)(signs->end - signs->at);
    uint8_t last[8] = {0};
    if (bytes >= sizeof(last)) return tw_get_u64(signs->at) >> signs->taken;
    memcpy(last, signs->at, bytes);
    return tw_get_u64(last) >> signs->taken;
}

static inline void signs_skip(struct signs_left *signs, unsigned count) {
    const unsigned taken = signs->taken + count;
    signs->at += taken / 8;
    signs->taken = taken % 8;
}

#ifdef __AVX2__

static inline uint32_t nonzero(__m256i magnitudes) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(magnitudes, _mm256_setzero_si256()));
}

/* Returns the magnitudes in the higher bits of codes. The shift also brings in bits of adjacent
 * codes, which are masked out. */
static inline __m256i high_magnitudes(__m256i codes, unsigned magnitude_bits) {
    const __m256i mask = _mm256_set1_epi8((char)(0xFF >> magnitude_bits));
    return _mm256_and_si256(_mm256_srl_epi16(codes, _mm_cvtsi32_si128((int)magnitude_bits)), mask);
}

static inline void count_asked_avx2(const struct tw_ecsq *ecsq, const uint8_t *codes,
                                    struct asked *asked) {
    const __m256i limit = _mm256_set1_epi8((char)tw_ecsq_limit(ecsq));
    const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i low = _mm256_and_si256(both, limit),
                  high = high_magnitudes(both, ecsq->magnitude_bits);
    const uint32_t large = (uint32_t)_mm256_movemask_epi8(
        _mm256_or_si256(_mm256_cmpeq_epi8(low, limit), _mm256_cmpeq_epi8(high, limit)));
    asked->signs +=
        (uint32_t)__builtin_popcount(nonzero(low)) + (uint32_t)__builtin_popcount(nonzero(high));
    if (large != 0) {
        const uint32_t other = (uint32_t)_mm256_movemask_epi8(
            _mm256_and_si256(_mm256_cmpeq_epi8(low, limit), _mm256_cmpeq_epi8(high, limit)));
        asked->written += (uint32_t)__builtin_popcount(large) + (uint32_t)__builtin_popcount(other);
    }
}

/* Returns the magnitudes of 32 elements, one per byte. */
static inline __m256i magnitudes_of_avx2(const struct levels *levels, const uint8_t *codes) {
    if (levels->in_code == 1) return _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i limit = _mm256_set1_epi8((char)levels->limit);
    const __m256i both =
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
    const __m256i high = high_magnitudes(both, levels->magnitude_bits);
    return _mm256_or_si256(_mm256_and_si256(both, limit), _mm256_slli_epi16(high, 8));
}

/* Returns the values of 8 magnitudes: levels, or weighted levels if is_add. */
static inline __m256 level_of_avx2(const struct levels *levels, bool is_add, __m256i a) {
    if (levels->limit < 8) {
        return _mm256_permutevar8x32_ps(_mm256_loadu_ps(is_add ? levels->added : levels->level), a);
    }
    const float one = (float)levels->one * 0x1p-8f, more = (float)levels->more * 0x1p-8f;
    const __m256 shifts = _mm256_setr_ps(0.0f, one, more, more, more, more, more, more);
    const __m256 shift =
        _mm256_permutevar8x32_ps(shifts, _mm256_min_epu32(a, _mm256_set1_epi32(2)));
    const __m256 level =
        _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(a), shift), _mm256_set1_ps(levels->s));
    return is_add ? _mm256_mul_ps(_mm256_set1_ps(levels->weight), level) : level;
}

static inline uint32_t put_levels_avx2(const struct levels *levels, bool is_add,
                                       const uint8_t *codes, struct signs_left *signs, float *y) {
    const __m256i magnitudes = magnitudes_of_avx2(levels, codes);
    const uint32_t large = (uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi8(magnitudes, _mm256_set1_epi8((char)levels->limit)));
    if (is_add && large != 0) return large;
    const uint32_t some = nonzero(magnitudes);
    const uint32_t is_minus = _pdep_u32((uint32_t)signs_next(signs), some);
    const __m256 minus = _mm256_set1_ps(-0.0f);
    uint8_t bytes[32];
    signs_skip(signs, (unsigned)__builtin_popcount(some));
    _mm256_storeu_si256((__m256i *)(void *)bytes, magnitudes);
    for (unsigned i = 0; i < 32; i += 8) {
        const __m256i a =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(bytes + i)));
        const __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32((int)(is_minus >> i)),
                                               _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
        const __m256 value = _mm256_xor_ps(level_of_avx2(levels, is_add, a),
                                           _mm256_and_ps(_mm256_castsi256_ps(sign), minus));
        _mm256_storeu_ps(y + i, is_add ? _mm256_add_ps(_mm256_loadu_ps(y + i), value) : value);
    }
    return large;
}

#endif

/* Adds to *asked the number of signs, and of magnitudes written in full, that belong to codes[32].
 */
static inline void count_asked(const struct tw_ecsq *ecsq, const uint8_t *codes,
                               struct asked *asked) {
#ifdef __AVX2__
    count_asked_avx2(ecsq, codes, asked);
#else
    const uint8_t limit = (uint8_t)tw_ecsq_limit(ecsq);
    uint8_t signs = 0, written = 0; /* a byte is wide enough: 32 codes have at most 64 magnitudes */
    for (uint32_t i = 0; i < PIECE; i++) {
        const uint8_t low = codes[i] & limit, high = (uint8_t)(codes[i] >> ecsq->magnitude_bits);
        signs = (uint8_t)(signs + (low != 0) + (high != 0));
        written = (uint8_t)(written + (low == limit) + (high == limit));
    }
    asked->signs += signs;
    asked->written += written;
#endif
}

/* Decodes 32 elements: sets y[32] to +-(a + shift) * s, and +0 where a = 0. If is_add, adds weight
 * times these values instead. Returns a bit mask of the elements whose magnitudes are written in
 * full; of these only the sign is set in y. If is_add and the mask is not 0, nothing is added and
 * no sign is read. */
static inline uint32_t put_levels(const struct levels *levels, bool is_add, const uint8_t *codes,
                                  struct signs_left *signs, float *restrict y) {
#ifdef __AVX2__
    return put_levels_avx2(levels, is_add, codes, signs, y);
#else
    const float *const table = is_add ? levels->added : levels->level;
    uint64_t bits = signs_next(signs);
    uint32_t large = 0, magnitudes[PIECE];
    unsigned bits_count = 0;
    for (uint32_t i = 0; i < PIECE; i++) {
        const uint32_t code = codes[i / levels->in_code];
        magnitudes[i] = code >> i % levels->in_code * levels->magnitude_bits & levels->limit;
        large |= (uint32_t)(magnitudes[i] == levels->limit) << i;
    }
    if (is_add && large != 0) return large;
    for (uint32_t i = 0; i < PIECE; i++) {
        const uint32_t has_sign = magnitudes[i] > 0, minus = (uint32_t)(bits & has_sign) << 31;
        const float value = tw_float_of(tw_bits_of(table[magnitudes[i]]) ^ minus);
        bits >>= has_sign;
        bits_count += has_sign;
        y[i] = is_add ? y[i] + value : value;
    }
    signs_skip(signs, bits_count);
    return large;
#endif
}

/* ---- streams -------------------------------------------------------------------------------- */

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
    uint8_t code;            /* TW_ECSQ_ONE: the value of every code in the stream */
    const uint8_t *raw;      /* TW_ECSQ_RAW: the unread codes */
    const uint8_t *written;  /* magnitudes written in full, not used yet */
    uint32_t written_left;   /* number of magnitudes in `written` */
    size_t signs_count;      /* number of signs used so far */
    struct signs_left signs; /* unread signs */
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
    stream->signs = (struct signs_left){.at = r->at, .end = r->end};
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

/* Returns TW_CORRUPT unless the stream has the signs and full magnitudes that codes[count] need.
 * The zeros after the codes need none. */
static enum tw_status check_codes(const struct reader *r, struct stream *stream,
                                  const uint8_t *codes, uint32_t count) {
    struct asked asked = {0};
    for (uint32_t at = 0; at < count; at += PIECE) count_asked(r->ecsq, codes + at, &asked);
    if (asked.written > stream->written_left) return TW_CORRUPT;
    stream->written_left -= asked.written;
    stream->signs_count += asked.signs;
    return has(r, (stream->signs_count + 7) / 8) ? TW_OK : TW_CORRUPT;
}

/* Decodes PIECE elements to y[PIECE]. */
static void put_piece(const struct levels *levels, struct stream *stream, const uint8_t *codes,
                      float *y) {
    for (uint32_t large = put_levels(levels, false, codes, &stream->signs, y); large != 0;
         large &= large - 1) {
        float *const at = y + __builtin_ctz(large);
        *at = copysignf((float)tw_get_u16(stream->written) * levels->s, *at);
        stream->written += 2;
    }
}

/* Decodes a piece and adds it, times the weight, to dst[count], count <= PIECE. */
static void add_piece(const struct levels *levels, struct stream *stream, const uint8_t *codes,
                      float *dst, uint32_t count) {
    float values[PIECE];
    if (count == PIECE && put_levels(levels, true, codes, &stream->signs, dst) == 0) return;
    put_piece(levels, stream, codes, values);
    for (uint32_t i = 0; i < count; i++) dst[i] = dst[i] + levels->weight * values[i];
}

/* Decodes a block to y[count]. Zeros must follow its codes, because whole pieces are decoded. */
static void put_values(const struct levels *levels, struct stream *stream, const uint8_t *codes,
                       float *y, uint32_t count) {
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

static void add_values(const struct levels *levels, struct stream *stream, const uint8_t *codes,
                       float *dst, uint32_t count) {
    for (uint32_t at = 0; at < count; at += PIECE) {
        const uint32_t here = count - at < PIECE ? count - at : PIECE;
        add_piece(levels, stream, codes + at / levels->in_code, dst + at, here);
    }
}

static struct levels levels_of(const struct reader *r, size_t b, float weight) {
    struct levels levels = {
        .s = tw_ecsq_unit(tw_ecsq_scale(r->scales, b), r->c),
        .weight = weight,
        .one = r->shift_one,
        .more = r->shift_more,
        .limit = tw_ecsq_limit(r->ecsq),
        .magnitude_bits = r->ecsq->magnitude_bits,
        .in_code = r->ecsq->in_code,
    };
    TW_ASSERT(levels.limit < MAGNITUDES && levels.s > 0.0f);
    for (int32_t a = 1; a < MAGNITUDES; a++) {
        const int32_t shift = a == 1 ? levels.one : levels.more;
        levels.level[a] = (float)(256 * a + shift) * 0x1p-8f * levels.s;
    }
    for (int32_t a = 0; a < MAGNITUDES; a++) levels.added[a] = weight * levels.level[a];
    return levels;
}

/* Decodes block b into the sink. `codes` is ignored if the block's scale is 0. */
static void put_block(const struct reader *r, struct stream *stream, size_t b, const uint8_t *codes,
                      const struct tw_codec_sink *sink) {
    const uint32_t count = tw_ecsq_count(r->n, b);
    float *const dst = sink->dst + b * BLOCK;
    if (tw_ecsq_scale(r->scales, b) != 0) {
        const struct levels levels = levels_of(r, b, sink->weight);
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
 * a second magnitude, which must be 0. */
static enum tw_status next_block(const struct reader *r, struct stream *stream, size_t b,
                                 uint8_t *codes) {
    const struct tw_ecsq *const ecsq = r->ecsq;
    const uint32_t elements = tw_ecsq_count(r->n, b), count = tw_ecsq_codes(ecsq, elements);
    TW_ASSERT(count <= BLOCK);
    TW_TRY(stream_next(stream, codes, count));
    memset(codes + count, 0, PIECE);
    const bool is_odd = elements % ecsq->in_code != 0;
    return is_odd && codes[count - 1] >> ecsq->magnitude_bits != 0 ? TW_CORRUPT : TW_OK;
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
    TW_ASSERT(r.at <= r.end);
    return r.at == r.end ? TW_OK : TW_CORRUPT;
}
