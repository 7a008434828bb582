/* codec_sparse8.h - for merges of sparse contributions. Elements that are 0 stay 0 and need only
 * the bits of a gap; the others are 8-bit integers times a bf16 scale per chunk of 4096 elements.
 *
 *     m = max |x| over the chunk,  scale = bf16(m / 127) rounded up,  code = RNE(x * (1 / scale))
 *     D = scale * code, exact in float32
 *
 * No element is left out at any density: a chunk is sent as plain codes, at 8.01 bits per element,
 * unless a list of the nonzero codes is shorter. The codec therefore needs no error feedback.
 *
 * Bytes, per chunk of 4096 (the last may be shorter): scale (bf16) and count (u16). If count <
 * elements, then the positions of the nonzero codes, padded to a byte, and these codes. Positions
 * are coded by rice.h, with the least r for which 32 * (2 * elements - count) < 133 * count * 2^r.
 * If count = elements, then all codes. Codes are in two's complement, from -127 to 127. Encoding
 * returns TW_CORRUPT if an element is 2^126 or more. */
#ifndef TW_COMPRESS_CODEC_SPARSE8_H
#define TW_COMPRESS_CODEC_SPARSE8_H

#include "compress/isa.h"

enum { TW_SPARSE8_CHUNK = 4096 };

extern const struct tw_codec TW_COMPRESS_ISA(codec_sparse8);

#endif
