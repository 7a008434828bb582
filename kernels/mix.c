/* mix.c - live parameters after an outer step, and the outer gradient. */
#include "kernels/mix.h"

void tw_mix(float *restrict theta, const float *restrict anchor_new, float alpha, size_t n) {
    const float rest = 1.0f - alpha;
    for (size_t i = 0; i < n; i++) theta[i] = alpha * theta[i] + rest * anchor_new[i];
}

void tw_shift(float *restrict theta, const float *restrict anchor_new,
              const float *restrict anchor_old, size_t n) {
    for (size_t i = 0; i < n; i++) theta[i] = theta[i] + (anchor_new[i] - anchor_old[i]);
}

void tw_delta(float *restrict delta, const float *restrict anchor, const float *restrict theta,
              size_t n) {
    for (size_t i = 0; i < n; i++) delta[i] = anchor[i] - theta[i];
}
