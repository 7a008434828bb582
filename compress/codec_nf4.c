/* codec_nf4.c - see codec_nf4.h. */
#include "compress/codec_nf4.h"

#include "compress/block.h"
#include "compress/row.h"

enum { ELEMENTS = 64, LEVELS = TW_NF4_LEVELS };

static uint16_t quantise(const float *restrict x, uint32_t count, uint32_t *restrict digits) {
    (void)count;
    const uint32_t max = tw_block_max(x, ELEMENTS);
    if (max >= TW_BLOCK_TOO_LARGE) return TW_BLOCK_REFUSED;
    const uint16_t scale = tw_block_scale_up(max, 1.0f);
    const struct tw_block_factor by = tw_block_factor(max, scale);
    float bounds[LEVELS - 1];
    for (uint32_t l = 0; l + 1 < LEVELS; l++) {
        bounds[l] = (tw_nf4_levels[l] + tw_nf4_levels[l + 1]) * 0.5f;
    }
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const float value = x[i] * by.lift * by.inverse;
        uint32_t digit = 0;
        for (uint32_t l = 0; l + 1 < LEVELS; l++) digit += value > bounds[l];
        digits[i] = digit;
    }
    return scale;
}

static void dequantise(const uint32_t *restrict digits, float scale, float *restrict y) {
    float scaled[LEVELS];
    for (uint32_t l = 0; l < LEVELS; l++) scaled[l] = scale * tw_nf4_levels[l];
    for (uint32_t i = 0; i < ELEMENTS; i++) y[i] = scaled[digits[i]];
}

static const struct tw_block nf4 = {.elements = ELEMENTS,
                                    .digit_bits = 4,
                                    .scale_end = 0x7F00, /* 2^127 */
                                    .quantise = quantise,
                                    .dequantise = dequantise};

TW_CODEC_ROW(tw_block, nf4, NF4, .bits = 4.0 + 16.0 / ELEMENTS)
