/* codec_int4.c - see codec_int4.h. */
#include "compress/codec_int4.h"

#include "compress/block.h"
#include "compress/row.h"

enum { ELEMENTS = 64 };

static uint16_t quantise(const float *restrict x, uint32_t count, uint32_t *restrict digits) {
    (void)count;
    const uint32_t max = tw_block_max(x, ELEMENTS);
    if (max >= TW_BLOCK_TOO_LARGE) return TW_BLOCK_REFUSED;
    const uint16_t scale = tw_block_scale_up(max, 7.0f);
    const struct tw_block_factor by = tw_block_factor(max, scale);
    /* To nearest even by adding 1.5 * 2^23: the product is at most 7. */
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        digits[i] = tw_block_bits(x[i] * by.lift * by.inverse + 12582912.0f) & 15u;
    }
    return scale;
}

static void dequantise(const uint32_t *restrict digits, float scale, float *restrict y) {
    for (uint32_t i = 0; i < ELEMENTS; i++) y[i] = scale * (float)((int32_t)(digits[i] ^ 8u) - 8);
}

static const struct tw_block int4 = {.elements = ELEMENTS,
                                     .digit_bits = 4,
                                     .scale_end = 0x7D80, /* 2^124: times -8 is finite */
                                     .quantise = quantise,
                                     .dequantise = dequantise};

TW_CODEC_ROW(tw_block, int4, INT4, .bits = 4.0 + 16.0 / ELEMENTS)
