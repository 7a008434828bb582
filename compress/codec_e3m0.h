/* codec_e3m0.h - blocks of 64 elements as a sign and a power of two, times a bf16 scale: 4.25 bits
 * each. The format of Streaming DiLoCo, arXiv 2501.18512. The paper specifies neither the code of 0
 * nor the scale. In this codec the level 0 replaces 2^-7, and the scale is computed as in int4.
 *
 *     m = max |x| over the block,  scale = bf16(m) rounded up,
 *     inverse = 1 / scale in float32,
 *     level = the one of 0, 2^-6, 2^-5 ... 1 nearest to |x| * inverse, ties go up,
 *     D(x) = +-scale * level
 *
 * Bytes: block.h, with the sign above 3 bits of level; -0 exists. Encode refuses m >= 2^126; decode
 * accepts scales below 2^127. */
#ifndef TW_COMPRESS_CODEC_E3M0_H
#define TW_COMPRESS_CODEC_E3M0_H

#include "compress/isa.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_e3m0);

#endif
