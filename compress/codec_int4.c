/* codec_int4.c - the codec int4: 4-bit integers with a scale per block. */
#include "compress/codec_int4.h"

#include "compress/block.h"
#include "compress/codec_row.h"

enum { ELEMENTS = 64 };

/* Adding 1.5 * 2^23 rounds to nearest even, because the product is at most 7. */
static uint32_t digit(float x, float inverse) {
    return tw_block_bits(x * inverse + 12582912.0f) & 15u;
}

static float level(uint32_t digit, float scale) {
    return scale * (float)((int32_t)(digit ^ 8u) - 8);
}

static const struct tw_block int4 = {
    .elements = ELEMENTS,
    .digit_bits = 4,
    .scale_end = 0x7D80, /* 2^124 as bf16: -8 times a smaller scale is finite */
    .top = 7.0f,
    .digit = digit,
    .level = level};

TW_CODEC_ROW(tw_block, int4, INT4, .bits = 4.0 + 16.0 / ELEMENTS)
