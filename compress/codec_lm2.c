/* codec_lm2.c - the codec lm2: four levels with a scale per block. */
#include "compress/codec_lm2.h"

#include <math.h>

#include "compress/block.h"
#include "compress/codec_row.h"

enum { ELEMENTS = 64 };

/* Adding 8 rounds to multiples of 2^-20, because floats from 8 on are 2^-20 apart. */
static uint32_t part(float x) {
    return tw_block_bits(x * x + 8.0f);
}

static float rms(float sum, float count) {
    return sqrtf(sum / (count * 0x1p20f));
}

static uint32_t digit(float x, float scale) {
    const int32_t bound = (int32_t)tw_block_bits(TW_LM2_BOUND * scale);
    return tw_block_bits(x) >> 31 | ((int32_t)tw_block_magnitude(x) > bound ? 2u : 0u);
}

static float level(uint32_t digit, float scale) {
    const uint32_t inner = tw_block_bits(TW_LM2_INNER * scale),
                   outer = tw_block_bits(TW_LM2_OUTER * scale);
    return tw_block_float(((digit & 2u) != 0 ? outer : inner) | digit << 31);
}

static const struct tw_block lm2 = {
    .elements = ELEMENTS,
    .digit_bits = 2,
    .scale_end = 0x7F00, /* 2^127 as bf16: 1.51 times a smaller scale is finite */
    .part = part,
    .average = rms,
    .digit = digit,
    .level = level};

TW_CODEC_ROW(tw_block, lm2, LM2, .bits = 2.0 + 16.0 / ELEMENTS, .needs_feedback = true)
