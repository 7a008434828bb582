/* lattice_ref.c - reference implementation of lattice.h, one element at a time. */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "compress/lattice.h"
#include "compress/lattice_isa.h"

/* Adds floor(k / 256) * m_i of one element to the checksum of its block, modulo 2^16. */
static uint16_t checksum_add(uint16_t sum, int64_t k, size_t i) {
    const int64_t high = k >= 0 ? k / 256 : -((255 - k) / 256);
    return (uint16_t)(sum + (uint16_t)high * (uint32_t)tw_lattice_factor(i % TW_LATTICE_BLOCK));
}

enum tw_status tw_lattice_encode_ref(const float *src, size_t n, float distance, uint8_t *dst,
                                     size_t capacity, size_t *bytes_out) {
    const size_t blocks = (n + TW_LATTICE_BLOCK - 1) / TW_LATTICE_BLOCK;
    float largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(src[i])) return TW_CORRUPT;
        largest = fmaxf(largest, fabsf(src[i]));
    }
    const bool is_near = distance > 0 && isfinite(distance);
    int e = TW_LATTICE_EXPONENT_MIN;
    while (e <= TW_LATTICE_EXPONENT_MAX &&
           (!is_near || ldexp(1.0, e) < 4.0 * (double)distance / 256.0 ||
            (double)largest / ldexp(1.0, e) >= 0x1p29))
        e++;
    const bool is_whole = e > TW_LATTICE_EXPONENT_MAX;
    *bytes_out = TW_LATTICE_HEAD_BYTES + (is_whole ? 4 * n : 2 * blocks + n);
    if (capacity < *bytes_out) return TW_LIMIT;
    memset(dst, 0, *bytes_out);
    dst[0] = is_whole ? TW_LATTICE_WHOLE : TW_LATTICE_CODES;
    dst[1] = is_whole ? 0 : (uint8_t)(int8_t)e;
    dst += TW_LATTICE_HEAD_BYTES;
    for (size_t i = 0; i < n; i++) {
        if (is_whole) {
            memcpy(dst + 4 * i, &src[i], 4);
            continue;
        }
        const int64_t k = llrint((double)src[i] / ldexp(1.0, e));
        uint8_t *sum = dst + 2 * (i / TW_LATTICE_BLOCK);
        tw_put_u16(sum, checksum_add(tw_get_u16(sum), k, i));
        dst[2 * blocks + i] = (uint8_t)(k & 0xFF);
    }
    return TW_OK;
}

enum tw_status tw_lattice_decode_ref(const uint8_t *src, size_t bytes, const float *near,
                                     float *dst, size_t n) {
    const size_t blocks = (n + TW_LATTICE_BLOCK - 1) / TW_LATTICE_BLOCK;
    TW_TRY(tw_lattice_check(src, bytes, n));
    const double step = ldexp(1.0, (int8_t)src[1]);
    const uint8_t *body = src + TW_LATTICE_HEAD_BYTES;
    uint16_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (src[0] == TW_LATTICE_WHOLE) {
            memcpy(&dst[i], body + 4 * i, 4);
            continue;
        }
        if (!(fabs((double)near[i] / step) < 0x1p30)) return TW_AGAIN;
        int64_t k = llrint((double)near[i] / step) - 128;
        while ((k & 0xFF) != body[2 * blocks + i]) k++;
        dst[i] = (float)step * (float)k;
        sum = checksum_add(sum, k, i);
        const bool is_end = i + 1 == n || (i + 1) % TW_LATTICE_BLOCK == 0;
        if (is_end && sum != tw_get_u16(body + 2 * (i / TW_LATTICE_BLOCK))) return TW_AGAIN;
        if (is_end) sum = 0;
    }
    return TW_OK;
}
