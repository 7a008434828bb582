/* vec.h - a vector of TW_VEC floats in registers, and its conversion to and from activations in
 * memory. Written with the vector extensions of gcc and clang, and with intrinsics only where those
 * do not suffice. */
#ifndef TW_KERNELS_CPU_VEC_H
#define TW_KERNELS_CPU_VEC_H

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/isa.h"

typedef float tw_vec __attribute__((vector_size(TW_VEC * 4)));
typedef int32_t tw_ivec __attribute__((vector_size(TW_VEC * 4)));
typedef uint32_t tw_uvec __attribute__((vector_size(TW_VEC * 4)));
typedef uint16_t tw_hvec __attribute__((vector_size(TW_VEC * 2)));

#define TW_INLINE static inline __attribute__((always_inline))

/* ---- float32 in memory, at any alignment --------------------------------------------------- */

TW_INLINE tw_vec tw_vec_load(const float *from) {
    tw_vec value;
    memcpy(&value, from, sizeof(value));
    return value;
}

TW_INLINE void tw_vec_store(float *to, tw_vec value) {
    memcpy(to, &value, sizeof(value));
}

/* Load or store only the first `count` < TW_VEC elements of a vector. The other elements are read
 * as 0 and not written. */
TW_INLINE tw_vec tw_vec_load_part(const float *from, size_t count) {
    tw_vec value = {0};
    for (size_t i = 0; i < count; i++) value[i] = from[i];
    return value;
}

TW_INLINE void tw_vec_store_part(float *to, tw_vec value, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = value[i];
}

/* ---- activations in memory ----------------------------------------------------------------- */

#ifdef TW_ACT_BF16
TW_INLINE tw_vec tw_act_load(const tw_act *from) {
    tw_hvec half;
    memcpy(&half, from, sizeof(half));
#if defined(__AVX512F__)
    return (tw_vec)((tw_uvec)_mm512_cvtepu16_epi32((__m256i)half) << 16);
#elif defined(__AVX2__)
    return (tw_vec)((tw_uvec)_mm256_cvtepu16_epi32((__m128i)half) << 16);
#else
    return (tw_vec)(__builtin_convertvector(half, tw_uvec) << 16);
#endif
}

/* Rounds to the nearest bf16, ties to even; a NaN stays a NaN. The processor's instruction is not
 * used, because it would flush denormals to 0. */
TW_INLINE tw_hvec tw_act_round(tw_vec value) {
#if defined(__AVX512BF16__)
    return (tw_hvec)_mm512_cvtneps_pbh((__m512)value);
#else
    const tw_uvec bits = (tw_uvec)value, rounded = bits + 0x7fffu + (bits >> 16 & 1u);
#if defined(__AVX512F__)
    const __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    const __m512i kept =
        _mm512_mask_or_epi32((__m512i)rounded, is_nan, (__m512i)bits, _mm512_set1_epi32(0x400000));
    return (tw_hvec)_mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
#else
    const tw_uvec is_nan = (tw_uvec)(value != value), nan = bits | 0x400000u;
    const tw_uvec kept = ((rounded & ~is_nan) | (nan & is_nan)) >> 16;
#if defined(__AVX2__)
    const __m256i packed = _mm256_packus_epi32((__m256i)kept, (__m256i)kept);
    return (tw_hvec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#else
    return __builtin_convertvector(kept, tw_hvec);
#endif
#endif
#endif
}

TW_INLINE void tw_act_store(tw_act *to, tw_vec value) {
    const tw_hvec half = tw_act_round(value);
    memcpy(to, &half, sizeof(half));
}
#else
TW_INLINE tw_vec tw_act_load(const tw_act *from) {
    return tw_vec_load(from);
}

TW_INLINE void tw_act_store(tw_act *to, tw_vec value) {
    tw_vec_store(to, value);
}
#endif

TW_INLINE tw_vec tw_act_load_part(const tw_act *from, size_t count) {
    tw_vec value = {0};
    for (size_t i = 0; i < count; i++) value[i] = tw_act_get(from + i);
    return value;
}

TW_INLINE void tw_act_store_part(tw_act *to, tw_vec value, size_t count) {
    for (size_t i = 0; i < count; i++) tw_act_put(to + i, value[i]);
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

TW_INLINE tw_vec tw_vec_all(float value) {
    return value - (tw_vec){0};
}

/* Return the smaller or the larger of a and b per element, as a < b ? a : b does: b if either is a
 * NaN. */
TW_INLINE tw_vec tw_vec_min(tw_vec a, tw_vec b) {
#if defined(__AVX512F__)
    return (tw_vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (tw_vec)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (tw_vec)_mm_min_ps((__m128)a, (__m128)b);
#else
    const tw_ivec is_a = a < b;
    return (tw_vec)((is_a & (tw_ivec)a) | (~is_a & (tw_ivec)b));
#endif
}

TW_INLINE tw_vec tw_vec_max(tw_vec a, tw_vec b) {
#if defined(__AVX512F__)
    return (tw_vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (tw_vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (tw_vec)_mm_max_ps((__m128)a, (__m128)b);
#else
    const tw_ivec is_a = a > b;
    return (tw_vec)((is_a & (tw_ivec)a) | (~is_a & (tw_ivec)b));
#endif
}

/* Returns the sum of the elements, adding halves. */
TW_INLINE float tw_vec_sum(tw_vec value) {
    float part[TW_VEC];
    memcpy(part, &value, sizeof(part));
    for (size_t half = TW_VEC / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) part[i] += part[i + half];
    }
    return part[0];
}

TW_INLINE float tw_vec_largest(tw_vec value) {
    float largest = value[0];
    for (size_t i = 1; i < TW_VEC; i++) largest = value[i] > largest ? value[i] : largest;
    return largest;
}

#endif
