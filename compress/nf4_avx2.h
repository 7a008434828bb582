/* nf4_avx2.h - digits and values of an nf4 block in AVX2, with the same results as digit() and
 * level() of codec_nf4.c. */
#ifndef TW_COMPRESS_NF4_AVX2_H
#define TW_COMPRESS_NF4_AVX2_H

#include <immintrin.h>

#include "compress/block.h"
#include "compress/codec_nf4.h"

/* Returns 2 * found, minus 1 where value > bound: a true comparison is -1. */
static inline __m256i tw_nf4_search(__m256i found, __m256 value, __m256 bound) {
    const __m256 is_above = _mm256_cmp_ps(value, bound, _CMP_GT_OQ);
    return _mm256_add_epi32(_mm256_add_epi32(found, found), _mm256_castps_si256(is_above));
}

/* Binary search with four comparisons instead of fifteen. `found` is the negative of the digit's
 * upper bits. Modulo the length of each table, it is the index of the next bound. */
static inline void tw_nf4_words_avx2(const float *restrict x, struct tw_block_factor by,
                                     uint32_t *restrict words) {
    const __m256 first = _mm256_set1_ps(tw_nf4_bound(7)),
                 second = _mm256_setr_ps(tw_nf4_bound(3), 0.0f, 0.0f, tw_nf4_bound(11),
                                         tw_nf4_bound(3), 0.0f, 0.0f, tw_nf4_bound(11)),
                 third = _mm256_setr_ps(tw_nf4_bound(1), tw_nf4_bound(13), tw_nf4_bound(9),
                                        tw_nf4_bound(5), tw_nf4_bound(1), tw_nf4_bound(13),
                                        tw_nf4_bound(9), tw_nf4_bound(5)),
                 fourth = _mm256_setr_ps(tw_nf4_bound(0), tw_nf4_bound(14), tw_nf4_bound(12),
                                         tw_nf4_bound(10), tw_nf4_bound(8), tw_nf4_bound(6),
                                         tw_nf4_bound(4), tw_nf4_bound(2)),
                 lift = _mm256_set1_ps(by.lift), inverse = _mm256_set1_ps(by.inverse);
    __m256i word = _mm256_setzero_si256();
    for (size_t at = TW_BLOCK_GROUP; at > 0; at -= TW_BLOCK_LANES) {
        const __m256 lifted = _mm256_mul_ps(_mm256_loadu_ps(x + at - TW_BLOCK_LANES), lift),
                     value = _mm256_mul_ps(lifted, inverse);
        __m256i found = tw_nf4_search(_mm256_setzero_si256(), value, first);
        found = tw_nf4_search(found, value, _mm256_permutevar_ps(second, found));
        found = tw_nf4_search(found, value, _mm256_permutevar_ps(third, found));
        found = tw_nf4_search(found, value, _mm256_permutevar8x32_ps(fourth, found));
        word = _mm256_sub_epi32(_mm256_slli_epi32(word, 4), found);
    }
    _mm256_storeu_si256((__m256i *)(void *)words, word);
}

/* Multiplies the levels by the scale, in two halves. The lower bits of a digit index either half,
 * and the highest bit selects the half. */
static inline void tw_nf4_values_avx2(const uint32_t *restrict words, float scale,
                                      float *restrict values) {
    const __m256 by = _mm256_set1_ps(scale),
                 low = _mm256_mul_ps(by, _mm256_loadu_ps(tw_nf4_levels)),
                 high = _mm256_mul_ps(by, _mm256_loadu_ps(tw_nf4_levels + TW_BLOCK_LANES));
    __m256i word = _mm256_loadu_si256((const __m256i *)(const void *)words);
    for (size_t at = 0; at < TW_BLOCK_GROUP; at += TW_BLOCK_LANES) {
        const __m256 is_high = _mm256_castsi256_ps(_mm256_slli_epi32(word, 28));
        _mm256_storeu_ps(values + at,
                         _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, word),
                                          _mm256_permutevar8x32_ps(high, word), is_high));
        word = _mm256_srli_epi32(word, 4);
    }
}

#endif
