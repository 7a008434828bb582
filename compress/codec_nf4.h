/* codec_nf4.h - NormalFloat: blocks of 64 elements as the nearest of 16 levels, quantiles of the
 * normal distribution, times a bf16 scale: 4.25 bits each. QLoRA, arXiv 2305.14314, appendix E.
 *
 *     m = max |x| over the block,  scale = bf16(m) rounded up,
 *     code = number of midpoints between levels below x * inverse (ties go down),
 *     inverse = 1 / scale in float32,  D(x) = scale * level[code]
 *
 * Bytes: block.h. Three quarters of int4's squared error on normally distributed values. Encode
 * refuses m >= 2^126; decode accepts scales below 2^127. */
#ifndef TW_COMPRESS_CODEC_NF4_H
#define TW_COMPRESS_CODEC_NF4_H

#include "compress/isa.h"
#include "kernels/codebook.h"

extern const struct tw_codec TW_COMPRESS_ISA(codec_nf4);

/* The midpoint between level l and the next one. */
static inline float tw_nf4_bound(uint32_t l) {
    return (tw_nf4_levels[l] + tw_nf4_levels[l + 1]) * 0.5f;
}

#endif
