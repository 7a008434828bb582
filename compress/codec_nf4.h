/* codec_nf4.h - NormalFloat: blocks of 64 elements as the nearest of 16 levels, quantiles of the
 * normal distribution, times a bf16 scale: 4.25 bits each. QLoRA, arXiv 2305.14314, appendix E.
 *
 *     m = max |x| over the block,  scale = bf16(m) rounded up,
 *     code = levels below x inverse, counted at the middles between them; a middle goes down,
 *     inverse = 1 / scale in float32,  D(x) = scale level[code]
 *
 * Bytes: block.h. Three quarters of int4's squared error on normal numbers. Encode refuses m >=
 * 2^126; decode takes scales below 2^127. */
#ifndef TW_COMPRESS_CODEC_NF4_H
#define TW_COMPRESS_CODEC_NF4_H

#include "compress/form.h"

enum { TW_NF4_LEVELS = 16 };

static const float tw_nf4_levels[TW_NF4_LEVELS] = {-1.0f,
                                                   -0.6961928009986877f,
                                                   -0.5250730514526367f,
                                                   -0.39491748809814453f,
                                                   -0.28444138169288635f,
                                                   -0.18477343022823334f,
                                                   -0.09105003625154495f,
                                                   0.0f,
                                                   0.07958029955625534f,
                                                   0.16093020141124725f,
                                                   0.24611230194568634f,
                                                   0.33791524171829224f,
                                                   0.44070982933044434f,
                                                   0.5626170039176941f,
                                                   0.7229568362236023f,
                                                   1.0f};

extern const struct tw_codec TW_FORM(codec_nf4);

#endif
