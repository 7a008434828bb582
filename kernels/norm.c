/* norm.c - sums in eight double lanes, added in lane order, so that vector code has a defined
 * result; the median of a few numbers. */
#include "kernels/norm.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"

enum { LANES = 8 };

static double lanes_sum(const double lanes[LANES]) {
    double sum = 0.0;
    for (size_t j = 0; j < LANES; j++) sum += lanes[j];
    return sum;
}

double tw_norm_squared(const float *x, size_t n) {
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) lanes[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (size_t j = 0; i + j < n; j++) lanes[j] += (double)x[i + j] * (double)x[i + j];
    return lanes_sum(lanes);
}

double tw_distance_squared(const float *a, const float *b, size_t n) {
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            const double d = (double)a[i + j] - (double)b[i + j];
            lanes[j] += d * d;
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        const double d = (double)a[i + j] - (double)b[i + j];
        lanes[j] += d * d;
    }
    return lanes_sum(lanes);
}

/* A value is not finite if all its exponent bits are set. Without the sign, such values are the
 * largest bit patterns. */
bool tw_is_finite(const float *x, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return max < 0x7F800000u;
}

void tw_scale(float *x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

double tw_median_low(const double *values, uint32_t count) {
    TW_ASSERT(count > 0);
    TW_ASSERT(count <= TW_MEDIAN_MAX);
    double sorted[TW_MEDIAN_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return sorted[(count - 1) / 2];
}

/* ---- references: element i belongs to lane i mod 8 ------------------------------------------ */

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
