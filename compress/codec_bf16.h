/* codec_bf16.h - the upper half of each float, rounded to nearest, ties to even: 16 bits per
 * element.
 *
 * Bytes: n little-endian bf16. Error: |x - D(x)| <= 2^-8 * |x| unless x is subnormal. */
#ifndef TW_COMPRESS_CODEC_BF16_H
#define TW_COMPRESS_CODEC_BF16_H

#include "compress/codec.h"

extern const struct tw_codec tw_codec_bf16;

/* The bf16 nearest to x, ties to even; a finite x may round to infinity. NaN is not preserved. */
uint16_t tw_bf16_round(float x);
float tw_bf16_value(uint16_t bits);

#endif
