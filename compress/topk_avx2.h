/* topk_avx2.h - above() of topk_select.c for 64 elements, in AVX2. */
#ifndef TW_COMPRESS_TOPK_AVX2_H
#define TW_COMPRESS_TOPK_AVX2_H

#include <immintrin.h>
#include <stdint.h>

/* Returns a bit mask of the elements of magnitudes[64] that are above `bound`. */
static inline uint64_t tw_topk_above_avx2(const uint32_t *magnitudes, int32_t bound) {
    const __m256i least = _mm256_set1_epi32(bound);
    uint64_t word = 0;
    for (unsigned i = 0; i < 64; i += 8) {
        const __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(magnitudes + i));
        const __m256 is_above = _mm256_castsi256_ps(_mm256_cmpgt_epi32(some, least));
        word |= (uint64_t)(uint32_t)_mm256_movemask_ps(is_above) << i;
    }
    return word;
}

#endif
