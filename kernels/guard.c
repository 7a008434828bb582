/* guard.c - finds contributions that are too large and must be scaled down or left out. */
#include "kernels/guard.h"

#include <math.h>
#include <stdbool.h>

#include "base/assert.h"
#include "base/limits.h"
#include "kernels/median.h"

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
