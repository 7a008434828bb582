/* nf4_avx512.h - digits and values of an nf4 block in AVX-512, with the same results as digit() and
 * level() of codec_nf4.c. */
#ifndef TW_COMPRESS_NF4_AVX512_H
#define TW_COMPRESS_NF4_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "compress/block.h"
#include "compress/codec_nf4.h"

/* Returns the bit offsets of the digits of elements at, at + 1, ... within their words. Groups of 8
 * elements are adjacent in the words of a block. */
static inline __m512i tw_nf4_shifts(size_t at) {
    const __m512i within = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
    return _mm512_add_epi32(within, _mm512_set1_epi32((int)(at / TW_BLOCK_LANES * 4)));
}

/* [-1, 1] has 31 cells of width 1/15, each with at most one bound. So the cell of a value and one
 * comparison give its digit. At the boundary of two cells, both give the same result. */
static inline __m512i tw_nf4_digits(__m512 value) {
    const float none = INFINITY;
    const __m512 low_bounds =
                     _mm512_setr_ps(none, none, none, tw_nf4_bound(0), none, none, tw_nf4_bound(1),
                                    none, none, tw_nf4_bound(2), tw_nf4_bound(3), none,
                                    tw_nf4_bound(4), tw_nf4_bound(5), none, tw_nf4_bound(6)),
                 high_bounds = _mm512_setr_ps(tw_nf4_bound(7), tw_nf4_bound(8), none,
                                              tw_nf4_bound(9), tw_nf4_bound(10), tw_nf4_bound(11),
                                              none, tw_nf4_bound(12), none, tw_nf4_bound(13), none,
                                              none, tw_nf4_bound(14), none, none, none);
    const __m512i low_digits = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 6),
                  high_digits =
                      _mm512_setr_epi32(7, 8, 9, 9, 10, 11, 12, 12, 13, 13, 14, 14, 14, 15, 15, 15);
    const __m512i cell =
        _mm512_cvttps_epi32(_mm512_fmadd_ps(value, _mm512_set1_ps(15.0f), _mm512_set1_ps(16.0f)));
    const __m512 bound = _mm512_permutex2var_ps(low_bounds, cell, high_bounds);
    const __m512i digits = _mm512_permutex2var_epi32(low_digits, cell, high_digits);
    const __mmask16 is_above = _mm512_cmp_ps_mask(value, bound, _CMP_GT_OQ);
    return _mm512_mask_add_epi32(digits, is_above, digits, _mm512_set1_epi32(1));
}

static inline void tw_nf4_words_avx512(const float *restrict x, struct tw_block_factor by,
                                       uint32_t *restrict words) {
    const __m512 lift = _mm512_set1_ps(by.lift), inverse = _mm512_set1_ps(by.inverse);
    __m512i word = _mm512_setzero_si512();
    for (size_t at = 0; at < TW_BLOCK_GROUP; at += 16) {
        const __m512 lifted = _mm512_mul_ps(_mm512_loadu_ps(x + at), lift);
        const __m512i digits = tw_nf4_digits(_mm512_mul_ps(lifted, inverse));
        word = _mm512_or_epi32(word, _mm512_sllv_epi32(digits, tw_nf4_shifts(at)));
    }
    _mm256_storeu_si256(
        (__m256i *)(void *)words,
        _mm256_or_si256(_mm512_castsi512_si256(word), _mm512_extracti64x4_epi64(word, 1)));
}

static inline void tw_nf4_values_avx512(const uint32_t *restrict words, float scale,
                                        float *restrict values) {
    const __m512 levels = _mm512_mul_ps(_mm512_set1_ps(scale), _mm512_loadu_ps(tw_nf4_levels));
    const __m512i word =
        _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)words));
    for (size_t at = 0; at < TW_BLOCK_GROUP; at += 16) {
        const __m512i digits = _mm512_srlv_epi32(word, tw_nf4_shifts(at));
        _mm512_storeu_ps(values + at, _mm512_permutexvar_ps(digits, levels));
    }
}

#endif
