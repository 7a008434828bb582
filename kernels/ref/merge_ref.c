/* merge_ref.c - the weighted sum, with each rounding explicit. */
#include "kernels/merge.h"

void tw_merge_add_ref(float *sum, const float *x, float weight, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const volatile float share = weight * x[i];
        sum[i] = sum[i] + share;
    }
}
