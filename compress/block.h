/* block.h - what codecs of blocks have in common: a bf16 scale per block, and a digit of 1, 2 or 4
 * bits per element.
 *
 * Bytes, with b = ceil(n / elements) blocks: b little-endian scales, then the digits of each block,
 * the last one padded with digits 0. A block is 8 little-endian words, of 16 or 32 bits each:
 * element 8 k + j is digit k, counted from the lowest bits, of word j. So eight neighbours in
 * memory are eight lanes of a vector, in encoders and decoders of any width.
 *
 * Functions of a block work on digits one per uint32_t; loops of constant length become vector
 * code. A codec is a `static const struct tw_block`, which compilers see through, and
 * TW_CODEC_ROW(tw_block, ...) of row.h. */
#ifndef TW_COMPRESS_BLOCK_H
#define TW_COMPRESS_BLOCK_H

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/row.h"
#include "kernels/type.h"

#define TW_BLOCK_TOO_LARGE 0x7E800000u /* 2^126 as a float: no element reaches it */
#define TW_BLOCK_REFUSED 0xFFFFu       /* no scale is that */

enum { TW_BLOCK_LANES = 8, TW_BLOCK_ELEMENTS_MAX = 256 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of digits are copied as they are");

struct tw_block {
    uint32_t elements;   /* of a block, a multiple of 8 */
    uint32_t digit_bits; /* elements / 8 * digit_bits is 16 or 32 */
    uint16_t scale_end;  /* bf16: decoders take scales below, whose values are all finite */

    /* Digits of x (elements), of which `count` are no padding; the scale, or TW_BLOCK_REFUSED. */
    uint16_t (*quantise)(const float *restrict x, uint32_t count, uint32_t *restrict digits);
    /* y (elements) = scale * level of each digit */
    void (*dequantise)(const uint32_t *restrict digits, float scale, float *restrict y);
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

/* |x| as bits: in their order as integers NaN and infinity are the largest. */
static inline uint32_t tw_block_magnitude(float x) {
    return tw_block_bits(x) & 0x7FFFFFFFu;
}

static inline uint32_t tw_block_max(const float *x, uint32_t count) {
    uint32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t bits = tw_block_magnitude(x[i]);
        max = bits > max ? bits : max;
    }
    return max;
}

/* ---- scales -------------------------------------------------------------------------------- */

/* The least bf16 that is max / top or more, and not 0 where max is not: the quotient may
 * underflow. */
static inline uint16_t tw_block_scale_up(uint32_t max, float top) {
    const uint32_t scale = (tw_block_bits(tw_block_float(max) / top) + 0xFFFFu) >> 16;
    return (uint16_t)(max != 0 && scale == 0 ? 1 : scale);
}

/* x / scale is x * lift * inverse: a tiny block is lifted by 2^64, exactly, so that the reciprocal
 * of its scale stays finite. */
struct tw_block_factor {
    float lift, inverse;
};

static inline struct tw_block_factor tw_block_factor(uint32_t max, uint16_t scale) {
    const float lift = max < 0x0D800000u /* 2^-100 */ ? 0x1p64f : 1.0f;
    return (struct tw_block_factor){
        .lift = lift, .inverse = scale == 0 ? 0.0f : 1.0f / (tw_bf16_to_f32(scale) * lift)};
}

/* Powers of two that take `max` < 2^126 into [1, 2), or below if it has no exponent, and back. */
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

/* Uses up the digits: the upper half is laid over the lower one until eight words are left. Loops
 * over neighbours are what compilers make vectors of. */
static inline void tw_block_pack(const struct tw_block *block, uint32_t *restrict digits,
                                 uint8_t *restrict to) {
    for (uint32_t half = block->elements / 2; half >= TW_BLOCK_LANES; half /= 2) {
        const uint32_t shift = half / TW_BLOCK_LANES * block->digit_bits;
        for (uint32_t i = 0; i < half; i++) digits[i] |= digits[half + i] << shift;
    }
    if (tw_block_bytes(block) == TW_BLOCK_LANES * sizeof(digits[0])) {
        memcpy(to, digits, TW_BLOCK_LANES * sizeof(digits[0]));
    } else {
        uint16_t halves[TW_BLOCK_LANES];
        for (uint32_t j = 0; j < TW_BLOCK_LANES; j++) halves[j] = (uint16_t)digits[j];
        memcpy(to, halves, sizeof(halves));
    }
}

static inline void tw_block_unpack(const struct tw_block *block, const uint8_t *restrict from,
                                   uint32_t *restrict digits) {
    const uint32_t mask = (1u << block->digit_bits) - 1;
    uint32_t words[TW_BLOCK_LANES];
    if (tw_block_bytes(block) == sizeof(words)) {
        memcpy(words, from, sizeof(words));
    } else {
        uint16_t halves[TW_BLOCK_LANES];
        memcpy(halves, from, sizeof(halves));
        for (uint32_t j = 0; j < TW_BLOCK_LANES; j++) words[j] = halves[j];
    }
    for (uint32_t k = 0; k < block->elements / TW_BLOCK_LANES; k++) {
        for (uint32_t j = 0; j < TW_BLOCK_LANES; j++) {
            digits[TW_BLOCK_LANES * k + j] = words[j] >> (k * block->digit_bits) & mask;
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

/* lost (elements) = x - D */
static inline void tw_block_lose(const struct tw_block *block, const float *restrict x,
                                 const uint32_t *restrict digits, uint16_t scale,
                                 float *restrict lost) {
    float y[TW_BLOCK_ELEMENTS_MAX];
    block->dequantise(digits, tw_bf16_to_f32(scale), y);
    for (uint32_t i = 0; i < block->elements; i++) lost[i] = x[i] - y[i];
}

/* The last block of an array that ends within it. lost (count) may be NULL. */
static inline uint16_t tw_block_end(const struct tw_block *block, const float *x, uint32_t count,
                                    uint8_t *to, float *lost) {
    float padded[TW_BLOCK_ELEMENTS_MAX] = {0};
    uint32_t digits[TW_BLOCK_ELEMENTS_MAX] = {0}; /* what is refused has none */
    memcpy(padded, x, count * sizeof(float));
    const uint16_t scale = block->quantise(padded, count, digits);
    memset(digits + count, 0, (block->elements - count) * sizeof(digits[0]));
    if (lost != NULL) {
        float rest[TW_BLOCK_ELEMENTS_MAX];
        tw_block_lose(block, padded, digits, scale, rest);
        memcpy(lost, rest, count * sizeof(float));
    }
    tw_block_pack(block, digits, to);
    return scale;
}

static inline enum tw_status tw_block_encode(const struct tw_block *block,
                                             struct tw_codec_source source, uint8_t *dst,
                                             size_t capacity, size_t *bytes_out) {
    const size_t n = source.n;
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < tw_block_bound(block, n)) return TW_LIMIT;
    const size_t whole = n / block->elements;
    uint8_t *const codes = dst + 2 * tw_blocks_count(block, n);
    uint32_t digits[TW_BLOCK_ELEMENTS_MAX];
    for (size_t b = 0; b < whole; b++) {
        const size_t at = b * block->elements;
        const uint16_t scale = block->quantise(source.x + at, block->elements, digits);
        if (scale == TW_BLOCK_REFUSED) return TW_CORRUPT;
        tw_put_u16(dst + 2 * b, scale);
        if (source.lost != NULL) {
            tw_block_lose(block, source.x + at, digits, scale, source.lost + at);
        }
        tw_block_pack(block, digits, codes + b * tw_block_bytes(block));
    }
    if (n % block->elements != 0) {
        const size_t at = whole * block->elements;
        const uint16_t scale = tw_block_end(block, source.x + at, (uint32_t)(n - at),
                                            codes + whole * tw_block_bytes(block),
                                            source.lost == NULL ? NULL : source.lost + at);
        if (scale == TW_BLOCK_REFUSED) return TW_CORRUPT;
        tw_put_u16(dst + 2 * whole, scale);
    }
    *bytes_out = tw_block_bound(block, n);
    return TW_OK;
}

static inline enum tw_status tw_block_check(const struct tw_block *block, const uint8_t *src,
                                            size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != tw_block_bound(block, n)) return TW_CORRUPT;
    const size_t count = tw_blocks_count(block, n);
    uint32_t bad = 0;
    for (size_t b = 0; b < count; b++) bad |= tw_get_u16(src + 2 * b) >= block->scale_end;
    if (n % block->elements != 0) { /* one form of every payload: its padding is 0 */
        uint32_t digits[TW_BLOCK_ELEMENTS_MAX];
        tw_block_unpack(block, src + bytes - tw_block_bytes(block), digits);
        for (size_t i = n % block->elements; i < block->elements; i++) bad |= digits[i];
    }
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

/* y (elements) = block b of a checked payload */
static inline void tw_block_get(const struct tw_block *block, const uint8_t *restrict src, size_t b,
                                size_t count, float *restrict y) {
    uint32_t digits[TW_BLOCK_ELEMENTS_MAX];
    tw_block_unpack(block, src + 2 * count + b * tw_block_bytes(block), digits);
    block->dequantise(digits, tw_bf16_to_f32(tw_get_u16(src + 2 * b)), y);
}

static inline enum tw_status tw_block_decode(const struct tw_block *block,
                                             const uint8_t *restrict src, size_t bytes, size_t n,
                                             struct tw_codec_sink sink) {
    TW_TRY(tw_block_check(block, src, bytes, n));
    const size_t whole = n / block->elements, count = tw_blocks_count(block, n);
    float *restrict const dst = sink.dst;
    float y[TW_BLOCK_ELEMENTS_MAX];
    for (size_t b = 0; !sink.is_add && b < whole; b++) {
        tw_block_get(block, src, b, count, dst + b * block->elements);
    }
    for (size_t b = 0; sink.is_add && b < whole; b++) {
        float *const to = dst + b * block->elements;
        tw_block_get(block, src, b, count, y);
        for (uint32_t i = 0; i < block->elements; i++) to[i] = to[i] + sink.weight * y[i];
    }
    if (whole < count) {
        float *const to = dst + whole * block->elements;
        tw_block_get(block, src, whole, count, y);
        if (!sink.is_add) memcpy(to, y, n % block->elements * sizeof(float));
        for (size_t i = 0; sink.is_add && i < n % block->elements; i++) {
            to[i] = to[i] + sink.weight * y[i];
        }
    }
    return TW_OK;
}

#endif
