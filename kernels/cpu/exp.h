/* exp.h - e^x and the logistic function, per element of a vector. */
#ifndef TW_KERNELS_CPU_EXP_H
#define TW_KERNELS_CPU_EXP_H

#include <stdint.h>

#include "kernels/cpu/vec.h"

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

#endif
