/* codec_int8.c - the codec int8: 8-bit integers with a scale per block. Its loops over whole blocks
 * have constant length, so that compilers vectorise them. */
#include "compress/codec_int8.h"

#include "compress/block.h"

enum { BLOCK = 256, SCALE_END = 0x7B80 /* 2^120 as bf16 */ };

_Static_assert(TW_PART_ALIGN % BLOCK == 0, "a part has whole blocks");

static size_t blocks_of(size_t n) {
    return n / BLOCK + (n % BLOCK != 0);
}

static size_t bound(size_t n) {
    return n + 2 * blocks_of(n);
}

/* Adding 1.5 * 2^23 rounds to nearest even, because the product is at most 127. */
static void quantise(const float *restrict src, size_t n, struct tw_block_factor by,
                     uint8_t *restrict dst) {
    for (size_t i = 0; i < n; i++) {
        const float shifted = src[i] * by.lift * by.inverse + 12582912.0f;
        dst[i] = (uint8_t)(tw_block_bits(shifted) & 0xFFu);
    }
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    if (capacity < bound(n)) return TW_LIMIT;
    uint8_t *codes = dst + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, left = n - at;
        /* With a constant length, the compiler vectorises whole blocks without a remainder. */
        const uint32_t max =
            left >= BLOCK ? tw_block_max(src + at, BLOCK) : tw_block_max(src + at, (uint32_t)left);
        if (max >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        const uint16_t scale = tw_block_scale_up(max, 127.0f);
        const struct tw_block_factor by = tw_block_factor(max, scale);
        tw_put_u16(dst + 2 * b, scale);
        if (left >= BLOCK && by.lift == 1.0f) { /* a constant lift of 1 saves a multiplication */
            quantise(src + at, BLOCK, (struct tw_block_factor){1.0f, by.inverse}, codes + at);
        } else {
            quantise(src + at, left < BLOCK ? left : BLOCK, by, codes + at);
        }
    }
    *bytes_out = bound(n);
    return TW_OK;
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != bound(n)) return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t b = 0; b < blocks_of(n); b++) bad |= tw_get_u16(src + 2 * b) >= SCALE_END;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static float code_value(uint8_t code) {
    return (float)(int8_t)code;
}

static enum tw_status decode(const uint8_t *restrict src, size_t bytes, float *restrict dst,
                             size_t n) {
    TW_TRY(check(src, bytes, n));
    const uint8_t *codes = src + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) dst[at + i] = scale * code_value(codes[at + i]);
    }
    return TW_OK;
}

static enum tw_status decode_add(const uint8_t *restrict src, size_t bytes, float weight,
                                 float *restrict dst, size_t n) {
    TW_TRY(check(src, bytes, n));
    const uint8_t *codes = src + 2 * blocks_of(n);
    for (size_t b = 0; b * BLOCK < n; b++) {
        const size_t at = b * BLOCK, count = n - at < BLOCK ? n - at : BLOCK;
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) {
            dst[at + i] = dst[at + i] + weight * (scale * code_value(codes[at + i]));
        }
    }
    return TW_OK;
}

const struct tw_codec TW_COMPRESS_ISA(codec_int8) = {.name = "int8",
                                                     .id = TW_CODEC_INT8,
                                                     .bits = 8.0 + 16.0 / BLOCK,
                                                     .bound = bound,
                                                     .encode = encode,
                                                     .decode = decode,
                                                     .decode_add = decode_add,
                                                     .check = check};
