/* robust_ref.c - the merges of robust.h, one coordinate after the other. */
#include <math.h>

#include "kernels/norm.h"
#include "kernels/robust.h"

/* Returns the mean of coordinate j over the inputs ranked [first, end). */
static float ranked(const float *const *x, uint32_t count, size_t j, uint32_t first, uint32_t end) {
    float sorted[TW_ROBUST_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > x[i][j]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = x[i][j];
    }
    double sum = 0.0;
    for (uint32_t i = first; i < end; i++) sum += (double)sorted[i];
    const float mean = (float)(sum / (end - first));
    return mean == 0.0f ? 0.0f : mean;
}

void tw_robust_median_ref(float *out, const float *const *x, uint32_t count, size_t n) {
    const uint32_t first = (count - 1) / 2, end = count / 2 + 1;
    for (size_t j = 0; j < n; j++) out[j] = ranked(x, count, j, first, end);
}

void tw_robust_trimmed_ref(float *out, const float *const *x, uint32_t count, size_t n) {
    for (size_t j = 0; j < n; j++) out[j] = ranked(x, count, j, count / 4, count - count / 4);
}

static double lower_median(const double *values, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t below = 0, equal = 0;
        for (uint32_t k = 0; k < count; k++) {
            below += values[k] < values[i];
            equal += values[k] == values[i];
        }
        if (below <= (count - 1) / 2 && (count - 1) / 2 < below + equal) return values[i];
    }
    return 0.0;
}

void tw_robust_clipped_ref(float *out, const float *const *x, uint32_t count, size_t n) {
    tw_robust_median_ref(out, x, count, n);
    for (unsigned round = 0; round < TW_ROBUST_ROUNDS; round++) {
        double distances[TW_ROBUST_MAX];
        for (uint32_t i = 0; i < count; i++)
            distances[i] = sqrt(tw_distance_squared_ref(x[i], out, n));
        const double radius = TW_ROBUST_RADIUS * lower_median(distances, count);
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (uint32_t i = 0; i < count; i++) {
                const double away = (double)x[i][j] - (double)out[j];
                sum += (distances[i] > radius ? radius / distances[i] : 1.0) * away;
            }
            const float moved = (float)((double)out[j] + sum / count);
            out[j] = moved == 0.0f ? 0.0f : moved;
        }
    }
}
