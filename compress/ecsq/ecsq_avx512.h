/* ecsq_avx512.h - AVX-512 variants of the functions in ecsq_isa.h that gain from it: encoding to
 * codes, and decoding codes to values. */
#ifndef TW_COMPRESS_ECSQ_ECSQ_AVX512_H
#define TW_COMPRESS_ECSQ_ECSQ_AVX512_H

#include <immintrin.h>

enum { TW_ECSQ_WIDTH = 16 };

/* Returns the sizes of x[16], limited to `most`. */
static inline __m512i tw_ecsq_sizes_avx512(const struct tw_ecsq_quantiser *q, __m512 x,
                                           float most) {
    const __m512 size = _mm512_add_ps(_mm512_mul_ps(_mm512_abs_ps(x), _mm512_set1_ps(q->inverse)),
                                      _mm512_set1_ps(q->bias));
    return _mm512_cvttps_epi32(_mm512_min_ps(size, _mm512_set1_ps(most)));
}

/* Returns the sign bits of 32 elements. */
static inline uint32_t tw_ecsq_minus_avx512(__m512 low, __m512 high) {
    return _cvtmask32_u32(_mm512_kunpackw(_mm512_movepi32_mask(_mm512_castps_si512(high)),
                                          _mm512_movepi32_mask(_mm512_castps_si512(low))));
}

static inline bool tw_ecsq_make_avx512(const struct tw_ecsq_quantiser *q, const float *x,
                                       uint8_t *codes, struct tw_ecsq_signs *signs) {
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + TW_ECSQ_WIDTH),
                 x2 = _mm512_loadu_ps(x + 2 * TW_ECSQ_WIDTH),
                 x3 = _mm512_loadu_ps(x + 3 * TW_ECSQ_WIDTH);
    const float most = (float)q->limit;
    const __m512i low =
        _mm512_packs_epi32(tw_ecsq_sizes_avx512(q, x0, most), tw_ecsq_sizes_avx512(q, x1, most));
    const __m512i high =
        _mm512_packs_epi32(tw_ecsq_sizes_avx512(q, x2, most), tw_ecsq_sizes_avx512(q, x3, most));
    const uint32_t is_minus[2] = {tw_ecsq_minus_avx512(x0, x1), tw_ecsq_minus_avx512(x2, x3)};
    /* Packing works within 128-bit lanes, so groups of four bytes are in the order 0 4 8 12 1 5 9
     * 13 ... */
    const __m512i sizes = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_packus_epi16(low, high));
    const uint64_t some = _cvtmask64_u64(_mm512_test_epi8_mask(sizes, sizes));
    for (int i = 0; i < 2; i++) {
        const uint32_t here = (uint32_t)(some >> 32 * i);
        tw_ecsq_signs_put(signs, _pext_u32(is_minus[i], here), (unsigned)__builtin_popcount(here));
    }
    if (q->in_code == 1) {
        _mm512_storeu_si512(codes, sizes);
    } else {
        const __m512i weights = _mm512_set1_epi16((short)(1 | 1 << q->size_bits << 8));
        _mm256_storeu_si256((__m256i *)(void *)codes,
                            _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(sizes, weights)));
    }
    return _mm512_cmpeq_epi8_mask(sizes, _mm512_set1_epi8((char)q->limit)) != 0;
}

/* Returns the sizes of 32 elements, one per byte. */
static inline __m256i tw_ecsq_split_avx512(const struct tw_ecsq_levels *levels,
                                           const uint8_t *codes) {
    if (levels->in_code == 1) return _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i both =
        _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)codes));
    const __m256i high = _mm256_sll_epi16(both, _mm_cvtsi32_si128(8 - (int)levels->size_bits));
    /* Moves the lower size of a code to the low byte, and the higher size to the high byte (a & c |
     * b & ~c). */
    return _mm256_and_si256(_mm256_ternarylogic_epi32(both, high, _mm256_set1_epi16(0x00FF), 0xE4),
                            _mm256_set1_epi8((char)levels->limit));
}

static inline uint32_t tw_ecsq_put_avx512(const struct tw_ecsq_levels *levels, bool is_add,
                                          const uint8_t *codes, struct tw_ecsq_signs_left *signs,
                                          float *y) {
    const __m256i sizes = tw_ecsq_split_avx512(levels, codes);
    const uint32_t large =
        _cvtmask32_u32(_mm256_cmpeq_epi8_mask(sizes, _mm256_set1_epi8((char)levels->limit)));
    if (is_add && large != 0) return large;
    const uint32_t some = _cvtmask32_u32(_mm256_test_epi8_mask(sizes, sizes));
    const uint32_t is_minus = _pdep_u32((uint32_t)tw_ecsq_signs_next(signs), some);
    const float *const table = is_add ? levels->added : levels->level;
    const __m512 low = _mm512_loadu_ps(table), high = _mm512_loadu_ps(table + TW_ECSQ_WIDTH);
    tw_ecsq_signs_skip(signs, (unsigned)__builtin_popcount(some));
    for (int i = 0; i < 2; i++) {
        const __m512i a = _mm512_cvtepu8_epi32(i == 0 ? _mm256_castsi256_si128(sizes)
                                                      : _mm256_extracti128_si256(sizes, 1));
        const __m512i size = _mm512_castps_si512(_mm512_permutex2var_ps(low, a, high));
        const __mmask16 minus = _cvtu32_mask16(is_minus >> TW_ECSQ_WIDTH * i);
        const __m512 value = _mm512_castsi512_ps(
            _mm512_mask_xor_epi32(size, minus, size, _mm512_set1_epi32(INT32_MIN)));
        float *const to = y + TW_ECSQ_WIDTH * i;
        _mm512_storeu_ps(to, is_add ? _mm512_add_ps(_mm512_loadu_ps(to), value) : value);
    }
    return large;
}

#endif
