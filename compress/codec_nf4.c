/* codec_nf4.c - see codec_nf4.h. */
#include "compress/codec_nf4.h"

#include "compress/block.h"
#include "compress/form.h"

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

static const struct tw_block block = {.elements = ELEMENTS,
                                      .digit_bits = 4,
                                      .scale_end = 0x7F00, /* 2^127 */
                                      .quantise = quantise,
                                      .dequantise = dequantise};

static size_t bound(size_t n) {
    return tw_block_bound(&block, n);
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    return tw_block_encode(&block, src, n, dst, capacity, bytes_out);
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    return tw_block_decode(&block, src, bytes, dst, n);
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    return tw_block_decode_add(&block, src, bytes, weight, dst, n);
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    return tw_block_check(&block, src, bytes, n);
}

const struct tw_codec TW_FORM(codec_nf4) = {.name = "nf4",
                                            .id = TW_CODEC_NF4,
                                            .bits = 4.0 + 16.0 / ELEMENTS,
                                            .bound = bound,
                                            .encode = encode,
                                            .decode = decode,
                                            .decode_add = decode_add,
                                            .check = check};
