/* immintrin.h - the intrinsics of AVX-512 on any processor, by SIMD Everywhere, and the two that it
 * lacks in Debian 12 (0.7.4): a file that includes <immintrin.h> is compiled against this one. */
#ifndef TW_TESTS_IMMINTRIN_H
#define TW_TESTS_IMMINTRIN_H

#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

typedef simde__mmask16 __mmask16;

#ifndef _mm512_cvtepu16_epi32
static inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
    uint16_t from[16];
    uint32_t to[16];
    _mm256_storeu_si256((__m256i *)from, a);
    for (int i = 0; i < 16; i++) to[i] = from[i];
    return _mm512_loadu_si512(to);
}
#endif

#ifndef _mm512_maskz_expand_epi32
static inline __m512i _mm512_maskz_expand_epi32(__mmask16 k, __m512i a) {
    uint32_t from[16], to[16];
    _mm512_storeu_si512(from, a);
    for (int i = 0, next = 0; i < 16; i++) to[i] = k >> i & 1 ? from[next++] : 0;
    return _mm512_loadu_si512(to);
}
#endif

#endif
