/* codec_int8.h - blocks of 256 elements as 8-bit integers times a bf16 scale: 8.0625 bits each.
 *
 * Bytes, with b = ceil(n / 256) blocks: b little-endian bf16 scales, then n codes in two's
 * complement. D(x) = scale * code, exact in float32.
 *
 *     m = max |x| over the block,  scale = bf16(m / 127) rounded up,
 *     code = RNE(x * inverse),  inverse = 1 / scale in float32
 *
 * RNE rounds to nearest, ties to even. Rounding the scale up keeps |code| <= 127 without clamping,
 * and |x - D(x)| <= scale / 2 up to the rounding of two float products. The scale is bf16, because
 * fp16 would underflow on small gradients. Encode refuses blocks with m >= 2^126, so that every
 * scale a decoder accepts (< 2^120) decodes to finite values, including code -128. */
#ifndef TW_COMPRESS_CODEC_INT8_H
#define TW_COMPRESS_CODEC_INT8_H

#include "compress/isa.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_int8);

#endif
