/* codec_int4.c - see codec_int4.h. */
#include "compress/codec_int4.h"

#include "compress/block.h"
#include "compress/form.h"

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

static const struct tw_block block = {.elements = ELEMENTS,
                                      .digit_bits = 4,
                                      .scale_end = 0x7D80, /* 2^124: times -8 is finite */
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

const struct tw_codec TW_FORM(codec_int4) = {.name = "int4",
                                             .id = TW_CODEC_INT4,
                                             .bits = 4.0 + 16.0 / ELEMENTS,
                                             .bound = bound,
                                             .encode = encode,
                                             .decode = decode,
                                             .decode_add = decode_add,
                                             .check = check};
