/* codec_bf16.c - the codec bf16: each element rounded to 16 bits. */
#include "compress/codec_bf16.h"

#include <string.h>

#include "base/bytes.h"

enum { EXPONENT = 0x7F80 }; /* exponent bits of a bf16; all ones in a value that is not finite */

uint16_t tw_bf16_round(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float tw_bf16_value(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof(x));
    return x;
}

static size_t bound(size_t n) {
    return 2 * n;
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    if (capacity < bound(n)) return TW_LIMIT;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof(bits));
        const uint16_t half = tw_bf16_round(src[i]);
        /* The rounded value alone is not enough for the check: rounding turns some NaNs into zero.
         */
        bad |= (bits & 0x7F800000u) == 0x7F800000u || (half & EXPONENT) == EXPONENT;
        tw_put_u16(dst + 2 * i, half);
    }
    if (bad != 0) return TW_CORRUPT;
    *bytes_out = bound(n);
    return TW_OK;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    if (n > SIZE_MAX / 2 || bytes != bound(n)) return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (tw_get_u16(src + 2 * i) & EXPONENT) == EXPONENT;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    TW_TRY(check(src, bytes, n));
    for (size_t i = 0; i < n; i++) dst[i] = tw_bf16_value(tw_get_u16(src + 2 * i));
    return TW_OK;
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    TW_TRY(check(src, bytes, n));
    for (size_t i = 0; i < n; i++) {
        dst[i] = dst[i] + weight * tw_bf16_value(tw_get_u16(src + 2 * i));
    }
    return TW_OK;
}

const struct tw_codec tw_codec_bf16 = {.name = "bf16",
                                       .id = TW_CODEC_BF16,
                                       .bits = 16.0,
                                       .bound = bound,
                                       .encode = encode,
                                       .decode = decode,
                                       .decode_add = decode_add,
                                       .check = check};
