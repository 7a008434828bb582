/* codec_int4.h - blocks of 64 elements as 4-bit integers times a bf16 scale: 4.25 bits each.
 *
 *     m = max |x| over the block,  scale = bf16(m / 7) rounded up,
 *     code = RNE(x * inverse),  inverse = 1 / scale in float32,  D(x) = scale * code
 *
 * RNE rounds to nearest, ties to even. Bytes: block.h, digits in two's complement. Rounding the
 * scale up keeps |code| <= 7 without clamping. So |x - D(x)| <= scale / 2 for every element, up to
 * the rounding of the product, and the error is symmetric. Encode refuses m >= 2^126; decode
 * accepts scales below 2^124, and code -8. */
#ifndef TW_COMPRESS_CODEC_INT4_H
#define TW_COMPRESS_CODEC_INT4_H

#include "compress/isa.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_int4);

#endif
