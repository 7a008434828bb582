/* codec_sign.c - the codec sign: signs with a mean magnitude per block. */
#include "compress/codec_sign.h"

#include "compress/block.h"
#include "compress/codec_row.h"

enum { ELEMENTS = 256 };

/* Adding 4 rounds to multiples of 2^-21, because floats from 4 on are 2^-21 apart. */
static uint32_t part(float x) {
    return tw_block_bits(tw_block_float(tw_block_magnitude(x)) + 4.0f);
}

static float mean(float sum, float count) {
    return sum / (count * 0x1p21f);
}

static uint32_t digit(float x, float scale) {
    (void)scale;
    return tw_block_bits(x) >> 31;
}

static float level(uint32_t digit, float scale) {
    return tw_block_float(tw_block_bits(scale) | digit << 31);
}

static const struct tw_block sign = {.elements = ELEMENTS,
                                     .digit_bits = 1,
                                     .scale_end = 0x7F00, /* 2^127 as bf16 */
                                     .part = part,
                                     .average = mean,
                                     .digit = digit,
                                     .level = level};

TW_CODEC_ROW(tw_block, sign, SIGN, .bits = 1.0 + 16.0 / ELEMENTS, .needs_feedback = true)
