/* codec_int8.c - see codec_int8.h. Loops over a block of constant length become vector code. */
#include "compress/codec_int8.h"

#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec_bf16.h"

enum { BLOCK = TW_CODEC_INT8_BLOCK };

_Static_assert(TW_PART_ALIGN % BLOCK == 0, "a part has whole blocks");

#define TOO_LARGE_BITS 0x7E800000u /* 2^126 as a float */
#define SCALE_LIMIT 0x7B80         /* 2^120 as bf16 */
#define TINY_BITS 0x0D800000u      /* 2^-100: scales below would have reciprocals near overflow */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static size_t blocks_of(size_t n) {
    return n / BLOCK + (n % BLOCK != 0);
}

static size_t bound(size_t n) {
    return n + 2 * blocks_of(n);
}

/* Bits of max |x|: as integers, so NaN and infinity come out largest. */
static uint32_t max_bits(const float *src, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(src[i]) & 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return max;
}

/* At least the smallest bf16 where there is something to scale: m / 127 may underflow. */
static uint16_t scale_of(uint32_t max) {
    const uint32_t scale = (bits_of(float_of(max) / 127.0f) + 0xFFFFu) >> 16;
    return (uint16_t)(max != 0 && scale == 0 ? 1 : scale);
}

/* RNE(x lift inverse) by adding and taking away 1.5 * 2^23: |product| <= 127. */
static void quantise(const float *restrict src, size_t n, float lift, float inverse,
                     uint8_t *restrict dst) {
    for (size_t i = 0; i < n; i++) {
        const float shifted = src[i] * lift * inverse + 12582912.0f;
        dst[i] = (uint8_t)(bits_of(shifted) & 0xFFu);
    }
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    if (capacity < bound(n)) return TW_LIMIT;
    uint8_t *codes = dst + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, left = n - at;
        /* A literal length lets the compiler vectorise whole blocks without a remainder. */
        const uint32_t max = left >= BLOCK ? max_bits(src + at, BLOCK) : max_bits(src + at, left);
        if (max >= TOO_LARGE_BITS) return TW_CORRUPT;
        const uint16_t scale = scale_of(max);
        tw_put_u16(dst + 2 * b, scale);
        /* A tiny block is lifted by 2^64, exactly, so that 1 / scale stays finite. */
        const float lift = max < TINY_BITS ? 0x1p64f : 1.0f;
        const float inverse = scale == 0 ? 0.0f : 1.0f / (tw_bf16_value(scale) * lift);
        if (left >= BLOCK) {
            quantise(src + at, BLOCK, lift, inverse, codes + at);
        } else {
            quantise(src + at, left, lift, inverse, codes + at);
        }
    }
    *bytes_out = bound(n);
    return TW_OK;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != bound(n)) return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks_of(n); b++) bad |= tw_get_u16(src + 2 * b) >= SCALE_LIMIT;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static float code_value(uint8_t code) {
    return (float)(int8_t)code;
}

static enum tw_status decode(const uint8_t *restrict src, size_t bytes, float *restrict dst,
                             size_t n) {
    TW_TRY(check(src, bytes, n));
    const uint8_t *codes = src + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        const float scale = tw_bf16_value(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) dst[at + i] = scale * code_value(codes[at + i]);
    }
    return TW_OK;
}

static enum tw_status decode_add(const uint8_t *restrict src, size_t bytes, float weight,
                                 float *restrict dst, size_t n) {
    TW_TRY(check(src, bytes, n));
    const uint8_t *codes = src + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        const float scale = tw_bf16_value(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) {
            dst[at + i] = dst[at + i] + weight * (scale * code_value(codes[at + i]));
        }
    }
    return TW_OK;
}

const struct tw_codec tw_codec_int8 = {.name = "int8",
                                       .id = TW_CODEC_INT8,
                                       .bits = 8.0 + 16.0 / BLOCK,
                                       .bound = bound,
                                       .encode = encode,
                                       .decode = decode,
                                       .decode_add = decode_add,
                                       .check = check};
