/* codec_ecsq.h - ecsq4, ecsq3, ecsq2, ecsq1, ecsq05: a uniform quantiser and an entropy coder, at
 * 4, 3, 2, 1 and 1/2 bits per element.
 *
 *     r = bf16(rms of a block of 4096),  s = c * r,  a = floor(|x| / s + 1/2 - dead)
 *     D = +-(a + shift[a]) * s,  D = 0 where a = 0
 *
 * x is an element, r the scale of its block, s the step, a the quantised size of x, and D the
 * decoded value.
 *
 * Below 2 bits r = bf16(min(rms, max |x| / 3)). Otherwise a block could stay below the step forever
 * and never be sent. With error feedback, this would cost more of the loss than everything else.
 *
 * A payload has one c. Bisection finds the c at which a sample needs the codec's bits, including
 * all headers. Blocks of zeros are not counted, because they have no codes. If many elements are
 * equal, the payload may be longer, because c is limited so that some elements remain nonzero.
 * Large elements have an error of at most s / 2: their size a is written in full and has no shift.
 * dead > 0 below 2 bits. shift moves decoded values to the mean of the sample's elements,
 * separately for size 1 and for larger sizes. It points towards 0, where more elements are.
 * Sullivan, "Efficient scalar quantization of exponential and Laplacian random variables", IEEE
 * Trans. IT 42 (5), 1996.
 *
 * A code is a byte with one or two sizes min(a, 2^k - 1). The size 2^k - 1 means that a is written
 * in full. For ecsq4, k = 5 and a code is one element. For ecsq3 (k = 4) and below (k = 3), a code
 * is two adjacent elements of a block, the first in the lower k bits; an odd last element is paired
 * with a 0. Signs are not part of codes, because they cannot be predicted.
 *
 * Bytes, little-endian, with b = ceil(n / 4096) blocks:
 *
 *     c * 2^12 (u16), at most 2^15
 *     shift of size 1 and of larger ones (i8 each), in 2^-8
 *     r of each block (b bf16): 0 (a block without codes), or in [2^-120, 2^120)
 *     a stream for every 64 blocks (128 if a code is two elements), unless all are without codes:
 *         kind (u8): 0 coded, 1 raw, 2 one code
 *         number of sizes written in full (u32), then each (u16): 2^k - 1 <= a, a * c <= 69
 *         coded: model (rans.h), words (u32), 64 states, words (u16 each)
 *         raw: the codes          one code: that code
 *         signs of elements with a > 0: a bit each, 1 for minus, lowest first; 0 up to a byte
 *
 * s and a + shift are exact in float32, so D is rounded once. Blocks with r below 2^-120 are sent
 * as zeros. Encoding returns TW_CORRUPT if an element is 2^126 or more, or an r 2^120 or more. */
#ifndef TW_COMPRESS_CODEC_ECSQ_H
#define TW_COMPRESS_CODEC_ECSQ_H

#include "compress/isa.h"

enum { TW_ECSQ_BLOCK = 4096, TW_ECSQ_STREAM_CODES = 64 * TW_ECSQ_BLOCK };

extern const struct tw_codec TW_COMPRESS_ISA(codec_ecsq4), TW_COMPRESS_ISA(codec_ecsq3),
    TW_COMPRESS_ISA(codec_ecsq2), TW_COMPRESS_ISA(codec_ecsq1), TW_COMPRESS_ISA(codec_ecsq05);

#endif
