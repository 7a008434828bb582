/* codec_fixed.c - codecs with a fixed number of bits per element: bf16, int8 with a scale per
 * block, and int4, e3m0 and sign, which have a digit of 4 or 1 bits per element. Loops over whole
 * blocks have constant length, so that compilers vectorise them. */
#include "compress/codec_row.h"

/* ---- bf16 ----------------------------------------------------------------------------------- */

/* The upper half of each float, rounded to nearest, ties to even: 16 bits per
 * element.
 *
 * Bytes: n little-endian bf16. Error: |x - D(x)| <= 2^-8 * |x| unless x is subnormal. */

/* Exponent bits of a bf16; all ones in a value that is not finite. */
enum { BF16_EXPONENT = 0x7F80 };

static size_t bf16_bound(size_t n) {
    return 2 * n;
}

static enum tw_status bf16_encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                                  size_t *bytes_out) {
    if (capacity < bf16_bound(n)) return TW_LIMIT;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof(bits));
        const uint16_t half = tw_bf16_from_f32(src[i]);
        /* The rounded value alone is not enough for the check: rounding turns some NaNs into zero.
         */
        bad |= (bits & 0x7F800000u) == 0x7F800000u || (half & BF16_EXPONENT) == BF16_EXPONENT;
        tw_put_u16(dst + 2 * i, half);
    }
    if (bad != 0) return TW_CORRUPT;
    *bytes_out = bf16_bound(n);
    return TW_OK;
}

static enum tw_status bf16_check(const uint8_t *src, size_t bytes, size_t n) {
    if (n > SIZE_MAX / 2 || bytes != bf16_bound(n)) return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (tw_get_u16(src + 2 * i) & BF16_EXPONENT) == BF16_EXPONENT;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static enum tw_status bf16_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    TW_TRY(bf16_check(src, bytes, n));
    for (size_t i = 0; i < n; i++) dst[i] = tw_bf16_to_f32(tw_get_u16(src + 2 * i));
    return TW_OK;
}

static enum tw_status bf16_decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                      size_t n) {
    TW_TRY(bf16_check(src, bytes, n));
    for (size_t i = 0; i < n; i++) {
        dst[i] = dst[i] + weight * tw_bf16_to_f32(tw_get_u16(src + 2 * i));
    }
    return TW_OK;
}

const struct tw_codec TW_COMPRESS_ISA(codec_bf16) = {.name = "bf16",
                                                     .id = TW_CODEC_BF16,
                                                     .bits = 16.0,
                                                     .bound = bf16_bound,
                                                     .encode = bf16_encode,
                                                     .decode = bf16_decode,
                                                     .decode_add = bf16_decode_add,
                                                     .check = bf16_check};

/* ---- int8 ----------------------------------------------------------------------------------- */

/* Blocks of 256 elements as 8-bit integers times a bf16 scale: 8.0625 bits each.
 *
 * Bytes, with b = ceil(n / 256) blocks: b little-endian bf16 scales, then n codes in two's
 * complement. D(x) = scale * code, exact in float32.
 *
 *     m = max |x| over the block,  scale = bf16(m / 127) rounded up,
 *     code = RNE(x * inverse),  inverse = 1 / scale in float32
 *
 * RNE rounds to nearest, ties to even. Rounding the scale up keeps |code| <= 127 without clamping,
 * and |x - D(x)| <= scale / 2 up to the rounding of two float products. The scale is bf16, because
 * fp16 would underflow on small gradients. Encode refuses blocks with m >= 2^126, so that every
 * scale a decoder accepts (< 2^120) decodes to finite values, including code -128. */

enum { INT8_BLOCK = 256, INT8_SCALE_END = 0x7B80 /* 2^120 as bf16 */ };

_Static_assert(TW_PART_ALIGN % INT8_BLOCK == 0, "a part has whole blocks");

static size_t int8_blocks_of(size_t n) {
    return n / INT8_BLOCK + (n % INT8_BLOCK != 0);
}

static size_t int8_bound(size_t n) {
    return n + 2 * int8_blocks_of(n);
}

/* Adding 1.5 * 2^23 rounds to nearest even, because the product is at most 127. */
static void int8_quantise(const float *restrict src, size_t n, struct tw_block_factor by,
                          uint8_t *restrict dst) {
    for (size_t i = 0; i < n; i++) {
        const float shifted = src[i] * by.lift * by.inverse + 12582912.0f;
        dst[i] = (uint8_t)(tw_bits_of(shifted) & 0xFFu);
    }
}

static enum tw_status int8_encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                                  size_t *bytes_out) {
    if (capacity < int8_bound(n)) return TW_LIMIT;
    uint8_t *codes = dst + 2 * int8_blocks_of(n);
    for (size_t b = 0; b * INT8_BLOCK < n; b++) {
        const size_t at = b * INT8_BLOCK, left = n - at;
        /* With a constant length, the compiler vectorises whole blocks without a remainder. */
        const uint32_t max = left >= INT8_BLOCK ? tw_block_max(src + at, INT8_BLOCK)
                                                : tw_block_max(src + at, (uint32_t)left);
        if (max >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        const uint16_t scale = tw_block_scale_up(max, 127.0f);
        const struct tw_block_factor by = tw_block_factor(max, scale);
        tw_put_u16(dst + 2 * b, scale);
        if (left >= INT8_BLOCK &&
            by.lift == 1.0f) { /* a constant lift of 1 saves a multiplication */
            int8_quantise(src + at, INT8_BLOCK, (struct tw_block_factor){1.0f, by.inverse},
                          codes + at);
        } else {
            int8_quantise(src + at, left < INT8_BLOCK ? left : INT8_BLOCK, by, codes + at);
        }
    }
    *bytes_out = int8_bound(n);
    return TW_OK;
}

static enum tw_status int8_check(const uint8_t *src, size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != int8_bound(n)) return TW_CORRUPT;
    uint32_t bad = 0;
    for (size_t b = 0; b < int8_blocks_of(n); b++) bad |= tw_get_u16(src + 2 * b) >= INT8_SCALE_END;
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static float int8_code_value(uint8_t code) {
    return (float)(int8_t)code;
}

static enum tw_status int8_decode(const uint8_t *restrict src, size_t bytes, float *restrict dst,
                                  size_t n) {
    TW_TRY(int8_check(src, bytes, n));
    const uint8_t *codes = src + 2 * int8_blocks_of(n);
    for (size_t b = 0; b * INT8_BLOCK < n; b++) {
        const size_t at = b * INT8_BLOCK, count = n - at < INT8_BLOCK ? n - at : INT8_BLOCK;
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) dst[at + i] = scale * int8_code_value(codes[at + i]);
    }
    return TW_OK;
}

static enum tw_status int8_decode_add(const uint8_t *restrict src, size_t bytes, float weight,
                                      float *restrict dst, size_t n) {
    TW_TRY(int8_check(src, bytes, n));
    const uint8_t *codes = src + 2 * int8_blocks_of(n);
    for (size_t b = 0; b * INT8_BLOCK < n; b++) {
        const size_t at = b * INT8_BLOCK, count = n - at < INT8_BLOCK ? n - at : INT8_BLOCK;
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        for (size_t i = 0; i < count; i++) {
            dst[at + i] = dst[at + i] + weight * (scale * int8_code_value(codes[at + i]));
        }
    }
    return TW_OK;
}

const struct tw_codec TW_COMPRESS_ISA(codec_int8) = {.name = "int8",
                                                     .id = TW_CODEC_INT8,
                                                     .bits = 8.0 + 16.0 / INT8_BLOCK,
                                                     .bound = int8_bound,
                                                     .encode = int8_encode,
                                                     .decode = int8_decode,
                                                     .decode_add = int8_decode_add,
                                                     .check = int8_check};

/* ---- blocks of digits ----------------------------------------------------------------------- */

/* What int4, e3m0 and sign share: a bf16 scale per block, and a digit of 1 or 4 bits per element.
 *
 * Bytes, with b = ceil(n / elements) blocks: b little-endian scales, then the digits of each block,
 * the last block padded with digits 0. A block is 8 little-endian words of 32 bits. Digit k
 * of word j, counted from the lowest bits, is element 8 * k + j. Eight adjacent elements are thus
 * eight lanes of a vector, in encoders and decoders of any width.
 *
 * A codec defines the coding of one element: a `static const struct block`, which compilers can
 * inline into the loops below, and TW_CODEC_ROW(block, ...). */

enum {
    LANES = 8,
    BLOCK_BYTES = LANES * sizeof(uint32_t), /* digits of a block */
    GROUP = 64, /* elements whose digits are computed in one unrolled loop */
    SOME = 8,   /* blocks encoded together, so that their scales are computed in parallel */
    LINE = 16,  /* elements in a cache line */
    ELEMENTS_MAX = 256
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words of digits are copied as they are");

struct block {
    uint32_t elements;   /* elements per block, a multiple of GROUP */
    uint32_t digit_bits; /* bits per digit, such that elements / 8 * digit_bits is 32 */
    /* bound of bf16 scales; decoders refuse others, because decoded values might not be finite */
    uint16_t scale_end;
    /* largest level: the scale is max |x| / top, rounded up; 0: the scale is an average */
    float top;

    /* For scales that are averages: the average is computed from a sum of integers, which does not
     * depend on the order. The integer of an element is part(x) - part(0), with x in units of
     * tw_block_unit. */
    uint32_t (*part)(float x);
    float (*average)(float sum, float count);

    uint32_t (*digit)(float x, float by);        /* by: 1 / scale, or the scale itself if that is an
                                                    average */
    float (*level)(uint32_t digit, float scale); /* decoded value: scale * the digit's level */
};

/* Loads word by word: a vector load that spans two earlier stores would have to wait for both. */
static inline void block_load(const uint8_t *restrict from, uint32_t *restrict words) {
    for (size_t j = 0; j < LANES; j++) {
        memcpy(&words[j], from + j * sizeof(words[0]), sizeof(words[0]));
    }
}

static inline void block_store(const uint32_t *restrict words, uint8_t *restrict to) {
    memcpy(to, words, BLOCK_BYTES);
}

/* Writes the digits of a block to `words`. The loop over words is vectorised: each word is a lane.
 */
static inline void block_put(const struct block *block, const float *restrict x,
                             struct tw_block_factor by, uint32_t *restrict words) {
    for (size_t j = 0; j < LANES; j++) words[j] = 0;
    for (size_t end = block->elements; end > 0; end -= GROUP) {
        for (size_t j = 0; j < LANES; j++) {
            uint32_t word = words[j];
            for (size_t k = 1; k <= GROUP / LANES; k++) {
                const float lifted = x[end - LANES * k + j] * by.lift;
                word = word << block->digit_bits | block->digit(lifted, by.inverse);
            }
            words[j] = word;
        }
    }
}

static inline void block_get(const struct block *block, const uint32_t *restrict words, float scale,
                             struct tw_codec_sink to) {
    const uint32_t mask = (1u << block->digit_bits) - 1;
    for (size_t at = 0; at < block->elements; at += GROUP) {
        for (size_t j = 0; j < LANES; j++) {
            const uint32_t word = words[j] >> at / LANES * block->digit_bits;
            for (size_t k = 0; k < GROUP / LANES; k++) {
                float *const y = &to.dst[at + LANES * k + j];
                const float value = block->level(word >> k * block->digit_bits & mask, scale);
                *y = to.is_add ? *y + to.weight * value : value;
            }
        }
    }
}

static inline size_t blocks_count(const struct block *block, size_t n) {
    return n / block->elements + (n % block->elements != 0);
}

static inline size_t block_bound(const struct block *block, size_t n) {
    return blocks_count(block, n) * (2 + BLOCK_BYTES);
}

static inline uint32_t block_sum(const struct block *block, const float *x, uint32_t max) {
    const float into = tw_block_unit(max).into;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < block->elements; i++) sum += block->part(x[i] * into);
    return sum - block->elements * block->part(0.0f);
}

static inline uint16_t block_scale(const struct block *block, uint32_t max, uint32_t sum,
                                   uint32_t count) {
    if (block->top > 0.0f) return tw_block_scale_up(max, block->top);
    /* The sum fits int32_t. Every processor converts that to float in one instruction. */
    return tw_bf16_from_f32(block->average((float)(int32_t)sum, (float)count) *
                            tw_block_unit(max).back);
}

/* Where to write the next blocks of a payload. */
struct block_at {
    uint8_t *scales, *digits;
    const float *next; /* elements of the next blocks, for prefetching; NULL near the end */
};

/* Prefetches elements. The hardware prefetcher is too late for loops with much computation between
 * loads. */
static inline void block_expect(const float *x, uint32_t elements) {
    for (uint32_t i = 0; i < elements; i += LINE) __builtin_prefetch(x + i);
}

/* Scales of blocks that are encoded together. */
struct block_scales {
    uint32_t max[SOME], sum[SOME];
    uint16_t scale[SOME];
    float lift[SOME], by[SOME];
};

/* Computes the other fields from max and sum. Returns false if an element is too large or not
 * finite. */
static inline bool block_scales(const struct block *block, uint32_t count, struct block_scales *s) {
    uint32_t bad = 0;
    for (uint32_t b = 0; b < SOME; b++) {
        const uint16_t scale = block_scale(block, s->max[b], s->sum[b], count);
        const struct tw_block_factor by = tw_block_factor(s->max[b], scale);
        bad |= s->max[b] >= TW_BLOCK_TOO_LARGE;
        s->scale[b] = scale;
        s->lift[b] = block->top > 0.0f ? by.lift : 1.0f;
        s->by[b] = block->top > 0.0f ? by.inverse : tw_bf16_to_f32(scale);
    }
    return bad == 0;
}

/* Encodes up to SOME blocks, or one block with n elements and padding. Returns false if an
 * element is too large or not finite. */
static inline bool block_put_some(const struct block *block, struct tw_codec_source source,
                                  struct block_at to) {
    const uint32_t elements = block->elements;
    const uint32_t blocks = (uint32_t)blocks_count(block, source.n);
    const uint32_t count = source.n < elements ? (uint32_t)source.n : elements;
    TW_ASSERT(blocks > 0 && blocks <= SOME);
    uint32_t words[SOME][LANES];
    struct block_scales s;
    for (uint32_t b = 0; b < SOME; b++) s.max[b] = s.sum[b] = 0;
    for (uint32_t b = 0; b < blocks; b++) {
        const float *const x = source.x + b * elements;
        if (to.next != NULL) block_expect(to.next + b * elements, elements);
        s.max[b] = tw_block_max(x, elements);
        if (block->part != NULL) s.sum[b] = block_sum(block, x, s.max[b]);
    }
    if (!block_scales(block, count, &s)) return false;
    for (uint32_t b = 0; b < blocks; b++) {
        const float *const x = source.x + b * elements;
        if (s.lift[b] == 1.0f) { /* usual case: as a constant, a lift of 1 saves a multiplication */
            block_put(block, x, (struct tw_block_factor){1.0f, s.by[b]}, words[b]);
        } else {
            block_put(block, x, (struct tw_block_factor){s.lift[b], s.by[b]}, words[b]);
        }
    }
    for (uint32_t b = 0; b < blocks; b++) {
        tw_put_u16(to.scales + 2 * b, s.scale[b]);
        block_store(words[b], to.digits + b * BLOCK_BYTES);
    }
    for (uint32_t b = 0; b < blocks && source.lost != NULL; b++) { /* adding -1 * D gives x - D */
        block_get(block, words[b], tw_bf16_to_f32(s.scale[b]),
                  (struct tw_codec_sink){
                      .dst = source.lost + b * elements, .weight = -1.0f, .is_add = true});
    }
    return true;
}

/* Encodes the incomplete last block of an array, and sets the digits of its padding to 0. */
static inline bool block_put_end(const struct block *block, struct tw_codec_source source,
                                 struct block_at to) {
    const uint32_t mask = (1u << block->digit_bits) - 1;
    TW_ASSERT(source.n > 0 && source.n < block->elements);
    float padded[ELEMENTS_MAX] = {0};
    uint32_t words[LANES];
    memcpy(padded, source.x, source.n * sizeof(float));
    const bool has_lost = source.lost != NULL;
    if (!block_put_some(
            block,
            (struct tw_codec_source){.x = padded, .n = source.n, .lost = has_lost ? padded : NULL},
            to)) {
        return false;
    }
    if (has_lost) memcpy(source.lost, padded, source.n * sizeof(float));
    block_load(to.digits, words);
    for (size_t i = source.n; i < block->elements; i++) {
        words[i % LANES] &= ~(mask << i / LANES * block->digit_bits);
    }
    block_store(words, to.digits);
    return true;
}

static inline enum tw_status block_encode(const struct block *block, struct tw_codec_source source,
                                          uint8_t *dst, size_t capacity, size_t *bytes_out) {
    const size_t n = source.n, whole = n / block->elements * block->elements;
    TW_ASSERT(source.lost == NULL || source.lost == source.x);
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < block_bound(block, n)) return TW_LIMIT;
    uint8_t *const digits = dst + 2 * blocks_count(block, n);
    for (size_t at = 0, end = 0; at < n; at = end) {
        const size_t b = at / block->elements, some = (size_t)SOME * block->elements;
        end = at == whole ? n : whole - at < some ? whole : at + some;
        const struct block_at to = {.scales = dst + 2 * b,
                                    .digits = digits + b * BLOCK_BYTES,
                                    .next = n - end < some ? NULL : source.x + end};
        const struct tw_codec_source part = {.x = source.x + at,
                                             .n = end - at,
                                             .lost = source.lost == NULL ? NULL : source.lost + at};
        if (!(at < whole ? block_put_some(block, part, to) : block_put_end(block, part, to))) {
            return TW_CORRUPT;
        }
    }
    *bytes_out = block_bound(block, n);
    return TW_OK;
}

static inline enum tw_status block_check(const struct block *block, const uint8_t *src,
                                         size_t bytes, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != block_bound(block, n)) return TW_CORRUPT;
    const size_t count = blocks_count(block, n);
    const uint32_t mask = (1u << block->digit_bits) - 1;
    uint32_t words[LANES], bad = 0;
    for (size_t b = 0; b < count; b++) bad |= tw_get_u16(src + 2 * b) >= block->scale_end;
    if (n % block->elements != 0) { /* the padding must be 0: equal content has equal bytes */
        block_load(src + bytes - BLOCK_BYTES, words);
        for (size_t i = n % block->elements; i < block->elements; i++) {
            bad |= words[i % LANES] >> i / LANES * block->digit_bits & mask;
        }
    }
    return bad != 0 ? TW_CORRUPT : TW_OK;
}

static inline enum tw_status block_decode(const struct block *block, const uint8_t *src,
                                          size_t bytes, size_t n, struct tw_codec_sink sink) {
    TW_TRY(block_check(block, src, bytes, n));
    const size_t whole = n / block->elements, count = blocks_count(block, n);
    const uint8_t *const digits = src + 2 * count;
    const float weight = sink.weight;
    float y[ELEMENTS_MAX];
    uint32_t words[LANES];
    for (size_t b = 0; !sink.is_add && b < whole; b++) {
        float *const to = sink.dst + b * block->elements;
        block_load(digits + b * BLOCK_BYTES, words);
        block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * b)),
                  (struct tw_codec_sink){.dst = to});
    }
    for (size_t b = 0; sink.is_add && b < whole; b++) {
        float *const to = sink.dst + b * block->elements;
        block_load(digits + b * BLOCK_BYTES, words);
        block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * b)),
                  (struct tw_codec_sink){.dst = to, .weight = weight, .is_add = true});
    }
    if (whole < count) {
        block_load(digits + whole * BLOCK_BYTES, words);
        block_get(block, words, tw_bf16_to_f32(tw_get_u16(src + 2 * whole)),
                  (struct tw_codec_sink){.dst = y});
    }
    for (size_t i = whole * block->elements; i < n; i++) {
        const float value = y[i % block->elements];
        sink.dst[i] = sink.is_add ? sink.dst[i] + weight * value : value;
    }
    return TW_OK;
}

/* ---- int4 ----------------------------------------------------------------------------------- */

/* Blocks of 64 elements as 4-bit integers times a bf16 scale: 4.25 bits each.
 *
 *     m = max |x| over the block,  scale = bf16(m / 7) rounded up,
 *     code = RNE(x * inverse),  inverse = 1 / scale in float32,  D(x) = scale * code
 *
 * RNE rounds to nearest, ties to even. Bytes: as above, digits in two's complement. Rounding the
 * scale up keeps |code| <= 7 without clamping. So |x - D(x)| <= scale / 2 for every element, up to
 * the rounding of the product, and the error is symmetric. Encode refuses m >= 2^126; decode
 * accepts scales below 2^124, and code -8. */

/* Adding 1.5 * 2^23 rounds to nearest even, because the product is at most 7. */
static uint32_t int4_digit(float x, float inverse) {
    return tw_bits_of(x * inverse + 12582912.0f) & 15u;
}

static float int4_level(uint32_t digit, float scale) {
    return scale * (float)((int32_t)(digit ^ 8u) - 8);
}

static const struct block int4 = {
    .elements = 64,
    .digit_bits = 4,
    .scale_end = 0x7D80, /* 2^124 as bf16: -8 times a smaller scale is finite */
    .top = 7.0f,
    .digit = int4_digit,
    .level = int4_level};

_Static_assert(64 * 4 == 8 * BLOCK_BYTES && 64 % GROUP == 0, "a block of int4 is 8 words");

TW_CODEC_ROW(block, int4, INT4, .bits = 4.0 + 16.0 / 64)

/* ---- e3m0 ----------------------------------------------------------------------------------- */

/* Blocks of 64 elements as a sign and a power of two, times a bf16 scale: 4.25 bits
 * each. The format of Streaming DiLoCo, arXiv 2501.18512. The paper specifies neither the code of 0
 * nor the scale. In this codec the level 0 replaces 2^-7, and the scale is computed as in int4.
 *
 *     m = max |x| over the block,  scale = bf16(m) rounded up,
 *     inverse = 1 / scale in float32,
 *     level = the one of 0, 2^-6, 2^-5 ... 1 nearest to |x| * inverse, ties go up,
 *     D(x) = +-scale * level
 *
 * Bytes: as above, with the sign above 3 bits of level; -0 exists. Encode refuses m >= 2^126;
 * decode accepts scales below 2^127. */

enum {
    ZERO = 120,     /* float32 exponent of level 0; the next seven exponents are levels 1 to 7: 2^-6
                       to 1 */
    HALF = 1 << 22, /* half of the range of bits with one exponent */
    LEAST = ZERO << 23, /* bits of 2^-7: from this value on, 2^-6 is nearer than 0 */
};

static uint32_t e3m0_digit(float x, float inverse) {
    const uint32_t bits = tw_bits_of(x * inverse);
    const int32_t size = (int32_t)(bits & 0x7FFFFFFFu);
    /* 1.5 * 2^e is the midpoint of 2^e and 2^(e + 1). From the midpoint on, adding HALF carries
     * into the exponent. */
    const int32_t level = ((size + HALF) >> 23) - ZERO, least = size >= LEAST;
    return (uint32_t)(level > least ? level : least) | bits >> 31 << 3;
}

static float e3m0_level(uint32_t digit, float scale) {
    const uint32_t level = digit & 7u, size = level == 0 ? 0 : (ZERO + level) << 23;
    return scale * tw_float_of(size | digit >> 3 << 31);
}

static const struct block e3m0 = {.elements = 64,
                                  .digit_bits = 4,
                                  .scale_end = 0x7F00, /* 2^127 as bf16 */
                                  .top = 1.0f,
                                  .digit = e3m0_digit,
                                  .level = e3m0_level};

_Static_assert(64 * 4 == 8 * BLOCK_BYTES && 64 % GROUP == 0, "a block of e3m0 is 8 words");

TW_CODEC_ROW(block, e3m0, E3M0, .bits = 4.0 + 16.0 / 64)

/* ---- sign ----------------------------------------------------------------------------------- */

/* The sign of each element times the mean magnitude of its block of 256: 1.0625 bits
 * each. EF-SignSGD: Karimireddy et al., arXiv 1901.09847.
 *
 *     e = exponent of max |x|,  y = x * 2^-e,
 *     scale = bf16(2^e * sum RNE(2^21 * |y|) / (2^21 * count)) to nearest even,  D(x) = +-scale
 *
 * Bytes: as above; a digit is the sign bit of the float, so -0 is minus and +0 plus. RNE rounds to
 * the nearest integer, and a sum of integers has the same bits in any order. A block of elements
 * below 2^-146 may decode to 0. Only for use with error feedback. Encode refuses elements of 2^126
 * or more; decode accepts scales below 2^127. */

/* Adding 4 rounds to multiples of 2^-21, because floats from 4 on are 2^-21 apart. */
static uint32_t sign_part(float x) {
    return tw_bits_of(tw_float_of(tw_magnitude_of(x)) + 4.0f);
}

static float sign_mean(float sum, float count) {
    return sum / (count * 0x1p21f);
}

static uint32_t sign_digit(float x, float scale) {
    (void)scale;
    return tw_bits_of(x) >> 31;
}

static float sign_level(uint32_t digit, float scale) {
    return tw_float_of(tw_bits_of(scale) | digit << 31);
}

static const struct block sign = {.elements = 256,
                                  .digit_bits = 1,
                                  .scale_end = 0x7F00, /* 2^127 as bf16 */
                                  .part = sign_part,
                                  .average = sign_mean,
                                  .digit = sign_digit,
                                  .level = sign_level};

_Static_assert(256 * 1 == 8 * BLOCK_BYTES && 256 % GROUP == 0, "a block of sign is 8 words");

TW_CODEC_ROW(block, sign, SIGN, .bits = 1.0 + 16.0 / 256)
