/* robust.c - sorts LANES coordinates at a time by a sorting network, whose comparisons vectorise.
 */
#include "kernels/robust.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/median.h"
#include "kernels/norm.h"

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
