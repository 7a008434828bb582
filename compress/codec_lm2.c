/* codec_lm2.c - see codec_lm2.h. */
#include "compress/codec_lm2.h"

#include <math.h>

#include "compress/block.h"
#include "compress/form.h"

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

static const struct tw_block block = {.elements = ELEMENTS,
                                      .digit_bits = 2,
                                      .scale_end = 0x7F00, /* 2^127: times 1.51 is finite */
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

const struct tw_codec TW_FORM(codec_lm2) = {.name = "lm2",
                                            .id = TW_CODEC_LM2,
                                            .bits = 2.0 + 16.0 / ELEMENTS,
                                            .needs_feedback = true,
                                            .bound = bound,
                                            .encode = encode,
                                            .decode = decode,
                                            .decode_add = decode_add,
                                            .check = check};
