/* codec_e3m0.c - see codec_e3m0.h. */
#include "compress/codec_e3m0.h"

#include "compress/block.h"
#include "compress/row.h"

enum {
    ELEMENTS = 64,
    ZERO = 120,         /* exponents of float32 above are those of levels 1 to 7: 2^-6 to 1 */
    HALF = 1 << 22,     /* of the span of one exponent */
    LEAST = ZERO << 23, /* 2^-7 as a float: from there on 2^-6 is nearer than 0 */
};

static uint16_t quantise(const float *restrict x, uint32_t count, uint32_t *restrict digits) {
    (void)count;
    const uint32_t max = tw_block_max(x, ELEMENTS);
    if (max >= TW_BLOCK_TOO_LARGE) return TW_BLOCK_REFUSED;
    const uint16_t scale = tw_block_scale_up(max, 1.0f);
    const struct tw_block_factor by = tw_block_factor(max, scale);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const uint32_t bits = tw_block_bits(x[i] * by.lift * by.inverse);
        const int32_t size = (int32_t)(bits & 0x7FFFFFFFu);
        /* 1.5 * 2^e is the middle between 2^e and 2^(e + 1). */
        const int32_t level = ((size + HALF) >> 23) - ZERO, least = size >= LEAST;
        digits[i] = (uint32_t)(level > least ? level : least) | bits >> 31 << 3;
    }
    return scale;
}

static void dequantise(const uint32_t *restrict digits, float scale, float *restrict y) {
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        const uint32_t level = digits[i] & 7u, size = level == 0 ? 0 : (ZERO + level) << 23;
        y[i] = scale * tw_block_float(size | digits[i] >> 3 << 31);
    }
}

static const struct tw_block e3m0 = {.elements = ELEMENTS,
                                     .digit_bits = 4,
                                     .scale_end = 0x7F00, /* 2^127 */
                                     .quantise = quantise,
                                     .dequantise = dequantise};

TW_CODEC_ROW(tw_block, e3m0, E3M0, .bits = 4.0 + 16.0 / ELEMENTS)
