/* vec.h - vectors of floats, and names of functions per instruction set. Files of kernels/cpu/ that
 * use TW_CPU(op) are compiled once per instruction set and type of activation. Their names are
 * then, for example, tw_avx512_bf16_gelu, tw_avx2_f32_gelu or tw_base_f32_gelu. */
#ifndef TW_KERNELS_CPU_VEC_H
#define TW_KERNELS_CPU_VEC_H

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "kernels/act.h"
#include "kernels/ops.h"

/* A vector has TW_VEC floats. The processor has registers for TW_VEC_REGISTERS vectors. */
#if defined(TW_ISA_AVX512)
#if defined(TW_ISA_AVX512_BF16) /* the bf16 dot products are used by attention */
#define TW_CPU(op) TW_ACT_NAME(avx512bf16, op)
#define TW_CPU_NAME "AVX-512 BF16"
#else
#define TW_CPU(op) TW_ACT_NAME(avx512, op)
#define TW_CPU_NAME "AVX-512"
#endif
enum { TW_VEC = 16, TW_VEC_REGISTERS = 32 };
#elif defined(TW_ISA_AVX2)
#define TW_CPU(op) TW_ACT_NAME(avx2, op)
#define TW_CPU_NAME "AVX2"
enum { TW_VEC = 8, TW_VEC_REGISTERS = 16 };
#else
#define TW_CPU(op) TW_ACT_NAME(base, op)
#define TW_CPU_NAME "baseline"
enum { TW_VEC = 4, TW_VEC_REGISTERS = 16 };
#endif

#define TW_CPU_DECLARE(op) __typeof__(*((const struct tw_ops *)0)->op) TW_CPU(op);
TW_OPS_EACH(TW_CPU_DECLARE)
extern const struct tw_ops TW_CPU(table);

/* ---- vectors -------------------------------------------------------------------------------- */

/* A vector of TW_VEC floats in registers, and its conversion to and from activations in
 * memory. Written with the vector extensions of gcc and clang, and with intrinsics only where those
 * do not suffice. */

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

/* ---- powers --------------------------------------------------------------------------------- */

/* Returns e^x: x = i * ln(2) + r with |r| <= ln(2) / 2. e^r is the polynomial with the least
 * maximum relative error over that range (1.9e-9 before rounding); 2^i sets the exponent bits.
 * Relative error below 2e-7 for x in [-87.3, 88.3]; 0 below -87.7, infinity above 88.4; e^0 is 1;
 * NaN stays NaN. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
TW_INLINE tw_vec tw_vec_exp(tw_vec x) {
    const float magic = 12582912.0f;
    x = tw_vec_max(tw_vec_all(-88.0f), x); /* this order of arguments keeps x if it is NaN */
    x = tw_vec_min(tw_vec_all(88.7f), x);
    const tw_vec shifted = x * 1.44269504f + magic;
    const tw_vec f = shifted - magic;
    const tw_vec r =
        (x - f * 0.693359375f) +
        f * 2.12194440e-4f; /* subtracts ln 2 in two parts, the first of which is exact */
    tw_vec p = tw_vec_all(1.3836737e-3f);
    p = p * r + 8.3748987e-3f;
    p = p * r + 4.1668233e-2f;
    p = p * r + 1.6666420e-1f;
    p = p * r + 4.9999991e-1f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * (tw_vec)(((tw_uvec)shifted + 127u) << 23);
}

/* Returns 1 / (1 + e^-x). Relative error below 3e-7; 0 below -88.4. */
TW_INLINE tw_vec tw_vec_logistic(tw_vec x) {
    return 1.0f / (1.0f + tw_vec_exp(-x));
}

/* Returns 2^x for x <= 127: x = i + f with |f| <= 1/2. 2^f is the polynomial of degree 5 with the
 * least relative error (Remez; 2e-7 with its constant set to 1, so that 2^0 = 1); 2^i sets the
 * exponent. Returns 0 (or a denormal) below -126; NaN stays NaN. */
TW_INLINE tw_vec tw_vec_exp2(tw_vec x) {
#if defined(__AVX512F__)
    const tw_vec whole = (tw_vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#else
    const tw_vec magic = tw_vec_all(12582912.0f); /* 1.5 * 2^23 leaves no fraction bits */
    const tw_vec shifted = x + magic, whole = shifted - magic;
#endif
    const tw_vec f = x - whole;
    tw_vec p = tw_vec_all(0.00132764725f);
    p = p * f + 0.00967554096f;
    p = p * f + 0.0555071309f;
    p = p * f + 0.240221202f;
    p = p * f + 0.693146944f;
    p = p * f + 1.0f;
#if defined(__AVX512F__)
    return (tw_vec)_mm512_scalef_ps((__m512)p, (__m512)whole);
#else
    const tw_vec power = (tw_vec)(((tw_uvec)shifted + 127u) << 23);
    const tw_ivec is_tiny = x < -126.0f;
    return (tw_vec)((tw_ivec)(p * power) & ~is_tiny);
#endif
}

#endif
