/* immintrin.h - the AVX-512 intrinsics on any processor: those of SIMD Everywhere, and those
 * missing from its Debian 12 version (0.7.4). A file that includes <immintrin.h> is compiled
 * against this one. */
#ifndef TW_TESTS_IMMINTRIN_H
#define TW_TESTS_IMMINTRIN_H

#define SIMDE_NO_NATIVE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

typedef simde__mmask16 __mmask16;
typedef simde__mmask32 __mmask32;

#ifndef _cvtmask32_u32
static inline uint32_t _cvtmask32_u32(__mmask32 k) {
    return k;
}
#endif

#ifndef _mm512_cvtepi32_epi16
static inline __m256i _mm512_cvtepi32_epi16(__m512i a) {
    uint32_t from[16];
    uint16_t to[16];
    _mm512_storeu_si512(from, a);
    for (int i = 0; i < 16; i++) to[i] = (uint16_t)from[i];
    return _mm256_loadu_si256((const __m256i *)to);
}
#endif

#ifndef _mm512_mulhi_epu16
static inline __m512i _mm512_mulhi_epu16(__m512i a, __m512i b) {
    uint16_t x[32], y[32];
    _mm512_storeu_si512(x, a);
    _mm512_storeu_si512(y, b);
    for (int i = 0; i < 32; i++) x[i] = (uint16_t)((uint32_t)x[i] * y[i] >> 16);
    return _mm512_loadu_si512(x);
}
#endif

#ifndef _mm512_shldi_epi16
static inline __m512i _mm512_shldi_epi16(__m512i a, __m512i b, unsigned n) {
    uint16_t high[32], low[32];
    _mm512_storeu_si512(high, a);
    _mm512_storeu_si512(low, b);
    for (int i = 0; i < 32; i++) {
        high[i] = (uint16_t)((((uint32_t)high[i] << 16) | low[i]) << n >> 16);
    }
    return _mm512_loadu_si512(high);
}
#endif

#ifndef _mm512_testn_epi16_mask
static inline __mmask32 _mm512_testn_epi16_mask(__m512i a, __m512i b) {
    uint16_t x[32], y[32];
    uint32_t mask = 0;
    _mm512_storeu_si512(x, a);
    _mm512_storeu_si512(y, b);
    for (int i = 0; i < 32; i++) mask |= (uint32_t)((x[i] & y[i]) == 0) << i;
    return mask;
}
#endif

#ifndef _mm512_mask_expand_epi16
static inline __m512i _mm512_mask_expand_epi16(__m512i src, __mmask32 k, __m512i a) {
    uint16_t from[32], to[32];
    _mm512_storeu_si512(from, a);
    _mm512_storeu_si512(to, src);
    for (int i = 0, next = 0; i < 32; i++) to[i] = k >> i & 1 ? from[next++] : to[i];
    return _mm512_loadu_si512(to);
}
#endif

#endif
