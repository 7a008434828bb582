/* codec_row.h - parts that codecs share: names of code that is compiled once per instruction set,
 * floats as bits, scales of blocks, and the functions of struct tw_codec for a family of codecs. */
#ifndef TW_COMPRESS_CODEC_ROW_H
#define TW_COMPRESS_CODEC_ROW_H

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec.h"
#include "kernels/type.h"

/* Files of this library with vector forms are compiled once per instruction set:
 * TW_COMPRESS_ISA(codec_int4) is tw_avx2_codec_int4 or tw_base_codec_int4. All variants produce the
 * same bits. */
#ifdef TW_COMPRESS_ISA_AVX2
#define TW_COMPRESS_ISA(name) tw_avx2_##name
#else
#define TW_COMPRESS_ISA(name) tw_base_##name
#endif

/* ---- floats as bits ------------------------------------------------------------------------ */

static inline uint32_t tw_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline float tw_float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns the bits of |x|. As integers they have the order of |x|; NaN and infinity are the
 * largest. */
static inline uint32_t tw_magnitude_of(float x) {
    return tw_bits_of(x) & 0x7FFFFFFFu;
}

static inline uint32_t tw_block_max(const float *x, uint32_t count) {
    int32_t max = 0; /* signed, because SSE2 has no unsigned comparison */
    for (uint32_t i = 0; i < count; i++) {
        const int32_t bits = (int32_t)tw_magnitude_of(x[i]);
        max = bits > max ? bits : max;
    }
    return (uint32_t)max;
}

/* ---- scales -------------------------------------------------------------------------------- */

#define TW_BLOCK_TOO_LARGE 0x7E800000u /* 2^126 as bits of a float: elements must be smaller */
#define TW_BLOCK_TINY 0x0D800000u      /* 2^-100 */

/* Factors that divide x by the scale: x * lift * inverse. In a block of tiny elements lift is 2^64:
 * multiplying by it is exact, and makes the reciprocal of the scale finite. */
struct tw_block_factor {
    float lift, inverse;
};

/* All scales are computed without branches, so that several are computed in parallel. */

/* Returns the smallest bf16 that is at least max / top. It is 0 only if max is 0, although the
 * quotient may underflow. */
static inline uint16_t tw_block_scale_up(uint32_t max, float top) {
    const uint32_t scale = (tw_bits_of(tw_float_of(max) / top) + 0xFFFFu) >> 16;
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
    return (struct tw_block_unit){.into = tw_float_of((254 - exponent) << 23),
                                  .back = tw_float_of(exponent << 23)};
}

/* ---- families of codecs -------------------------------------------------------------------- */

/* Destination of decoded elements: dst[n] is set to them or, if is_add, weight times the elements
 * are added. */
struct tw_codec_sink {
    float *dst;
    float weight;
    bool is_add;
};

/* Defines the codec of a `static const` row, under the row's name. The variable arguments are
 * further fields of struct tw_codec. The functions of struct tw_codec have no row argument: each
 * codec gets its own wrappers around the family's functions, so that its parameters are
 * compile-time constants.
 *
 * A family F has these functions, each with the row first:
 *
 *     size_t F_bound(row, n);
 *     enum tw_status F_encode(row, struct tw_codec_source, dst, capacity, bytes_out);
 *     enum tw_status F_decode(row, src, bytes, n, struct tw_codec_sink);
 *     enum tw_status F_check(row, src, bytes, n); */
#define TW_CODEC_ROW(family, row, ID, ...)                                                         \
    static size_t row##_bound(size_t n) {                                                          \
        return family##_bound(&(row), n);                                                          \
    }                                                                                              \
    static enum tw_status row##_encode(const float *src, size_t n, uint8_t *dst, size_t capacity,  \
                                       size_t *bytes_out) {                                        \
        return family##_encode(&(row), (struct tw_codec_source){.x = src, .n = n}, dst, capacity,  \
                               bytes_out);                                                         \
    }                                                                                              \
    static enum tw_status row##_encode_lost(struct tw_codec_source source, uint8_t *dst,           \
                                            size_t capacity, size_t *bytes_out) {                  \
        return family##_encode(&(row), source, dst, capacity, bytes_out);                          \
    }                                                                                              \
    static enum tw_status row##_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {   \
        return family##_decode(&(row), src, bytes, n, (struct tw_codec_sink){.dst = dst});         \
    }                                                                                              \
    static enum tw_status row##_decode_add(const uint8_t *src, size_t bytes, float weight,         \
                                           float *dst, size_t n) {                                 \
        return family##_decode(                                                                    \
            &(row), src, bytes, n,                                                                 \
            (struct tw_codec_sink){.dst = dst, .weight = weight, .is_add = true});                 \
    }                                                                                              \
    static enum tw_status row##_check(const uint8_t *src, size_t bytes, size_t n) {                \
        return family##_check(&(row), src, bytes, n);                                              \
    }                                                                                              \
    const struct tw_codec TW_COMPRESS_ISA(codec_##row) = {.name = #row,                            \
                                                          .id = TW_CODEC_##ID,                     \
                                                          .needs_feedback =                        \
                                                              TW_CODEC_FEEDBACK_##ID,              \
                                                          .bound = row##_bound,                    \
                                                          .encode = row##_encode,                  \
                                                          .encode_lost = row##_encode_lost,        \
                                                          .decode = row##_decode,                  \
                                                          .decode_add = row##_decode_add,          \
                                                          .check = row##_check,                    \
                                                          __VA_ARGS__};

#endif
