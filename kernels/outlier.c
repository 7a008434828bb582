/* outlier.c - finds contributions and merges that are far too large. */
#include "kernels/outlier.h"

#include <math.h>
#include <stdbool.h>

#include "base/assert.h"
#include "base/limits.h"
#include "kernels/norm.h"

/* ---- contributions of one round ------------------------------------------------------------- */

static double at_least_one(uint32_t steps) {
    return steps > 0 ? steps : 1;
}

/* Returns the usual number of steps. Sets taken (count) to the steps that each contribution counts
 * for. */
static double guard_steps(double *taken, const uint32_t *steps, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) taken[i] = at_least_one(steps[i]);
    const double usual = tw_median_low(taken, count);
    for (uint32_t i = 0; i < count; i++) taken[i] = fmin(taken[i], TW_CLAIM_MEDIANS * usual);
    return usual;
}

static void guard_sizes(double *sizes, const double *norms, const double *taken, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) sizes[i] = norms[i] / sqrt(taken[i]);
}

/* A Delta below this norm counts as zero: it may consist of rounding errors. Real Deltas have norms
 * above 1e-4. */
static const double NOTHING = 1e-6;

/* If most contributions are 0, as when a round directly follows a merge, the usual size is 0. All
 * contributions that are not 0 are then refused. */
static uint64_t refuse_all_but_zeros(const double *sizes, uint32_t count) {
    uint32_t zeros = 0;
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; i++) zeros += sizes[i] <= NOTHING;
    if (2 * zeros <= count) return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] > NOTHING) refused |= UINT64_C(1) << i;
    }
    return refused;
}

void tw_guard_scale(float *factors, const double *norms, const uint32_t *steps, uint32_t count) {
    TW_ASSERT(count > 0);
    TW_ASSERT(count <= TW_GUARD_MAX);
    double taken[TW_GUARD_MAX], sizes[TW_GUARD_MAX];
    (void)guard_steps(taken, steps, count);
    guard_sizes(sizes, norms, taken, count);
    const double usual = tw_median_low(sizes, count);
    for (uint32_t i = 0; i < count; i++) {
        const bool is_large =
            count >= TW_GUARD_LEAST && usual > NOTHING && sizes[i] > TW_GUARD_SCALED * usual;
        factors[i] = is_large ? (float)(TW_GUARD_SCALED * usual / sizes[i]) : 1.0f;
    }
}

static uint64_t guard_refuse(const double *norms, const uint32_t *steps, uint32_t count) {
    double taken[TW_GUARD_MAX], sizes[TW_GUARD_MAX];
    uint64_t refused = 0;
    if (count < TW_GUARD_LEAST) return 0;
    const double usual_steps = guard_steps(taken, steps, count);
    guard_sizes(sizes, norms, taken, count);
    const double usual = tw_median_low(sizes, count);
    if (usual <= NOTHING) return refuse_all_but_zeros(sizes, count);
    for (uint32_t i = 0; i < count; i++) {
        const double allowed = TW_GUARD_REFUSED * sqrt(fmax(taken[i] / usual_steps, 1.0));
        if (sizes[i] > allowed * usual) refused |= UINT64_C(1) << i;
    }
    return refused;
}

uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count) {
    TW_ASSERT(count > 0);
    TW_ASSERT(count <= TW_GUARD_MAX);
    double left_norms[TW_GUARD_MAX];
    uint32_t left_steps[TW_GUARD_MAX], left = 0;
    float left_factors[TW_GUARD_MAX];
    const uint64_t refused = guard_refuse(norms, steps, count);
    for (uint32_t i = 0; i < count; i++) {
        if ((refused >> i & 1) != 0) continue;
        left_norms[left] = norms[i];
        left_steps[left++] = steps[i];
    }
    tw_guard_scale(left_factors, left_norms, left_steps, left);
    left = 0;
    for (uint32_t i = 0; i < count; i++)
        factors[i] = (refused >> i & 1) != 0 ? 0.0f : left_factors[left++];
    return refused;
}

/* ---- merges --------------------------------------------------------------------------------- */

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
