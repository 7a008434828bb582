/* codec_int8_ref.c - the int8 encoder, one element at a time. */
#include <math.h>

#include "base/bytes.h"
#include "compress/codec_bf16.h"
#include "compress/codec_int8.h"

/* The smallest bf16 that is not below x >= 0. */
static uint16_t bf16_up(float x) {
    uint16_t low = tw_bf16_round(x);
    if (tw_bf16_value(low) < x) low++;
    return low;
}

enum tw_status tw_codec_int8_encode_ref(const float *src, size_t n, uint8_t *dst, size_t capacity,
                                        size_t *bytes_out) {
    const size_t blocks = (n + TW_CODEC_INT8_BLOCK - 1) / TW_CODEC_INT8_BLOCK;
    if (capacity < 2 * blocks + n) return TW_LIMIT;
    for (size_t b = 0; b < blocks; b++) {
        const size_t begin = b * TW_CODEC_INT8_BLOCK;
        const size_t end = n < begin + TW_CODEC_INT8_BLOCK ? n : begin + TW_CODEC_INT8_BLOCK;
        float max = 0.0f;
        for (size_t i = begin; i < end; i++) {
            if (!(fabsf(src[i]) < 0x1p126f)) return TW_CORRUPT; /* NaN fails the comparison */
            max = fmaxf(max, fabsf(src[i]));
        }
        uint16_t scale = bf16_up(max / 127.0f);
        if (max > 0.0f && scale == 0) scale = 1; /* the quotient underflowed */
        tw_put_u16(dst + 2 * b, scale);
        for (size_t i = begin; i < end; i++) {
            const double quotient =
                scale == 0 ? 0.0 : (double)src[i] / (double)tw_bf16_value(scale);
            dst[2 * blocks + i] = (uint8_t)(int8_t)lrint(quotient);
        }
    }
    *bytes_out = 2 * blocks + n;
    return TW_OK;
}
