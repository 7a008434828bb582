/* codec_sign.c - see codec_sign.h. */
#include "compress/codec_sign.h"

#include "compress/block.h"
#include "compress/row.h"

enum { ELEMENTS = 256 };

/* Whole numbers add up to the same sum in any order. */
static float mean_of(const float *x, uint32_t max, uint32_t count) {
    const struct tw_block_unit unit = tw_block_unit(max);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const float value = tw_block_float(tw_block_magnitude(x[i])) * unit.into;
        sum += tw_block_bits(value * 0x1p21f + 0x1p23f) & 0x7FFFFFu;
    }
    return (float)sum / ((float)count * 0x1p21f) * unit.back;
}

static uint16_t quantise(const float *restrict x, uint32_t count, uint32_t *restrict digits) {
    const uint32_t max = tw_block_max(x, ELEMENTS);
    if (max >= TW_BLOCK_TOO_LARGE) return TW_BLOCK_REFUSED;
    for (uint32_t i = 0; i < ELEMENTS; i++) digits[i] = tw_block_bits(x[i]) >> 31;
    return tw_bf16_from_f32(mean_of(x, max, count));
}

static void dequantise(const uint32_t *restrict digits, float scale, float *restrict y) {
    const uint32_t size = tw_block_bits(scale);
    for (uint32_t i = 0; i < ELEMENTS; i++) y[i] = tw_block_float(size | digits[i] << 31);
}

static const struct tw_block sign = {.elements = ELEMENTS,
                                     .digit_bits = 1,
                                     .scale_end = 0x7F00, /* 2^127 */
                                     .quantise = quantise,
                                     .dequantise = dequantise};

TW_CODEC_ROW(tw_block, sign, SIGN, .bits = 1.0 + 16.0 / ELEMENTS, .needs_feedback = true)
