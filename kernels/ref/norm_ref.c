/* norm_ref.c - the sums of norm.h, one element after the other: element i belongs to lane i mod 8.
 */
#include <math.h>

#include "kernels/norm.h"

double tw_norm_squared_ref(const float *x, size_t n) {
    double sum = 0.0;
    for (size_t lane = 0; lane < 8; lane++) {
        double part = 0.0;
        for (size_t i = lane; i < n; i += 8) part += (double)x[i] * (double)x[i];
        sum += part;
    }
    return sum;
}

double tw_distance_squared_ref(const float *a, const float *b, size_t n) {
    double sum = 0.0;
    for (size_t lane = 0; lane < 8; lane++) {
        double part = 0.0;
        for (size_t i = lane; i < n; i += 8) {
            const double d = (double)a[i] - (double)b[i];
            part += d * d;
        }
        sum += part;
    }
    return sum;
}

bool tw_is_finite_ref(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}
