/* lattice.h - encodes an anchor for a node whose own anchor is close: one byte per element.
 *
 * Moniqua, arXiv 2002.11787: only the low bits of the quantised value are sent, and the receiver
 * chooses the value with these bits that is nearest to its own. With a step s = 2^e, a power of two
 * so that scaling never rounds:
 *
 *     k = RNE(x / s),  sent: k mod 256,  D(x) = s k
 *     receiver with y: k' = the integer = k (mod 256) within [-128, 128) of RNE(y / s)
 *
 * k' = k exactly if |x - y| is below about 127 s. To verify this, each block of 1024 also sends a
 * checksum of 16 bits, with m_i odd:
 *
 *     sum (k >> 8) m_i mod 2^16
 *
 * If one element is wrong by 256, the checksum always differs. Any other error in a block is missed
 * once in 65536.
 *
 * s is chosen from `distance`, the largest recent |x - y|. The 256 codes span at least 4 times this
 * distance, so |x - y| may be 2 to 4 times as large. The sender decodes with its own x as y and
 * gets the same values as the receivers. A merge of two anchors thus has the same inputs at both
 * ends.
 *
 * The whole form is plain float32: for a first contact, and after the receiver was too far away.
 *
 * Bytes: form (0 lattice, 1 whole), e as int8 (0 when whole), 6 zeros; then, lattice, a
 * little-endian checksum of 2 bytes per block and one byte per element, or, whole, 4 bytes per
 * element. */
#ifndef TW_COMPRESS_LATTICE_H
#define TW_COMPRESS_LATTICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_LATTICE_BLOCK = 1024, TW_LATTICE_HEAD_BYTES = 8 };

/* Upper bound of the bytes of n elements, which is the size of the whole form. */
size_t tw_lattice_bound(size_t n);

/* Encodes src (n) into dst[capacity], in the whole form if distance is 0 or not finite. TW_CORRUPT
 * if an element is not finite, TW_LIMIT if capacity is too small; dst is then undefined. */
enum tw_status tw_lattice_encode(const float *src, size_t n, float distance, uint8_t *dst,
                                 size_t capacity, size_t *bytes_out);

/* Checks untrusted bytes: TW_CORRUPT unless they encode an anchor of n elements. */
enum tw_status tw_lattice_check(const uint8_t *src, size_t bytes, size_t n);

/* dst[i] = D(src)[i], finite, decoded relative to near (n), finite. TW_CORRUPT as in check;
 * TW_AGAIN if near is too far away; dst is then undefined. The result does not depend on `near`, as
 * long as it is close enough. */
enum tw_status tw_lattice_decode(const uint8_t *src, size_t bytes, const float *near, float *dst,
                                 size_t n);

/* max |a[i] - b[i]| */
float tw_lattice_distance(const float *a, const float *b, size_t n);

/* Plain twins, one element at a time: slow, with the same bytes and values. */
enum tw_status tw_lattice_encode_ref(const float *src, size_t n, float distance, uint8_t *dst,
                                     size_t capacity, size_t *bytes_out);
enum tw_status tw_lattice_decode_ref(const uint8_t *src, size_t bytes, const float *near,
                                     float *dst, size_t n);

#endif
