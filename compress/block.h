/* block.h - code shared by block codecs: a bf16 scale per block, and a digit of 1 or 4 bits per
 * element.
 *
 * Bytes, with b = ceil(n / elements) blocks: b little-endian scales, then the digits of each block,
 * the last block padded with digits 0. A block is 8 little-endian words of 16 or 32 bits. Digit k
 * of word j, counted from the lowest bits, is element 8 * k + j. Eight adjacent elements are thus
 * eight lanes of a vector, in encoders and decoders of any width.
 *
 * A codec defines the coding of one element. This header contains the loops, of constant length and
 * over eight lanes, so that compilers vectorise them. A codec is a `static const struct tw_block`,
 * which compilers can inline, and TW_CODEC_ROW(tw_block, ...) of codec_row.h. */
#ifndef TW_COMPRESS_BLOCK_H
#define TW_COMPRESS_BLOCK_H

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec_row.h"
#include "kernels/type.h"

#define TW_BLOCK_TOO_LARGE 0x7E800000u /* 2^126 as bits of a float: elements must be smaller */
#define TW_BLOCK_TINY 0x0D800000u      /* 2^-100 */

enum {
    TW_BLOCK_LANES = 8,
    TW_BLOCK_GROUP = 64, /* elements whose digits are computed in one unrolled loop */
    TW_BLOCK_SOME = 8,  /* blocks encoded together, so that their scales are computed in parallel */
    TW_BLOCK_LINE = 16, /* elements in a cache line */
    TW_BLOCK_ELEMENTS_MAX = 256
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of digits are copied as they are");

/* Factors that divide x by the scale: x * lift * inverse. In a block of tiny elements lift is 2^64:
 * multiplying by it is exact, and makes the reciprocal of the scale finite. */
struct tw_block_factor {
    float lift, inverse;
};

struct tw_block {
    uint32_t elements;   /* elements per block, a multiple of TW_BLOCK_GROUP */
    uint32_t digit_bits; /* bits per digit, such that elements / 8 * digit_bits is 16 or 32 */
    /* bound of bf16 scales; decoders refuse others, because decoded values might not be finite */
    uint16_t scale_end;
    /* largest level: the scale is max |x| / top, rounded up; 0: the scale is an average */
    float top;

    /* For scales that are averages: the average is computed from a sum of integers, which does not
     * depend on the order. The integer of an element is part(x) - part(0), with x in units of
     * tw_block_unit. */
    uint32_t (*part)(float x);
    float (*average)(float sum, float count);

    uint32_t (*digit)(float x, float by);        /* by: 1 / scale, or the scale itself if that is an
                                                    average */
    float (*level)(uint32_t digit, float scale); /* decoded value: scale * the digit's level */
};

/* ---- floats as bits ------------------------------------------------------------------------ */

static inline uint32_t tw_block_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float tw_block_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns the bits of |x|. As integers they have the order of |x|; NaN and infinity are the
 * largest. */
static inline uint32_t tw_block_magnitude(float x) {
    return tw_block_bits(x) & 0x7FFFFFFFu;
}

static inline uint32_t tw_block_max(const float *x, uint32_t count) {
    int32_t max = 0; /* signed, because SSE2 has no unsigned comparison */
    for (uint32_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)tw_block_magnitude(x[i]);
        max = bits > max ? bits : max;
    }
    return (uint32_t)max;
}

/* ---- scales -------------------------------------------------------------------------------- */

/* All scales are computed without branches, so that several are computed in parallel. */

/* Returns the smallest bf16 that is at least max / top. It is 0 only if max is 0, although the
 * quotient may underflow. */
static inline uint16_t tw_block_scale_up(uint32_t max, float top) {
    const uint32_t scale = (tw_block_bits(tw_block_float(max) / top) + 0xFFFFu) >> 16;
    return (uint16_t)(scale | ((max != 0) & (scale == 0)));
}

static inline float tw_block_lift(uint32_t max) {
    return max < TW_BLOCK_TINY ? 0x1p64f : 1.0f;
}

/* If the scale is 0, all elements are 0, and the inverse has no effect. */
static inline struct tw_block_factor tw_block_factor(uint32_t max, uint16_t scale) {
    const float lift = tw_block_lift(max), size = tw_bf16_to_f32((uint16_t)(scale | (scale == 0)));
    return (struct tw_block_factor){.lift = lift, .inverse = 1.0f / (size * lift)};
}

/* Two powers of two: `into` scales `max` < 2^126 into [1, 2) (less for denormals), `back` reverses
 * that. */
struct tw_block_unit {
    float into, back;
};

static inline struct tw_block_unit tw_block_unit(uint32_t max) {
    const uint32_t exponent = max >> 23 == 0 ? 1 : max >> 23;
    return (struct tw_block_unit){.into = tw_block_float((254 - exponent) << 23),
                                  .back = tw_block_float(exponent << 23)};
}

/* ---- digits -------------------------------------------------------------------------------- */

static inline uint32_t tw_block_bytes(const struct tw_block *block) {
    return block->elements * block->digit_bits / 8;
}

/* Loads word by word: a vector load that spans two earlier stores would have to wait for both. */
static inline void tw_block_load(const struct tw_block *block, const uint8_t *restrict from,
                                 uint32_t *restrict words) {
    for (size_t j = 0; j < TW_BLOCK_LANES; j++) {
        uint16_t half;
        if (tw_block_bytes(block) == TW_BLOCK_LANES * sizeof(words[0])) {
            memcpy(&words[j], from + j * sizeof(words[0]), sizeof(words[0]));
        } else {
            memcpy(&half, from + j * sizeof(half), sizeof(half));
            words[j] = half;
        }
    }
}

static inline void tw_block_store(const struct tw_block *block, const uint32_t *restrict words,
                                  uint8_t *restrict to) {
    uint16_t halves[TW_BLOCK_LANES];
    if (tw_block_bytes(block) == TW_BLOCK_LANES * sizeof(words[0])) {
        memcpy(to, words, TW_BLOCK_LANES * sizeof(words[0]));
    } else {
        for (size_t j = 0; j < TW_BLOCK_LANES; j++) halves[j] = (uint16_t)words[j];
        memcpy(to, halves, sizeof(halves));
    }
}

/* Writes the digits of a block to `words`. The loop over words is vectorised: each word is a lane.
 */
static inline void tw_block_put(const struct tw_block *block, const float *restrict x,
                                struct tw_block_factor by, uint32_t *restrict words) {
    for (size_t j = 0; j < TW_BLOCK_LANES; j++) words[j] = 0;
    for (size_t end = block->elements; end > 0; end -= TW_BLOCK_GROUP) {
        for (size_t j = 0; j < TW_BLOCK_LANES; j++) {
            uint32_t word = words[j];
            for (size_t k = 1; k <= TW_BLOCK_GROUP / TW_BLOCK_LANES; k++) {
                const float lifted = x[end - TW_BLOCK_LANES * k + j] * by.lift;
                word = word << block->digit_bits | block->digit(lifted, by.inverse);
            }
            words[j] = word;
        }
    }
}

static inline void tw_block_get(const struct tw_block *block, const uint32_t *restrict words,
                                float scale, struct tw_codec_sink to) {
    const uint32_t mask = (1u << block->digit_bits) - 1;
    for (size_t at = 0; at < block->elements; at += TW_BLOCK_GROUP) {
        for (size_t j = 0; j < TW_BLOCK_LANES; j++) {
            const uint32_t word = words[j] >> at / TW_BLOCK_LANES * block->digit_bits;
            for (size_t k = 0; k < TW_BLOCK_GROUP / TW_BLOCK_LANES; k++) {
                float *const y = &to.dst[at + TW_BLOCK_LANES * k + j];
                const float value = block->level(word >> k * block->digit_bits & mask, scale);
                *y = to.is_add ? *y + to.weight * value : value;
            }
        }
    }
}

/* ---- arrays -------------------------------------------------------------------------------- */

static inline size_t tw_blocks_count(const struct tw_block *block, size_t n) {
    return n / block->elements + (n % block->elements != 0);
}

static inline size_t tw_block_bound(const struct tw_block *block, size_t n) {
    return tw_blocks_count(block, n) * (2 + tw_block_bytes(block));
}

static inline uint32_t tw_block_sum(const struct tw_block *block, const float *x, uint32_t max) {
    const float into = tw_block_unit(max).into;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < block->elements; i++) sum += block->part(x[i] * into);
    return sum - block->elements * block->part(0.0f);
}

static inline uint16_t tw_block_scale(const struct tw_block *block, uint32_t max, uint32_t sum,
                                      uint32_t count) {
    if (block->top > 0.0f) return tw_block_scale_up(max, block->top);
    /* The sum fits int32_t. Every processor converts that to float in one instruction. */
    return tw_bf16_from_f32(block->average((float)(int32_t)sum, (float)count) *
                            tw_block_unit(max).back);
}

/* Where to write the next blocks of a payload. */
struct tw_block_at {
    uint8_t *scales, *digits;
    const float *next; /* elements of the next blocks, for prefetching; NULL near the end */
};

/* Prefetches elements. The hardware prefetcher is too late for loops with much computation between
 * loads. */
static inline void tw_block_expect(const float *x, uint32_t elements) {
    for (uint32_t i = 0; i < elements; i += TW_BLOCK_LINE) __builtin_prefetch(x + i);
}

/* Scales of blocks that are encoded together. */
struct tw_block_scales {
    uint32_t max[TW_BLOCK_SOME], sum[TW_BLOCK_SOME];
    uint16_t scale[TW_BLOCK_SOME];
    float lift[TW_BLOCK_SOME], by[TW_BLOCK_SOME];
};

/* Computes the other fields from max and sum. Returns false if an element is too large or not
 * finite. */
static inline bool tw_block_scales(const struct tw_block *block, uint32_t count,
                                   struct tw_block_scales *s) {
    uint32_t bad = 0;
    for (uint32_t b = 0; b < TW_BLOCK_SOME; b++) {
        const uint16_t scale = tw_block_scale(block, s->max[b], s->sum[b], count);
        const struct tw_block_factor by = tw_block_factor(s->max[b], scale);
        bad |= s->max[b] >= TW_BLOCK_TOO_LARGE;
        s->scale[b] = scale;
        s->lift[b] = block->top > 0.0f ? by.lift : 1.0f;
        s->by[b] = block->top > 0.0f ? by.inverse : tw_bf16_to_f32(scale);
    }
    return bad == 0;
}

/* Encodes up to TW_BLOCK_SOME blocks, or one block with n elements and padding. Returns false if an
 * element is too large or not finite. */
static inline bool tw_block_put_some(const struct tw_block *block, struct tw_codec_source source,
                                     struct tw_block_at to) {
    const uint32_t elements = block->elements, bytes = tw_block_bytes(block);
    const uint32_t blocks = (uint32_t)tw_blocks_count(block, source.n);
    const uint32_t count = source.n < elements ? (uint32_t)source.n : elements;
    uint32_t words[TW_BLOCK_SOME][TW_BLOCK_LANES];
    struct tw_block_scales s;
    for (uint32_t b = 0; b < TW_BLOCK_SOME; b++) s.max[b] = s.sum[b] = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        const float *const x = source.x + b * elements;
        if (to.next != NULL) tw_block_expect(to.next + b * elements, elements);
        s.max[b] = tw_block_max(x, elements);
        if (block->part != NULL) s.sum[b] = tw_block_sum(block, x, s.max[b]);
    }
    if (!tw_block_scales(block, count, &s)) return false;
    for (uint32_t b = 0; b < blocks; b++) {
        const float *const x = source.x + b * elements;
        if (s.lift[b] == 1.0f) { /* usual case: as a constant, a lift of 1 saves a multiplication */
            tw_block_put(block, x, (struct tw_block_factor){1.0f, s.by[b]}, words[b]);
        } else {
            tw_block_put(block, x, (struct tw_block_factor){s.lift[b], s.by[b]}, words[b]);
        }
    }
    for (uint32_t b = 0; b < blocks; b++) {
        tw_put_u16(to.scales + 2 * b, s.scale[b]);
        tw_block_store(block, words[b], to.digits + b * bytes);
    }
    for (uint32_t b = 0; b < blocks && source.lost != NULL; b++) { /* adding -1 * D gives x - D */
        tw_block_get(block, words[b], tw_bf16_to_f32(s.scale[b]),
                     (struct tw_codec_sink){
                         .dst = source.lost + b * elements, .weight = -1.0f, .is_add = true});
    }
    return true;
}

/* Encodes the incomplete last block of an array, and sets the digits of its padding to 0. */
static inline bool tw_block_put_end(const struct tw_block *block, struct tw_codec_source source,
                                    struct tw_block_at to) {
    const uint32_t mask = (1u << block->digit_bits) - 1;
    float padded[TW_BLOCK_ELEMENTS_MAX] = {0};
    uint32_t words[TW_BLOCK_LANES];
    memcpy(padded, source.x, source.n * sizeof(float));
    const bool has_lost = source.lost != NULL;
    if (!tw_block_put_some(
            block,
            (struct tw_codec_source){.x = padded, .n = source.n, .lost = has_lost ? padded : NULL},
            to)) {
        return false;
    }
    if (has_lost) memcpy(source.lost, padded, source.n * sizeof(float));
    tw_block_load(block, to.digits, words);
    for (size_t i = source.n; i < block->elements; i++) {
        words[i % TW_BLOCK_LANES] &= ~(mask << i / TW_BLOCK_LANES * block->digit_bits);
    }
    tw_block_store(block, words, to.digits);
    return true;
}

static inline enum tw_status tw_block_encode(const struct tw_block *block,
                                             struct tw_codec_source source, uint8_t *dst,
                                             size_t capacity, size_t *bytes_out) {
    const size_t n = source.n, whole = n / block->elements * block->elements;
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < tw_block_bound(block, n)) return TW_LIMIT;
    uint8_t *const digits = dst + 2 * tw_blocks_count(block, n);
    for (size_t at = 0, end = 0; at < n; at = end) {
        const size_t b = at / block->elements, some = (size_t)TW_BLOCK_SOME * block->elements;
        end = at == whole ? n : whole - at < some ? whole : at + some;
        const struct tw_block_at to = {.scales = dst + 2 * b,
                                       .digits = digits + b * tw_block_bytes(block),
                                       .next = n - end < some ? NULL : source.x + end};
        const struct tw_codec_source part = {.x = source.x + at,
                                             .n = end - at,
                                             .lost = source.lost == NULL ? NULL : source.lost + at};
        if (!(at < whole ? tw_block_put_some(block, part, to)
                         : tw_block_put_end(block, part, to))) {
            return TW_CORRUPT;
        }
    }
    *bytes_out = tw_block_bound(block, n);
    return TW_OK;
}

static inline enum tw_status tw_block_check(const struct tw_block *block, const uint8_t *src,
                                            size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != tw_block_bound(block, n)) return TW_CORRUPT;
    const size_t count = tw_blocks_count(block, n);
    const uint32_t mask = (1u << block->digit_bits) - 1;
    uint32_t words[TW_BLOCK_LANES], bad = 0;
    for (size_t b = 0; b < count; b++) bad |= tw_get_u16(src + 2 * b) >= block->scale_end;
    if (n % block->elements != 0) { /* the padding must be 0: equal content has equal bytes */
        tw_block_load(block, src + bytes - tw_block_bytes(block), words);
        for (size_t i = n % block->elements; i < block->elements; i++) {
            bad |= words[i % TW_BLOCK_LANES] >> i / TW_BLOCK_LANES * block->digit_bits & mask;
        }
    }
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static inline enum tw_status tw_block_decode(const struct tw_block *block, const uint8_t *src,
                                             size_t bytes, size_t n, struct tw_codec_sink sink) {
    TW_TRY(tw_block_check(block, src, bytes, n));
    const size_t whole = n / block->elements, count = tw_blocks_count(block, n);
    const uint8_t *const digits = src + 2 * count;
    const uint32_t bytes_each = tw_block_bytes(block);
    const float weight = sink.weight;
    float y[TW_BLOCK_ELEMENTS_MAX];
    uint32_t words[TW_BLOCK_LANES];
    for (size_t b = 0; !sink.is_add && b < whole; b++) {
        float *const to = sink.dst + b * block->elements;
        tw_block_load(block, digits + b * bytes_each, words);
        tw_block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * b)),
                     (struct tw_codec_sink){.dst = to});
    }
    for (size_t b = 0; sink.is_add && b < whole; b++) {
        float *const to = sink.dst + b * block->elements;
        tw_block_load(block, digits + b * bytes_each, words);
        tw_block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * b)),
                     (struct tw_codec_sink){.dst = to, .weight = weight, .is_add = true});
    }
    if (whole < count) {
        tw_block_load(block, digits + whole * bytes_each, words);
        tw_block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * whole)),
                     (struct tw_codec_sink){.dst = y});
    }
    for (size_t i = whole * block->elements; i < n; i++) {
        const float value = y[i % block->elements];
        sink.dst[i] = sink.is_add ? sink.dst[i] + weight * value : value;
    }
    return TW_OK;
}

#endif
