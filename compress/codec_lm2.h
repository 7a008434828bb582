/* codec_lm2.h - four levels times a bf16 scale per block of 64 elements: 2.25 bits each. The levels
 * have the least squared error on normally distributed values (Lloyd, "Least squares quantization
 * in PCM", 1957; Max, "Quantizing for minimum distortion", 1960).
 *
 *     e = exponent of max |x|,  y = x * 2^-e,
 *     scale = bf16(2^e * sqrt(sum RNE(2^20 * y^2) / (2^20 * count))) to nearest even: the rms
 *     D(x) = +-scale * 1.5104 if |x| > scale * 0.9816 else +-scale * 0.4528
 *
 * Bytes: block.h; a digit is the sign bit, plus 2 for the outer level. Products are rounded to
 * float32. RNE rounds to the nearest integer, and a sum of integers has the same bits in any order.
 * A block of elements below 2^-136 may decode to 0. Heavy tails are clipped (a squared error of
 * 0.21 instead of 0.115), so the codec needs error feedback, which sends them later. Encode refuses
 * elements of 2^126 or more; decode accepts scales below 2^127. */
#ifndef TW_COMPRESS_CODEC_LM2_H
#define TW_COMPRESS_CODEC_LM2_H

#include "compress/isa.h"
#include "kernels/codebook.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_lm2);

#endif
