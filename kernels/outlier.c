/* outlier.c - finds merged results that are far larger than earlier merges of their fragment. */
#include "kernels/outlier.h"

#include <math.h>

#include "base/assert.h"
#include "kernels/median.h"
#include "kernels/norm.h"

/* Returns the first element of a block. */
static size_t block_begin(size_t block, size_t elements) {
    return (size_t)((uint64_t)elements * block / TW_OUTLIER_BLOCKS);
}

void tw_outlier_add(struct tw_outlier_sizes *sizes, const float *x, size_t begin, size_t n,
                    size_t elements) {
    TW_ASSERT(begin <= elements);
    TW_ASSERT(n <= elements - begin);
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        size_t from = block_begin(b, elements), to = block_begin(b + 1, elements);
        if (from < begin) from = begin;
        if (to > begin + n) to = begin + n;
        if (from >= to) continue;
        sizes->energy[b] += tw_norm_squared(x + (from - begin), to - from);
        sizes->count[b] += (double)(to - from);
    }
}

void tw_outlier_whole(struct tw_outlier_sizes *sizes, const double *energies, size_t elements) {
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        sizes->energy[b] = energies[b];
        sizes->count[b] = (double)(block_begin(b + 1, elements) - block_begin(b, elements));
    }
}

static double doubt_of(const struct tw_outlier *outlier) {
    return outlier->doubt > 1 ? outlier->doubt : 1;
}

void tw_outlier_note_own(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes) {
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        outlier->own[b] = sizes->count[b] > 0 ? (float)(sizes->energy[b] / sizes->count[b]) : 0;
    }
    outlier->has_own = true;
    outlier->doubt =
        2 * outlier->outliers > outlier->checked ? TW_OUTLIER_DOUBT * doubt_of(outlier) : 1;
    outlier->checked = outlier->outliers = 0;
}

void tw_outlier_note_merge(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes,
                           size_t elements) {
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        const size_t whole = block_begin(b + 1, elements) - block_begin(b, elements);
        if (sizes->count[b] == 0 || 2 * sizes->count[b] < (double)whole) continue;
        outlier->merges[b][outlier->merges_count[b]++ % TW_OUTLIER_KEPT] =
            (float)(sizes->energy[b] / sizes->count[b]);
    }
}

static double median_of(const float *energies, uint32_t count) {
    double values[TW_OUTLIER_KEPT];
    for (uint32_t i = 0; i < count; i++) values[i] = (double)energies[i];
    return tw_median_low(values, count);
}

static bool has_merges(const struct tw_outlier *outlier, size_t block) {
    return outlier->merges_count[block] >= TW_OUTLIER_LEAST;
}

/* Returns the largest energy per element with which a block is no outlier. */
static double block_limit(const struct tw_outlier *outlier, size_t block) {
    const uint32_t count = outlier->merges_count[block];
    double most = 0;
    if (has_merges(outlier, block))
        most = TW_OUTLIER_MERGES * TW_OUTLIER_MERGES *
               median_of(outlier->merges[block], count < TW_OUTLIER_KEPT ? count : TW_OUTLIER_KEPT);
    const double times = TW_OUTLIER_OWN * (has_merges(outlier, block) ? 1 : TW_OUTLIER_DOUBT);
    const double own = times * times * (double)outlier->own[block];
    return outlier->has_own && own > most ? own : most;
}

static double size_ratio(double energy, double limit) {
    return limit > 0 ? sqrt(energy / limit) : 0;
}

double tw_outlier_check(struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes) {
    double energy = 0, limit = 0;
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        if (sizes->count[b] == 0 || (!has_merges(outlier, b) && !outlier->has_own)) continue;
        energy += sizes->energy[b];
        limit += sizes->count[b] * block_limit(outlier, b);
    }
    const double ratio = size_ratio(energy, limit * doubt_of(outlier) * doubt_of(outlier));
    outlier->checked++;
    outlier->outliers += ratio > 1;
    return ratio;
}

double tw_outlier_excess(const struct tw_outlier *outlier, const struct tw_outlier_sizes *sizes) {
    double energy = 0, limit = 0;
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) {
        if (sizes->count[b] == 0 || !has_merges(outlier, b)) continue;
        energy += sizes->energy[b];
        limit += sizes->count[b] * block_limit(outlier, b);
    }
    return size_ratio(energy, limit);
}
