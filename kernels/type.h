/* type.h - data types of stored activations. Arithmetic is float32 for both. */
#ifndef TW_KERNELS_TYPE_H
#define TW_KERNELS_TYPE_H

#include <stdint.h>
#include <string.h>

/* BF16: the upper half of a float32 (8 bits of exponent, 7 of fraction), as uint16_t. */
enum tw_type { TW_F32, TW_BF16 };

static inline uint32_t tw_type_bytes(enum tw_type type) {
    return type == TW_BF16 ? 2 : 4;
}

static inline float tw_bf16_to_f32(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Rounds to nearest, ties to even. Values beyond the largest bf16 become infinity, and a NaN stays
 * a NaN. */
static inline uint16_t tw_bf16_from_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
