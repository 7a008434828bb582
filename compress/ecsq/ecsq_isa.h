/* ecsq_isa.h - inner loops of the ecsq coders, for a few dozen elements at a time. They convert
 * values to codes and sign bits, and back. This file has the plain C variants; ecsq_avx2.h has
 * faster ones. */
#ifndef TW_COMPRESS_ECSQ_ECSQ_ISA_H
#define TW_COMPRESS_ECSQ_ECSQ_ISA_H

#include <math.h>

#include "compress/ecsq/ecsq.h"

enum {
    TW_ECSQ_MADE = TW_ECSQ_GROUP, /* elements encoded at a time: enough to fill vectors */
    TW_ECSQ_PIECE = 32,           /* elements decoded, or codes examined, at a time */
    TW_ECSQ_SIZES = 32,           /* largest number of possible sizes in a code */
};

/* Parameters for encoding a block's values to codes. */
struct tw_ecsq_quantiser {
    float inverse, bias;
    uint32_t limit, size_bits, in_code;
};

/* Parameters for decoding a block's codes to values. */
struct tw_ecsq_levels {
    float level[TW_ECSQ_SIZES]; /* (a + shift) * s */
    float added[TW_ECSQ_SIZES]; /* weight * level */
    float s, weight;
    int32_t one, more; /* shifts, in 2^-8 */
    uint32_t limit, size_bits, in_code;
};

/* Number of signs, and of sizes written in full, that belong to a set of codes. */
struct tw_ecsq_asked {
    uint32_t signs, written; /* sizes written in full */
};

/* Writer of sign bits, eight bytes at a time. */
struct tw_ecsq_signs {
    uint64_t rest; /* bits that do not yet fill a byte */
    unsigned rest_count;
    uint8_t *at;
};

/* A set of codes, one bit per code c: bit c mod 8 of bits[bit 3 of c][upper four bits of c]. */
struct tw_ecsq_set {
    uint8_t bits[2][16];
};

/* Reader of sign bits, with the unread rest of a payload. */
struct tw_ecsq_signs_left {
    const uint8_t *at, *end;
    unsigned taken; /* number of bits already read from the byte at `at` */
};

static inline int32_t tw_ecsq_size(const struct tw_ecsq_quantiser *q, float x) {
    return (int32_t)(fabsf(x) * q->inverse +
                     q->bias); /* at most 64 / c + 1, which fits an int32_t */
}

/* Appends `count` sign bits, at most 32. All higher bits of `bits` must be 0. */
static inline void tw_ecsq_signs_put(struct tw_ecsq_signs *signs, uint64_t bits, unsigned count) {
    const uint64_t all = signs->rest | bits << signs->rest_count;
    const unsigned all_count = signs->rest_count + count;
    tw_put_u64(signs->at, all);
    signs->at += all_count / 8;
    signs->rest = all >> (all_count & ~7u);
    signs->rest_count = all_count % 8;
}

/* Returns at least the next 32 bits; bits beyond the end are 0. */
static inline uint64_t tw_ecsq_signs_next(const struct tw_ecsq_signs_left *signs) {
    const size_t bytes = (size_t)(signs->end - signs->at);
    uint8_t last[8] = {0};
    if (bytes >= sizeof(last)) return tw_get_u64(signs->at) >> signs->taken;
    memcpy(last, signs->at, bytes);
    return tw_get_u64(last) >> signs->taken;
}

static inline void tw_ecsq_signs_skip(struct tw_ecsq_signs_left *signs, unsigned count) {
    const unsigned taken = signs->taken + count;
    signs->at += taken / 8;
    signs->taken = taken % 8;
}

#ifdef __AVX2__
#include "compress/ecsq/ecsq_avx2.h"
#endif

/* Quantises x[count], count <= 32: writes sizes[count], and appends the signs of nonzero sizes. */
static inline void tw_ecsq_sizes(const struct tw_ecsq_quantiser *q, const float *restrict x,
                                 uint32_t count, uint8_t *restrict sizes,
                                 struct tw_ecsq_signs *signs) {
    const float most = (float)q->limit;
    uint64_t bits = 0;
    unsigned bits_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float size = fabsf(x[i]) * q->inverse + q->bias;
        sizes[i] = (uint8_t)(int32_t)(size < most ? size : most);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t has_sign = sizes[i] > 0;
        bits |= (has_sign & tw_ecsq_bits(x[i]) >> 31) << bits_count;
        bits_count += (unsigned)has_sign;
    }
    tw_ecsq_signs_put(signs, bits, bits_count);
}

/* Encodes x[count], count <= 64, to codes and signs. Returns true if a size must be written in
 * full. */
static inline bool tw_ecsq_make_some(const struct tw_ecsq_quantiser *q, const float *x,
                                     uint32_t count, uint8_t *restrict codes,
                                     struct tw_ecsq_signs *signs) {
    const uint32_t first = count < TW_ECSQ_MADE / 2 ? count : TW_ECSQ_MADE / 2;
    const uint32_t codes_count = (count + q->in_code - 1) / q->in_code;
    uint8_t sizes[TW_ECSQ_MADE] = {0}, any = 0;
    tw_ecsq_sizes(q, x, first, sizes, signs);
    tw_ecsq_sizes(q, x + first, count - first, sizes + first, signs);
    for (uint32_t i = 0; i < codes_count; i++) {
        const uint32_t low = sizes[q->in_code * i];
        const uint32_t high = q->in_code == 1 ? 0u : sizes[2 * i + 1];
        codes[i] = (uint8_t)(low | high << q->size_bits);
    }
    for (uint32_t i = 0; i < TW_ECSQ_MADE; i++) any = (uint8_t)(any | (sizes[i] == q->limit));
    return any != 0;
}

/* Same as tw_ecsq_make_some, for exactly 64 elements. */
static inline bool tw_ecsq_make(const struct tw_ecsq_quantiser *q, const float *x, uint8_t *codes,
                                struct tw_ecsq_signs *signs) {
#ifdef __AVX2__
    return tw_ecsq_make_avx2(q, x, codes, signs);
#else
    return tw_ecsq_make_some(q, x, TW_ECSQ_MADE, codes, signs);
#endif
}

static inline void tw_ecsq_set_add(struct tw_ecsq_set *set, uint8_t code) {
    uint8_t *const bits = &set->bits[code >> 3 & 1][code >> 4];
    *bits = (uint8_t)(*bits | 1u << (code & 7));
}

/* Returns true if the set contains all of codes[32]. */
static inline bool tw_ecsq_set_has(const struct tw_ecsq_set *set, const uint8_t *codes) {
#ifdef __AVX2__
    return tw_ecsq_set_has_avx2(set, codes);
#else
    uint32_t has = 1;
    for (uint32_t i = 0; i < TW_ECSQ_PIECE; i++) {
        has &= (uint32_t)set->bits[codes[i] >> 3 & 1][codes[i] >> 4] >> (codes[i] & 7);
    }
    return has != 0;
#endif
}

/* Adds to *asked the number of signs, and of sizes written in full, that belong to codes[32]. */
static inline void tw_ecsq_ask(const struct tw_ecsq *ecsq, const uint8_t *codes,
                               struct tw_ecsq_asked *asked) {
#ifdef __AVX2__
    tw_ecsq_ask_avx2(ecsq, codes, asked);
#else
    const uint8_t limit = (uint8_t)tw_ecsq_limit(ecsq);
    uint8_t signs = 0, written = 0; /* a byte is wide enough: 32 codes have at most 64 sizes */
    for (uint32_t i = 0; i < TW_ECSQ_PIECE; i++) {
        const uint8_t low = codes[i] & limit, high = (uint8_t)(codes[i] >> ecsq->size_bits);
        signs = (uint8_t)(signs + (low != 0) + (high != 0));
        written = (uint8_t)(written + (low == limit) + (high == limit));
    }
    asked->signs += signs;
    asked->written += written;
#endif
}

/* Decodes 32 elements: sets y[32] to +-(a + shift) * s, and +0 where a = 0. If is_add, adds weight
 * times these values instead. Returns a bit mask of the elements whose sizes are written in full;
 * of these only the sign is set in y. If is_add and the mask is not 0, nothing is added and no sign
 * is read. */
static inline uint32_t tw_ecsq_put(const struct tw_ecsq_levels *levels, bool is_add,
                                   const uint8_t *codes, struct tw_ecsq_signs_left *signs,
                                   float *restrict y) {
#ifdef __AVX2__
    return tw_ecsq_put_avx2(levels, is_add, codes, signs, y);
#else
    const float *const table = is_add ? levels->added : levels->level;
    uint64_t bits = tw_ecsq_signs_next(signs);
    uint32_t large = 0, sizes[TW_ECSQ_PIECE];
    unsigned bits_count = 0;
    for (uint32_t i = 0; i < TW_ECSQ_PIECE; i++) {
        const uint32_t code = codes[i / levels->in_code];
        sizes[i] = code >> i % levels->in_code * levels->size_bits & levels->limit;
        large |= (uint32_t)(sizes[i] == levels->limit) << i;
    }
    if (is_add && large != 0) return large;
    for (uint32_t i = 0; i < TW_ECSQ_PIECE; i++) {
        const uint32_t has_sign = sizes[i] > 0, minus = (uint32_t)(bits & has_sign) << 31;
        const float value = tw_ecsq_float(tw_ecsq_bits(table[sizes[i]]) ^ minus);
        bits >>= has_sign;
        bits_count += has_sign;
        y[i] = is_add ? y[i] + value : value;
    }
    tw_ecsq_signs_skip(signs, bits_count);
    return large;
#endif
}

#endif
