#include "worker/files/elements.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"

enum { F32_INFINITY = 0x7F800000, BF16_INFINITY = 0x7F80, F16_INFINITY = 0x7C00 };

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float value_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint32_t widen_f16(uint32_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, rest = half & 0x3FFu;
    if (exponent == 31) return sign | F32_INFINITY | rest << 13;
    if (exponent > 0) return sign | (exponent + 112) << 23 | rest << 13;
    return sign | bits_of((float)rest * 0x1p-24f);
}

static uint32_t narrow_f16(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    if (size > F32_INFINITY) return sign | 0x7E00u;
    if (size >= 0x47800000u) return sign | F16_INFINITY; /* 65536 and more */
    if (size < 0x38800000u) {                            /* below 2^-14 */
        /* The lowest bit of 0.5f is worth 2^-24, like the lowest bit of float16 numbers below
         * 2^-14. Adding 0.5f therefore rounds to float16. */
        return sign | (bits_of(value_of(size) + 0.5f) - bits_of(0.5f));
    }
    const uint32_t rebiased = size - (112u << 23);
    return sign | (rebiased + 0xFFFu + (rebiased >> 13 & 1)) >> 13;
}

static uint32_t narrow_bf16(uint32_t bits) {
    if ((bits & 0x7FFFFFFFu) > F32_INFINITY) return bits >> 16 | 0x40u;
    return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}

bool tw_elements_can(enum tw_dtype dtype) {
    return dtype == TW_DTYPE_F32 || dtype == TW_DTYPE_BF16 || dtype == TW_DTYPE_F16;
}

size_t tw_elements_load(enum tw_dtype dtype, float *to, const uint8_t *from, size_t n) {
    TW_ASSERT(tw_elements_can(dtype));
    size_t bad = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        if (dtype == TW_DTYPE_F32) {
            bits = tw_get_u32(from + 4 * i);
        } else {
            const uint32_t half = tw_get_u16(from + 2 * i);
            bits = dtype == TW_DTYPE_BF16 ? half << 16 : widen_f16(half);
        }
        to[i] = value_of(bits);
        if (bad == n && (bits & F32_INFINITY) == F32_INFINITY) bad = i;
    }
    return bad;
}

size_t tw_elements_store(enum tw_dtype dtype, uint8_t *to, const float *from, size_t n) {
    TW_ASSERT(tw_elements_can(dtype));
    const uint32_t infinity = dtype == TW_DTYPE_F32    ? (uint32_t)F32_INFINITY
                              : dtype == TW_DTYPE_BF16 ? (uint32_t)BF16_INFINITY
                                                       : (uint32_t)F16_INFINITY;
    size_t bad = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(from[i]);
        if (dtype == TW_DTYPE_BF16) bits = narrow_bf16(bits);
        if (dtype == TW_DTYPE_F16) bits = narrow_f16(bits);
        if (dtype == TW_DTYPE_F32) {
            tw_put_u32(to + 4 * i, bits);
        } else {
            tw_put_u16(to + 2 * i, (uint16_t)bits);
        }
        if (bad == n && (bits & infinity) == infinity) bad = i;
    }
    return bad;
}
