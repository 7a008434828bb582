/* ecsq_avx2.h - AVX2 and BMI2 variants of the functions in ecsq_isa.h. */
#ifndef TW_COMPRESS_ECSQ_ECSQ_AVX2_H
#define TW_COMPRESS_ECSQ_ECSQ_AVX2_H

#include <immintrin.h>

/* Packs 4 vectors of 8 integers into signed bytes, with saturation. */
static inline __m256i tw_ecsq_pack(const __m256i *from) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(from[0], from[1]),
                                             _mm256_packs_epi32(from[2], from[3]));
    /* Packing works within 128-bit halves, so groups of four bytes are in the order 0 2 4 6 1 3 5
     * 7. */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline uint32_t tw_ecsq_nonzero(__m256i sizes) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(sizes, _mm256_setzero_si256()));
}

/* Returns the sizes of x[32], and writes their signs. */
static inline __m256i tw_ecsq_sizes_avx2(const struct tw_ecsq_quantiser *q, const float *x,
                                         struct tw_ecsq_signs *signs) {
    const __m256 inverse = _mm256_set1_ps(q->inverse), bias = _mm256_set1_ps(q->bias),
                 most = _mm256_set1_ps((float)q->limit), minus = _mm256_set1_ps(-0.0f);
    __m256i bits[4], a[4];
    for (int i = 0; i < 4; i++) {
        const __m256 v = _mm256_loadu_ps(x + 8 * i);
        const __m256 size = _mm256_add_ps(_mm256_mul_ps(_mm256_andnot_ps(minus, v), inverse), bias);
        bits[i] = _mm256_castps_si256(v);
        a[i] = _mm256_cvttps_epi32(_mm256_min_ps(size, most));
    }
    const __m256i sizes = tw_ecsq_pack(a);
    const uint32_t some = tw_ecsq_nonzero(sizes);
    const uint32_t is_minus = (uint32_t)_mm256_movemask_epi8(tw_ecsq_pack(bits));
    tw_ecsq_signs_put(signs, _pext_u32(is_minus, some), (unsigned)__builtin_popcount(some));
    return sizes;
}

static inline bool tw_ecsq_make_avx2(const struct tw_ecsq_quantiser *q, const float *x,
                                     uint8_t *codes, struct tw_ecsq_signs *signs) {
    const __m256i a = tw_ecsq_sizes_avx2(q, x, signs), b = tw_ecsq_sizes_avx2(q, x + 32, signs);
    const __m256i limit = _mm256_set1_epi8((char)q->limit);
    __m256i *const to = (__m256i *)(void *)codes;
    if (q->in_code == 1) {
        _mm256_storeu_si256(to, a);
        _mm256_storeu_si256(to + 1, b);
    } else {
        const __m256i weights = _mm256_set1_epi16((short)(1 | 1 << q->size_bits << 8));
        const __m256i both =
            _mm256_packus_epi16(_mm256_maddubs_epi16(a, weights), _mm256_maddubs_epi16(b, weights));
        _mm256_storeu_si256(to, _mm256_permute4x64_epi64(both, 0xD8));
    }
    return _mm256_movemask_epi8(
               _mm256_or_si256(_mm256_cmpeq_epi8(a, limit), _mm256_cmpeq_epi8(b, limit))) != 0;
}

static inline bool tw_ecsq_set_has_avx2(const struct tw_ecsq_set *set, const uint8_t *codes) {
    const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i row = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    __m256i rows[2];
    for (int i = 0; i < 2; i++) {
        rows[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(
                                          (const __m128i *)(const void *)set->bits[i])),
                                      row);
    }
    const __m256i has = _mm256_blendv_epi8(rows[0], rows[1], _mm256_slli_epi16(both, 4));
    const __m256i bit = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)0x8040201008040201),
                                            _mm256_and_si256(both, _mm256_set1_epi8(7)));
    return _mm256_testc_si256(has, bit) != 0;
}

/* Returns the sizes in the higher bits of codes. The shift also brings in bits of adjacent codes,
 * which are masked out. */
static inline __m256i tw_ecsq_high(__m256i codes, unsigned size_bits) {
    const __m256i mask = _mm256_set1_epi8((char)(0xFF >> size_bits));
    return _mm256_and_si256(_mm256_srl_epi16(codes, _mm_cvtsi32_si128((int)size_bits)), mask);
}

static inline void tw_ecsq_ask_avx2(const struct tw_ecsq *ecsq, const uint8_t *codes,
                                    struct tw_ecsq_asked *asked) {
    const __m256i limit = _mm256_set1_epi8((char)tw_ecsq_limit(ecsq));
    const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i low = _mm256_and_si256(both, limit), high = tw_ecsq_high(both, ecsq->size_bits);
    const uint32_t large = (uint32_t)_mm256_movemask_epi8(
        _mm256_or_si256(_mm256_cmpeq_epi8(low, limit), _mm256_cmpeq_epi8(high, limit)));
    asked->signs += (uint32_t)__builtin_popcount(tw_ecsq_nonzero(low)) +
                    (uint32_t)__builtin_popcount(tw_ecsq_nonzero(high));
    if (large != 0) {
        const uint32_t other = (uint32_t)_mm256_movemask_epi8(
            _mm256_and_si256(_mm256_cmpeq_epi8(low, limit), _mm256_cmpeq_epi8(high, limit)));
        asked->written += (uint32_t)__builtin_popcount(large) + (uint32_t)__builtin_popcount(other);
    }
}

/* Returns the sizes of 32 elements, one per byte. */
static inline __m256i tw_ecsq_split_avx2(const struct tw_ecsq_levels *levels,
                                         const uint8_t *codes) {
    if (levels->in_code == 1) return _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i limit = _mm256_set1_epi8((char)levels->limit);
    const __m256i both =
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
    const __m256i high = tw_ecsq_high(both, levels->size_bits);
    return _mm256_or_si256(_mm256_and_si256(both, limit), _mm256_slli_epi16(high, 8));
}

/* Returns the values of 8 sizes: levels, or weighted levels if is_add. */
static inline __m256 tw_ecsq_level_avx2(const struct tw_ecsq_levels *levels, bool is_add,
                                        __m256i a) {
    if (levels->limit < 8) {
        return _mm256_permutevar8x32_ps(_mm256_loadu_ps(is_add ? levels->added : levels->level), a);
    }
    const float one = (float)levels->one * 0x1p-8f, more = (float)levels->more * 0x1p-8f;
    const __m256 shifts = _mm256_setr_ps(0.0f, one, more, more, more, more, more, more);
    const __m256 shift =
        _mm256_permutevar8x32_ps(shifts, _mm256_min_epu32(a, _mm256_set1_epi32(2)));
    const __m256 level =
        _mm256_mul_ps(_mm256_add_ps(_mm256_cvtepi32_ps(a), shift), _mm256_set1_ps(levels->s));
    return is_add ? _mm256_mul_ps(_mm256_set1_ps(levels->weight), level) : level;
}

static inline uint32_t tw_ecsq_put_avx2(const struct tw_ecsq_levels *levels, bool is_add,
                                        const uint8_t *codes, struct tw_ecsq_signs_left *signs,
                                        float *y) {
    const __m256i sizes = tw_ecsq_split_avx2(levels, codes);
    const uint32_t large = (uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi8(sizes, _mm256_set1_epi8((char)levels->limit)));
    if (is_add && large != 0) return large;
    const uint32_t some = tw_ecsq_nonzero(sizes);
    const uint32_t is_minus = _pdep_u32((uint32_t)tw_ecsq_signs_next(signs), some);
    const __m256 minus = _mm256_set1_ps(-0.0f);
    uint8_t bytes[32];
    tw_ecsq_signs_skip(signs, (unsigned)__builtin_popcount(some));
    _mm256_storeu_si256((__m256i *)(void *)bytes, sizes);
    for (unsigned i = 0; i < 32; i += 8) {
        const __m256i a =
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(bytes + i)));
        const __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32((int)(is_minus >> i)),
                                               _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
        const __m256 value = _mm256_xor_ps(tw_ecsq_level_avx2(levels, is_add, a),
                                           _mm256_and_ps(_mm256_castsi256_ps(sign), minus));
        _mm256_storeu_ps(y + i, is_add ? _mm256_add_ps(_mm256_loadu_ps(y + i), value) : value);
    }
    return large;
}

#endif
