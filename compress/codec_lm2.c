/* codec_lm2.c - see codec_lm2.h. */
#include "compress/codec_lm2.h"

#include <math.h>

#include "compress/block.h"
#include "compress/row.h"

enum { ELEMENTS = 64 };

/* Whole numbers add up to the same sum in any order. */
static float rms_of(const float *x, uint32_t max, uint32_t count) {
    const struct tw_block_unit unit = tw_block_unit(max);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const float value = x[i] * unit.into;
        sum += tw_block_bits(value * value * 0x1p20f + 0x1p23f) & 0x7FFFFFu;
    }
    return sqrtf((float)sum / ((float)count * 0x1p20f)) * unit.back;
}

static uint16_t quantise(const float *restrict x, uint32_t count, uint32_t *restrict digits) {
    const uint32_t max = tw_block_max(x, ELEMENTS);
    if (max >= TW_BLOCK_TOO_LARGE) return TW_BLOCK_REFUSED;
    const uint16_t scale = tw_bf16_from_f32(rms_of(x, max, count));
    const int32_t bound = (int32_t)tw_block_bits(TW_LM2_BOUND * tw_bf16_to_f32(scale));
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const uint32_t is_large = (int32_t)tw_block_magnitude(x[i]) > bound;
        digits[i] = tw_block_bits(x[i]) >> 31 | is_large << 1;
    }
    return scale;
}

static void dequantise(const uint32_t *restrict digits, float scale, float *restrict y) {
    const uint32_t inner = tw_block_bits(TW_LM2_INNER * scale),
                   outer = tw_block_bits(TW_LM2_OUTER * scale);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const uint32_t size = (digits[i] & 2u) != 0 ? outer : inner;
        y[i] = tw_block_float(size | digits[i] << 31);
    }
}

static const struct tw_block lm2 = {.elements = ELEMENTS,
                                    .digit_bits = 2,
                                    .scale_end = 0x7F00, /* 2^127: times 1.51 is finite */
                                    .quantise = quantise,
                                    .dequantise = dequantise};

TW_CODEC_ROW(tw_block, lm2, LM2, .bits = 2.0 + 16.0 / ELEMENTS, .needs_feedback = true)
