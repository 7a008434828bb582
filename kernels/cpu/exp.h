/* exp.h - e^x for float, branch-free so that loops around it become vector code. */
#ifndef TW_KERNELS_CPU_EXP_H
#define TW_KERNELS_CPU_EXP_H

#include <stdint.h>
#include <string.h>

/* x = i ln 2 + r with |r| <= ln(2) / 2; e^r by its Taylor series to r^6, 2^i by its exponent bits.
 * Relative error below 4e-7 for x in [-87, 88]; outside it stays at the value of the bound. NaN in,
 * NaN out. */
static inline float tw_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float t = x * 1.44269504f;
    const int32_t i = (int32_t)(t + (t < 0.0f ? -0.5f : 0.5f));
    const float f = (float)i;
    const float r = (x - f * 0.693359375f) + f * 2.12194440e-4f; /* ln 2 in two pieces */
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const uint32_t bits = (uint32_t)(i + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}

#endif
