/* lattice.h - encodes an anchor for a node whose own anchor is close: one byte per element.
 *
 * Moniqua, arXiv 2002.11787: only the low bits of the quantised value are sent. The receiver
 * chooses the value with these low bits that is nearest to its own. The step s = 2^e is a power of
 * two, so that scaling never rounds (RNE = round to nearest even):
 *
 *     k = RNE(x / s),  sent: k mod 256,  D(x) = s * k
 *     receiver with y: k' = the integer = k (mod 256) within [-128, 128) of RNE(y / s)
 *
 * k' = k exactly if |x - y| is below about 127 * s. To verify this, each block of 1024 elements
 * also has a checksum of 16 bits, with odd multipliers m_i:
 *
 *     sum (k >> 8) * m_i mod 2^16
 *
 * If one element is wrong by 256, the checksum always differs. Any other error in a block is missed
 * once in 65536.
 *
 * s is chosen from `distance`, the largest recent |x - y|. The 256 codes span at least 4 times this
 * distance, so |x - y| may grow to 2 to 4 times as much. The sender decodes with its own x as y and
 * gets the same values as the receivers. A merge of two anchors thus has the same inputs at both
 * ends.
 *
 * The whole form is plain float32: for a first contact, and after the receiver's anchor was too far
 * away.
 *
 * Bytes: form (0 lattice, 1 whole), e as int8 (0 if whole), 6 zeros. In lattice form, a
 * little-endian checksum of 2 bytes per block and one byte per element follow; in whole form, 4
 * bytes per element. */
#ifndef TW_COMPRESS_LATTICE_H
#define TW_COMPRESS_LATTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_LATTICE_BLOCK = 1024,
    TW_LATTICE_HEAD_BYTES = 8,
    TW_LATTICE_CODES = 0,
    TW_LATTICE_WHOLE = 1,
    TW_LATTICE_BITS = 8,
    TW_LATTICE_EXPONENT_MIN = -120,
    TW_LATTICE_EXPONENT_MAX = 90, /* 2^(90 + 31) is finite */
    TW_LATTICE_K_BITS = 30,       /* |k| < 2^30 */
};

/* Returns the checksum multiplier m_i of element i of a block. */
static inline uint16_t tw_lattice_factor(size_t i) {
    return (uint16_t)(40503u * (uint32_t)(i + 1) | 1u);
}

/* Returns the largest number of bytes for n elements, which is the size of the whole form. */
size_t tw_lattice_bound(size_t n);

/* Encodes src[n] into dst[capacity], in the whole form if distance is 0 or not finite. Returns
 * TW_CORRUPT if an element is not finite, TW_LIMIT if capacity is too small; dst is then undefined.
 */
enum tw_status tw_lattice_encode(const float *src, size_t n, float distance, uint8_t *dst,
                                 size_t capacity, size_t *bytes_out);

/* Returns TW_CORRUPT unless the untrusted bytes encode an anchor of n elements. */
enum tw_status tw_lattice_check(const uint8_t *src, size_t bytes, size_t n);

/* dst[i] = D(src)[i], finite, decoded relative to near[n], which must be finite. Returns TW_CORRUPT
 * as tw_lattice_check does, TW_AGAIN if `near` is too far away; dst is then undefined. The result
 * does not depend on `near` if that is close enough. */
enum tw_status tw_lattice_decode(const uint8_t *src, size_t bytes, const float *near, float *dst,
                                 size_t n);

/* max |a[i] - b[i]| */
float tw_lattice_distance(const float *a, const float *b, size_t n);

/* Reference implementations, one element at a time: slow, with the same bytes and values. */
enum tw_status tw_lattice_encode_ref(const float *src, size_t n, float distance, uint8_t *dst,
                                     size_t capacity, size_t *bytes_out);
enum tw_status tw_lattice_decode_ref(const uint8_t *src, size_t bytes, const float *near,
                                     float *dst, size_t n);

#endif
