#include "compress/codec_ref.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "compress/ref.h"

struct format {
    size_t block;
    /* bits per digit; and the number of words: element i is digit i / lanes of word i % lanes */
    unsigned digit_bits, lanes;
    bool has_padding; /* the last block is padded to full size */
    float top;        /* largest level: the scale is max |x| / top; 0: the scale is an average */
    float scale_end;
    float (*average)(const float *x, size_t count);
    unsigned (*digit_of)(float x, float scale, float quotient);
    float (*level)(unsigned digit);
};

/* ---- levels -------------------------------------------------------------------------------- */

static unsigned int_digit(float x, float scale, float quotient) {
    (void)x;
    (void)scale;
    return (unsigned)lrintf(quotient); /* the lowest bits of two's complement */
}

static float int8_level(unsigned digit) {
    return digit < 128 ? (float)digit : (float)digit - 256.0f;
}

static float int4_level(unsigned digit) {
    return digit < 8 ? (float)digit : (float)digit - 16.0f;
}

static float e3m0_level(unsigned digit) {
    float level = digit % 8 == 0 ? 0.0f : 1.0f;
    for (unsigned d = digit % 8; d != 0 && d < 7; d++) level /= 2.0f;
    return digit >= 8 ? -level : level;
}

static unsigned e3m0_digit(float x, float scale, float quotient) {
    unsigned digit = 0;
    (void)scale;
    while (digit < 7 && fabsf(quotient) >= (e3m0_level(digit) + e3m0_level(digit + 1)) / 2.0f) {
        digit++;
    }
    return signbit(x) != 0 ? digit + 8 : digit;
}

static float sign_level(unsigned digit) {
    return digit == 1 ? -1.0f : 1.0f;
}

static unsigned sign_digit(float x, float scale, float quotient) {
    (void)scale;
    (void)quotient;
    return signbit(x) != 0 ? 1 : 0;
}

/* ---- scales -------------------------------------------------------------------------------- */

/* Returns the exponent e of max |x| = 1.m * 2^e, but at least the exponent of the smallest normal
 * float. */
static int exponent_of(const float *x, size_t count) {
    int exponent;
    (void)frexpf(tw_ref_max(x, count), &exponent);
    return exponent - 1 < -126 || tw_ref_max(x, count) == 0.0f ? -126 : exponent - 1;
}

static float mean(const float *x, size_t count) {
    const int e = exponent_of(x, count);
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += lrintf(ldexpf(fabsf(x[i]), 21 - e));
    return ldexpf((float)sum / ldexpf((float)count, 21), e);
}

/* ---- formats ------------------------------------------------------------------------------- */

static const struct format formats[] = {
    [TW_CODEC_INT8] = {.block = 256,
                       .digit_bits = 8,
                       .lanes = 256,
                       .top = 127.0f,
                       .scale_end = 0x1p120f,
                       .digit_of = int_digit,
                       .level = int8_level},
    [TW_CODEC_INT4] = {.block = 64,
                       .digit_bits = 4,
                       .lanes = 8,
                       .has_padding = true,
                       .top = 7.0f,
                       .scale_end = 0x1p124f,
                       .digit_of = int_digit,
                       .level = int4_level},
    [TW_CODEC_E3M0] = {.block = 64,
                       .digit_bits = 4,
                       .lanes = 8,
                       .has_padding = true,
                       .top = 1.0f,
                       .scale_end = 0x1p127f,
                       .digit_of = e3m0_digit,
                       .level = e3m0_level},
    [TW_CODEC_SIGN] = {.block = 256,
                       .digit_bits = 1,
                       .lanes = 8,
                       .has_padding = true,
                       .scale_end = 0x1p127f,
                       .average = mean,
                       .digit_of = sign_digit,
                       .level = sign_level},
};

static bool is_block(enum tw_codec_id id) {
    return (size_t)id < sizeof(formats) / sizeof(formats[0]) && formats[id].block != 0;
}

static bool is_topk(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 || id == TW_CODEC_TOPK64 || id == TW_CODEC_TOPK32;
}

static bool is_ecsq(enum tw_codec_id id) {
    return id >= TW_CODEC_ECSQ4 && id <= TW_CODEC_ECSQ05;
}

bool tw_codec_has_ref(enum tw_codec_id id) {
    return is_block(id) || is_topk(id) || is_ecsq(id) || id == TW_CODEC_SPARSE8;
}

static const struct format *format_of(enum tw_codec_id id) {
    TW_ASSERT(is_block(id));
    return &formats[id];
}

static size_t blocks_of(const struct format *format, size_t n) {
    return (n + format->block - 1) / format->block;
}

static size_t bytes_of(const struct format *format, size_t n) {
    const size_t blocks = blocks_of(format, n),
                 coded = format->has_padding ? blocks * format->block : n;
    return 2 * blocks + coded * format->digit_bits / 8;
}

/* Returns the position of the first bit of element i, counted from the payload's first bit, lowest
 * bit of a byte first. */
static size_t bit_of(const struct format *format, size_t n, size_t i) {
    const size_t within = i % format->block,
                 word_bits = format->block / format->lanes * format->digit_bits;
    return 16 * blocks_of(format, n) + i / format->block * format->block * format->digit_bits +
           within % format->lanes * word_bits + within / format->lanes * format->digit_bits;
}

/* ---- encode, decode ------------------------------------------------------------------------ */

static uint16_t scale_of(const struct format *format, const float *x, size_t count) {
    if (format->average != NULL) return tw_bf16_from_f32(format->average(x, count));
    const float max = tw_ref_max(x, count);
    return tw_ref_bf16_up(max / format->top, max);
}

enum tw_status tw_codec_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                   size_t capacity, size_t *bytes_out) {
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < tw_codec_get(id)->bound(n)) return TW_LIMIT;
    if (is_topk(id)) return tw_topk_encode_ref(id, src, n, dst, bytes_out);
    if (is_ecsq(id)) return tw_ecsq_encode_ref(id, src, n, dst, bytes_out);
    if (id == TW_CODEC_SPARSE8) return tw_sparse8_encode_ref(src, n, dst, bytes_out);
    const struct format *format = format_of(id);
    if (capacity < bytes_of(format, n)) return TW_LIMIT;
    if (!tw_ref_can_send(src, n)) return TW_CORRUPT;
    memset(dst, 0, bytes_of(format, n));
    for (size_t b = 0; b < blocks_of(format, n); b++) {
        const size_t begin = b * format->block, left = n - begin;
        const size_t count = left < format->block ? left : format->block;
        const uint16_t scale = scale_of(format, src + begin, count);
        const float max = tw_ref_max(src + begin, count);
        tw_put_u16(dst + 2 * b, scale);
        for (size_t i = begin; i < begin + count; i++) {
            const float value = tw_bf16_to_f32(scale);
            const unsigned digit =
                format->digit_of(src[i], value, tw_ref_quotient(src[i], value, max)) &
                ((1u << format->digit_bits) - 1);
            const size_t bit = bit_of(format, n, i);
            dst[bit / 8] = (uint8_t)(dst[bit / 8] | digit << bit % 8);
        }
    }
    *bytes_out = bytes_of(format, n);
    return TW_OK;
}

static unsigned digit_at(const struct format *format, const uint8_t *src, size_t n, size_t i) {
    const size_t bit = bit_of(format, n, i);
    return src[bit / 8] >> bit % 8 & ((1u << format->digit_bits) - 1);
}

enum tw_status tw_codec_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes,
                                   float *dst, size_t n) {
    if (is_topk(id)) return tw_topk_decode_ref(id, src, bytes, dst, n);
    if (is_ecsq(id)) return tw_ecsq_decode_ref(id, src, bytes, dst, n);
    if (id == TW_CODEC_SPARSE8) return tw_sparse8_decode_ref(src, bytes, dst, n);
    const struct format *format = format_of(id);
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != bytes_of(format, n)) return TW_CORRUPT;
    for (size_t b = 0; b < blocks_of(format, n); b++) {
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        if (signbit(scale) != 0 || !(scale < format->scale_end)) return TW_CORRUPT;
    }
    for (size_t i = n; format->has_padding && i % format->block != 0; i++) {
        if (digit_at(format, src, n, i) != 0) return TW_CORRUPT;
    }
    for (size_t i = 0; i < n; i++) {
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * (i / format->block)));
        dst[i] = scale * format->level(digit_at(format, src, n, i));
    }
    return TW_OK;
}
