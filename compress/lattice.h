/* lattice.h - an anchor for a node whose own anchor is near: one byte per element.
 *
 * Moniqua, arXiv 2002.11787: only the low bits of the quantised value travel, and the receiver
 * takes the value with these bits that is nearest to its own. With a step s = 2^e, a power of two
 * so that scaling never rounds:
 *
 *     k = RNE(x / s),  sent: k mod 256,  D(x) = s k
 *     receiver with y: k' = the integer = k (mod 256) within [-128, 128) of RNE(y / s)
 *
 * k' = k exactly when |x - y| < 127 s or so. That is not left to hope: of each block of 1024 the
 * 16 bits  sum (k >> 8) m_i mod 2^16,  m_i odd, travel too. An element that is off by one wrap
 * always changes them; any other damage of a block goes unseen once in 65536.
 *
 * s is chosen from `distance`, the largest |x - y| seen of late: 4 times that is the width of what
 * the codes can tell apart, rounded up, so an anchor may have moved 2 to 4 times as far. The sender
 * decodes with its own x as y and gets what everybody gets: whoever merges two anchors merges the
 * same two values at both ends.
 *
 * Whole form, for a first contact and when the receiver was too far away: plain float32, exact.
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

/* Bytes of n elements in either form, at most: those of the whole form. */
size_t tw_lattice_bound(size_t n);

/* src (n) into dst[capacity], whole when distance is 0 or not finite. TW_CORRUPT when an element is
 * not finite, TW_LIMIT when capacity is too small; dst is then undefined. */
enum tw_status tw_lattice_encode(const float *src, size_t n, float distance, uint8_t *dst,
                                 size_t capacity, size_t *bytes_out);

/* Untrusted bytes: TW_CORRUPT when they are no anchor of n elements. */
enum tw_status tw_lattice_check(const uint8_t *src, size_t bytes, size_t n);

/* dst[i] = D(src)[i], finite, with the help of near (n), finite. TW_CORRUPT as check says; TW_AGAIN
 * when near is too far away: dst is then undefined. The same bits for every near that will do. */
enum tw_status tw_lattice_decode(const uint8_t *src, size_t bytes, const float *near, float *dst,
                                 size_t n);

/* max |a[i] - b[i]| */
float tw_lattice_distance(const float *a, const float *b, size_t n);

/* One element at a time, as the equations read: the same bytes and values, slowly. */
enum tw_status tw_lattice_encode_ref(const float *src, size_t n, float distance, uint8_t *dst,
                                     size_t capacity, size_t *bytes_out);
enum tw_status tw_lattice_decode_ref(const uint8_t *src, size_t bytes, const float *near,
                                     float *dst, size_t n);

#endif
