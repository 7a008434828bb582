/* lattice.c - encodes anchors at one byte per element, and decodes them (format: lattice.h). Loops
 * over a block have constant length, so that compilers vectorise them. */
#include "compress/lattice.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"

enum { BLOCK = TW_LATTICE_BLOCK, HEAD = TW_LATTICE_HEAD_BYTES };
_Static_assert(TW_LATTICE_BITS == 8, "a code is a byte");
_Static_assert(TW_LATTICE_EXPONENT_MIN >= INT8_MIN && TW_LATTICE_EXPONENT_MAX <= INT8_MAX,
               "an exponent is a byte");

#define INFINITE_BITS 0x7F800000u
#define SHIFT_TO_INTEGER                                                                           \
    6755399441055744.0 /* 1.5 * 2^52: adding it rounds a double to an integer, ties to even */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static size_t blocks_of(size_t n) {
    return n / BLOCK + (n % BLOCK != 0);
}

size_t tw_lattice_bound(size_t n) {
    return HEAD + n * sizeof(float);
}

/* Returns the bits of max |x|. They are compared as integers, so NaN and infinity are the largest.
 */
static uint32_t max_bits(const float *x, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(x[i]) & 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return max;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Returns the exponent e of the step 2^e for elements of at most `largest` >= 0 and a distance > 0:
 * 2^e is at least 4 * distance / 2^8, and |k| stays below 2^30. */
static int exponent_of(float distance, float largest) {
    int wanted, least = TW_LATTICE_EXPONENT_MIN;
    TW_ASSERT(distance > 0 && largest >= 0);
    /* distance = f * 2^wanted with f in [1/2, 1), so 4 * distance / 2^8 <= 2^(wanted - 6). */
    const float f = frexpf(distance, &wanted);
    wanted += 2 - TW_LATTICE_BITS - (f == 0.5f ? 1 : 0);
    if (largest > 0) {
        (void)frexpf(largest, &least); /* largest <= 2^least, so k <= 2^29 for the exponent below */
        least -= TW_LATTICE_K_BITS - 1;
    }
    if (wanted < least) wanted = least;
    if (wanted < TW_LATTICE_EXPONENT_MIN) wanted = TW_LATTICE_EXPONENT_MIN;
    return wanted;
}

static enum tw_status encode_whole(const float *src, size_t n, uint8_t *dst, size_t capacity,
                                   size_t *bytes_out) {
    if (capacity < HEAD + n * sizeof(float)) return TW_LIMIT;
    memset(dst, 0, HEAD);
    dst[0] = TW_LATTICE_WHOLE;
    for (size_t i = 0; i < n; i++) tw_put_u32(dst + HEAD + 4 * i, bits_of(src[i]));
    *bytes_out = HEAD + n * sizeof(float);
    return TW_OK;
}

/* k[i] = RNE(x[i] * inverse), for |product| < 2^31. */
static void quantise(const float *restrict x, size_t n, double inverse, int32_t *restrict k) {
    for (size_t i = 0; i < n; i++) {
        const double shifted = (double)x[i] * inverse + SHIFT_TO_INTEGER;
        uint64_t bits;
        memcpy(&bits, &shifted, sizeof(bits));
        k[i] = (int32_t)(uint32_t)bits;
    }
}

/* Returns the checksum of k[n] (lattice.h); k >> 8 is in two's complement. */
static uint16_t checksum(const int32_t *k, size_t n) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((uint32_t)k[i] >> TW_LATTICE_BITS) * (uint32_t)tw_lattice_factor(i);
    return (uint16_t)sum;
}

enum tw_status tw_lattice_encode(const float *src, size_t n, float distance, uint8_t *dst,
                                 size_t capacity, size_t *bytes_out) {
    const uint32_t max = max_bits(src, n);
    if (max >= INFINITE_BITS) return TW_CORRUPT;
    const int e = distance > 0 && isfinite(distance) ? exponent_of(distance, float_of(max))
                                                     : TW_LATTICE_EXPONENT_MAX + 1;
    if (e > TW_LATTICE_EXPONENT_MAX) return encode_whole(src, n, dst, capacity, bytes_out);
    const size_t blocks = blocks_of(n);
    if (capacity < HEAD + 2 * blocks + n) return TW_LIMIT;
    memset(dst, 0, HEAD);
    dst[0] = TW_LATTICE_CODES;
    dst[1] = (uint8_t)(int8_t)e;
    uint8_t *codes = dst + HEAD + 2 * blocks;
    const double inverse = ldexp(1.0, -e);
    int32_t k[BLOCK];
    for (size_t b = 0; b < blocks; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        quantise(src + at, count, inverse, k);
        tw_put_u16(dst + HEAD + 2 * b, checksum(k, count));
        for (size_t i = 0; i < count; i++) codes[at + i] = (uint8_t)k[i];
    }
    *bytes_out = HEAD + 2 * blocks + n;
    TW_ASSERT(e >= TW_LATTICE_EXPONENT_MIN);
    return TW_OK;
}

enum tw_status tw_lattice_check(const uint8_t *src, size_t bytes, size_t n) {
    static const uint8_t zeros[HEAD - 2] = {0};
    if (n > TW_PAYLOAD_BYTES_MAX || bytes < HEAD) return TW_CORRUPT;
    const int8_t e = (int8_t)src[1];
    if (memcmp(src + 2, zeros, sizeof(zeros)) != 0) return TW_CORRUPT;
    if (src[0] == TW_LATTICE_CODES) {
        const bool is_in_range = e >= TW_LATTICE_EXPONENT_MIN && e <= TW_LATTICE_EXPONENT_MAX;
        return is_in_range && bytes == HEAD + 2 * blocks_of(n) + n ? TW_OK : TW_CORRUPT;
    }
    if (src[0] != TW_LATTICE_WHOLE || e != 0 || bytes != HEAD + n * sizeof(float))
        return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (tw_get_u32(src + HEAD + 4 * i) & INFINITE_BITS) == INFINITE_BITS;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

/* Replaces each k by the integer nearest to it whose low 8 bits are the code. */
static void unwrap(int32_t *restrict k, const uint8_t *restrict codes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint8_t apart = (uint8_t)(codes[i] - (uint8_t)(uint32_t)k[i]);
        k[i] += (int8_t)apart;
    }
}

enum tw_status tw_lattice_decode(const uint8_t *restrict src, size_t bytes,
                                 const float *restrict near, float *restrict dst, size_t n) {
    TW_TRY(tw_lattice_check(src, bytes, n));
    if (src[0] == TW_LATTICE_WHOLE) {
        for (size_t i = 0; i < n; i++) dst[i] = float_of(tw_get_u32(src + HEAD + 4 * i));
        return TW_OK;
    }
    const size_t blocks = blocks_of(n);
    const int e = (int8_t)src[1];
    const double inverse = ldexp(1.0, -e), largest = (double)float_of(max_bits(near, n)) * inverse;
    if (!(largest < (double)(1 << TW_LATTICE_K_BITS))) return TW_AGAIN;
    const float step = ldexpf(1.0f, e);
    const uint8_t *codes = src + HEAD + 2 * blocks;
    int32_t k[BLOCK];
    for (size_t b = 0; b < blocks; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        quantise(near + at, count, inverse, k);
        unwrap(k, codes + at, count);
        if (checksum(k, count) != tw_get_u16(src + HEAD + 2 * b)) return TW_AGAIN;
        for (size_t i = 0; i < count; i++) dst[at + i] = step * (float)k[i];
    }
    return TW_OK;
}

float tw_lattice_distance(const float *a, const float *b, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(a[i] - b[i]) & 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return float_of(max);
}

/* ---- reference, one element at a time ------------------------------------------------------- */

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
