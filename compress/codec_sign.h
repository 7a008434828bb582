/* codec_sign.h - the sign of each element times the mean magnitude of its block of 256: 1.0625 bits
 * each. EF-SignSGD: Karimireddy et al., arXiv 1901.09847.
 *
 *     e = exponent of max |x|,  y = x * 2^-e,
 *     scale = bf16(2^e * sum RNE(2^21 * |y|) / (2^21 * count)) to nearest even,  D(x) = +-scale
 *
 * Bytes: block.h; a digit is the sign bit of the float, so -0 is minus and +0 plus. RNE rounds to
 * the nearest integer, and a sum of integers has the same bits in any order. A block of elements
 * below 2^-146 may decode to 0. Only for use with error feedback. Encode refuses elements of 2^126
 * or more; decode accepts scales below 2^127. */
#ifndef TW_COMPRESS_CODEC_SIGN_H
#define TW_COMPRESS_CODEC_SIGN_H

#include "compress/isa.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_sign);

#endif
