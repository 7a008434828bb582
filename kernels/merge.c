/* merge.c - weights, the weighted mean, RDA, median, trimmed mean and centred clipping. */
#include "kernels/merge.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "kernels/norm.h"

/* ---- the weighted mean ---------------------------------------------------------------------- */

void tw_merge_weights_equal(float *weights, uint32_t count) {
    TW_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) weights[i] = (float)(1.0 / (double)count);
}

static double rate(uint64_t tokens, uint32_t steps) {
    return (double)tokens * ((double)tokens / (double)(steps > 0 ? steps : 1));
}

/* Sets weights in proportion to tokens^2 / steps, or to tokens if steps is NULL. Summed in the
 * given order; tokens are exact below 2^53. */
static void weigh(float *weights, const uint64_t *tokens, const uint32_t *steps, uint32_t count) {
    TW_ASSERT(count > 0);
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++)
        sum += steps == NULL ? (double)tokens[i] : rate(tokens[i], steps[i]);
    if (sum == 0.0) {
        tw_merge_weights_equal(weights, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const double share = steps == NULL ? (double)tokens[i] : rate(tokens[i], steps[i]);
        weights[i] = (float)(share / sum);
    }
}

void tw_merge_weights_tokens(float *weights, const uint64_t *tokens, uint32_t count) {
    weigh(weights, tokens, NULL, count);
}

void tw_merge_weights_rate(float *weights, const uint64_t *tokens, const uint32_t *steps,
                           uint32_t count) {
    weigh(weights, tokens, steps, count);
}

void tw_merge_add(float *restrict sum, const float *restrict x, float weight, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] = sum[i] + weight * x[i];
}

void tw_merge_weights_bound(float *weights, uint32_t count) {
    double values[TW_MEDIAN_MAX], sum = 0;
    TW_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++) values[i] = (double)weights[i];
    const double most =
        (count < 3 ? TW_CLAIM_FEW : TW_CLAIM_MEDIANS) * tw_median_low(values, count);
    if (most <= 0) return;
    bool is_bound = false;
    for (uint32_t i = 0; i < count; i++) {
        is_bound |= values[i] > most;
        if (values[i] > most) values[i] = most;
        sum += values[i];
    }
    for (uint32_t i = 0; i < count && is_bound; i++) weights[i] = (float)(values[i] / sum);
}

/* ---- directions and norms ------------------------------------------------------------------- */

void tw_rda_add(float *direction, double *rho, const float *x, float weight, size_t n) {
    const double norm = sqrt(tw_norm_squared(x, n));
    *rho += (double)weight * norm;
    /* A norm below FLT_MIN counts as zero, because weight / norm might not be finite. */
    if (norm < (double)FLT_MIN) return;
    tw_merge_add(direction, x, (float)((double)weight / norm), n);
}

void tw_rda_finish(float *restrict mean, const float *restrict direction, double rho, size_t n) {
    const double length = sqrt(tw_norm_squared(direction, n));
    if (length < TW_RDA_LEAST) return;
    const float factor = (float)(rho / length);
    for (size_t i = 0; i < n; i++) mean[i] = factor * direction[i];
}

/* ---- median, trimmed mean, centred clipping ------------------------------------------------- */

enum { LANES = 16 };

/* Values of some coordinates: one row per input, one column per coordinate. Floats are stored as
 * integers of the same order, which every compiler compares as vectors. */
struct tile {
    int32_t rows[TW_ROBUST_MAX][LANES];
};

/* Maps the bits of a float to an integer of the same order, and back. */
static int32_t key(int32_t bits) {
    return bits ^ (bits < 0 ? INT32_MAX : 0);
}

/* Loads columns [begin, begin + width) of the inputs; later columns are undefined. */
static void tile_load(struct tile *tile, const float *const *x, uint32_t count, size_t begin,
                      size_t width) {
    for (uint32_t i = 0; i < count; i++) {
        memcpy(tile->rows[i], x[i] + begin, width * sizeof(float));
        for (size_t j = 0; j < LANES; j++) tile->rows[i][j] = key(tile->rows[i][j]);
    }
}

static void exchange(int32_t *restrict low, int32_t *restrict high) {
    for (size_t j = 0; j < LANES; j++) {
        const int32_t a = low[j], b = high[j];
        low[j] = a < b ? a : b;
        high[j] = a < b ? b : a;
    }
}

/* Sorts every column in ascending order: Batcher's merge exchange, Knuth 5.2.2 M, for any count. */
static void tile_sort(struct tile *tile, uint32_t count) {
    uint32_t top = 1;
    while (top * 2 < count) top *= 2;
    for (uint32_t p = top; p > 0; p /= 2) {
        uint32_t r = 0, d = p;
        for (uint32_t q = top;; q /= 2) {
            for (uint32_t i = 0; i + d < count; i++) {
                if ((i & p) == r) exchange(tile->rows[i], tile->rows[i + d]);
            }
            if (q == p) break;
            d = q - p;
            r = p;
        }
    }
}

/* Sets out to the mean of rows [first, end) of the sorted columns. */
static void tile_mean(const struct tile *tile, uint32_t first, uint32_t end, float out[LANES]) {
    double sums[LANES] = {0};
    for (uint32_t i = first; i < end; i++) {
        int32_t bits[LANES];
        float row[LANES];
        for (size_t j = 0; j < LANES; j++) bits[j] = key(tile->rows[i][j]);
        memcpy(row, bits, sizeof(row));
        for (size_t j = 0; j < LANES; j++) sums[j] += (double)row[j];
    }
    const double rows = end - first;
    for (size_t j = 0; j < LANES; j++) out[j] = (float)(sums[j] / rows) + 0.0f; /* + 0: no -0 */
}

/* Computes the mean of the inputs ranked [first, end), per coordinate. */
static void ranked_mean(float *out, const float *const *x, uint32_t count, size_t n, uint32_t first,
                        uint32_t end) {
    TW_ASSERT(count > 0);
    TW_ASSERT(count <= TW_ROBUST_MAX);
    struct tile tile = {{{0}}};
    float means[LANES];
    for (size_t begin = 0; begin < n; begin += LANES) {
        const size_t width = n - begin < LANES ? n - begin : LANES;
        tile_load(&tile, x, count, begin, width);
        tile_sort(&tile, count);
        tile_mean(&tile, first, end, means);
        memcpy(out + begin, means, width * sizeof(float));
    }
}

void tw_robust_median(float *out, const float *const *x, uint32_t count, size_t n) {
    ranked_mean(out, x, count, n, (count - 1) / 2, count / 2 + 1);
}

void tw_robust_trimmed(float *out, const float *const *x, uint32_t count, size_t n) {
    ranked_mean(out, x, count, n, count / 4, count - count / 4);
}

/* Computes the factor min(1, radius / distance) of each input. */
static void clip_shares(double *shares, const float *centre, const float *const *x, uint32_t count,
                        size_t n) {
    double distances[TW_ROBUST_MAX];
    for (uint32_t i = 0; i < count; i++) distances[i] = sqrt(tw_distance_squared(x[i], centre, n));
    const double radius = TW_ROBUST_RADIUS * tw_median_low(distances, count);
    for (uint32_t i = 0; i < count; i++)
        shares[i] = distances[i] > radius ? radius / distances[i] : 1.0;
}

static void clip_step(float *restrict centre, const float *const *x, const double *shares,
                      uint32_t count, size_t n) {
    for (size_t begin = 0; begin < n; begin += LANES) {
        const size_t width = n - begin < LANES ? n - begin : LANES;
        double sums[LANES] = {0};
        for (uint32_t i = 0; i < count; i++) {
            const float *restrict row = x[i] + begin;
            for (size_t j = 0; j < width; j++)
                sums[j] += shares[i] * ((double)row[j] - (double)centre[begin + j]);
        }
        for (size_t j = 0; j < width; j++)
            centre[begin + j] = (float)((double)centre[begin + j] + sums[j] / count) + 0.0f;
    }
}

void tw_robust_clipped(float *out, const float *const *x, uint32_t count, size_t n) {
    double shares[TW_ROBUST_MAX];
    tw_robust_median(out, x, count, n);
    for (unsigned round = 0; round < TW_ROBUST_ROUNDS; round++) {
        clip_shares(shares, out, x, count, n);
        clip_step(out, x, shares, count, n);
    }
}

/* ---- references, one coordinate after the other --------------------------------------------- */

void tw_merge_add_ref(float *sum, const float *x, float weight, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const volatile float share = weight * x[i];
        sum[i] = sum[i] + share;
    }
}

static float merged(const float *const *x, const float *factors, uint32_t count, size_t i) {
    volatile float sum = 0.0f;
    for (uint32_t k = 0; k < count; k++) {
        if (factors[k] == 0.0f) continue;
        const volatile float share = factors[k] * x[k][i];
        sum = sum + share;
    }
    return sum;
}

void tw_rda_ref(float *out, const float *const *x, const float *weights, uint32_t count, size_t n) {
    float shares[64] = {0};
    double rho = 0.0;
    for (uint32_t k = 0; k < count; k++) {
        const double norm = sqrt(tw_norm_squared_ref(x[k], n));
        rho += (double)weights[k] * norm;
        shares[k] = norm < (double)FLT_MIN ? 0.0f : (float)((double)weights[k] / norm);
    }
    for (size_t i = 0; i < n; i++) out[i] = merged(x, shares, count, i);
    const double length = sqrt(tw_norm_squared_ref(out, n));
    const volatile float factor = (float)(rho / length);
    for (size_t i = 0; i < n; i++) {
        out[i] = length < TW_RDA_LEAST ? merged(x, weights, count, i) : factor * out[i];
    }
}

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
