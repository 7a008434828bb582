/* exp.h - e^x for float, branch-free so that loops around it become vector code. */
#ifndef TW_KERNELS_CPU_EXP_H
#define TW_KERNELS_CPU_EXP_H

#include <stdint.h>

/* x = i ln 2 + r with |r| <= ln(2) / 2; e^r by its Taylor series to r^6, 2^i by its exponent bits.
 * Relative error below 4e-7 for x in [-87, 88]; outside it stays at the value of the bound. NaN in,
 * NaN out. Adding and taking away 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
static inline float tw_exp(float x) {
    const float magic = 12582912.0f;
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + magic;
    const float f = shifted - magic;
    const float r = (x - f * 0.693359375f) + f * 2.12194440e-4f; /* ln 2 in two pieces */
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    union {
        float value;
        uint32_t bits;
    } i = {.value = shifted}, power;
    power.bits = (i.bits + 127u) << 23;
    return p * power.value;
}

#endif
