/* codec_ecsq.h - ecsq4, ecsq3, ecsq2, ecsq1, ecsq05: a uniform quantiser behind an entropy coder,
 * at 4, 3, 2, 1 and 1/2 bits per element.
 *
 *     r = bf16(rms of a block of 4096),  s = c r,  a = floor(|x| / s + 1/2 - dead)
 *     D = +-(a + shift[a]) s,  D = 0 where a = 0
 *
 * Below 2 bits r = bf16(min(rms, max |x| / 3)), so that no block is without elements of about the
 * step's size for ever: with error feedback that would cost training more than all the rest.
 *
 * One c for a payload, found by bisection so that a sample of it takes the bits of its name, all
 * headers counted; blocks of zeros are free and not counted. Where many elements are alike it may
 * take more: c is never so large that nothing is left. What is large stays exact within s / 2: its
 * size a is written out, and has no shift. dead > 0 below 2 bits. shift moves what is decoded to
 * the mean of the sample's elements of size 1, and of larger ones: nearer to 0, where more of them
 * lie. Sullivan, "Efficient scalar quantization of exponential and Laplacian random
 * variables", IEEE Trans. IT 42 (5), 1996.
 *
 * A code is a byte that holds min(a, 2^k - 1), the most of which says that a is written out: of one
 * element for ecsq4, where k = 5; of two that are neighbours in a block, the first in the lower k
 * bits, for ecsq3, where k = 4, and below, where k = 3. Behind an odd last element stands a 0.
 * Signs are no matter of codes, for nothing tells them.
 *
 * Bytes, little-endian, with b = ceil(n / 4096) blocks:
 *
 *     c 2^12 (u16), at most 2^15
 *     shift of size 1 and of larger ones (i8 each), in 2^-8
 *     r of each block (b bf16): 0 and then no codes, or in [2^-120, 2^120)
 *     a stream for every 64 blocks, or 128 where a code holds two elements, that have any codes:
 *         kind (u8): 0 coded, 1 raw, 2 one code
 *         sizes written out (u32), then each (u16): 2^k - 1 <= a, a c <= 69
 *         coded: model (rans.h), words (u32), 64 states, words (u16 each)
 *         raw: the codes          one code: it
 *         signs of elements with a > 0: a bit each, 1 for minus, from the lowest on; 0 up to a byte
 *
 * s and a + shift are exact in float32, so D is rounded once. Blocks whose r is below 2^-120 are
 * sent as zeros.
 * TW_CORRUPT where an element is 2^126 or more, or an r 2^120 or more. */
#ifndef TW_COMPRESS_CODEC_ECSQ_H
#define TW_COMPRESS_CODEC_ECSQ_H

#include "compress/isa.h"

enum { TW_ECSQ_BLOCK = 4096, TW_ECSQ_STREAM_CODES = 64 * TW_ECSQ_BLOCK };

extern const struct tw_codec TW_COMPRESS_ISA(codec_ecsq4), TW_COMPRESS_ISA(codec_ecsq3),
    TW_COMPRESS_ISA(codec_ecsq2), TW_COMPRESS_ISA(codec_ecsq1), TW_COMPRESS_ISA(codec_ecsq05);

#endif
