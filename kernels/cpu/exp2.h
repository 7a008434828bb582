/* exp2.h - 2^x per element of a vector. */
#ifndef TW_KERNELS_CPU_EXP2_H
#define TW_KERNELS_CPU_EXP2_H

#include "kernels/cpu/vec.h"

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
