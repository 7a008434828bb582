/* guard.c - see guard.h. */
#include "kernels/guard.h"

#include <math.h>

#include "base/assert.h"
#include "kernels/median.h"

static double at_least_one(uint32_t steps) {
    return steps > 0 ? steps : 1;
}

static void guard_sizes(double *sizes, const double *norms, const uint32_t *steps, uint32_t count) {
    double taken[TW_GUARD_MAX];
    for (uint32_t i = 0; i < count; i++) taken[i] = at_least_one(steps[i]);
    const double most = TW_GUARD_STEPS * tw_median_low(taken, count);
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = norms[i] / sqrt(taken[i] < most ? taken[i] : most);
}

/* With most contributions exactly 0, as when a round follows a merge at once, nothing else is
 * usual. */
static uint64_t refuse_all_but_zeros(float *factors, const double *sizes, uint32_t count) {
    uint32_t zeros = 0;
    uint64_t refused = 0;
    for (uint32_t i = 0; i < count; i++) zeros += sizes[i] == 0.0;
    if (2 * zeros <= count) return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] == 0.0) continue;
        factors[i] = 0.0f;
        refused |= UINT64_C(1) << i;
    }
    return refused;
}

uint64_t tw_guard(float *factors, const double *norms, const uint32_t *steps, uint32_t count) {
    TW_ASSERT(count > 0);
    TW_ASSERT(count <= TW_GUARD_MAX);
    double sizes[TW_GUARD_MAX];
    uint64_t refused = 0;
    guard_sizes(sizes, norms, steps, count);
    const double usual = tw_median_low(sizes, count);
    for (uint32_t i = 0; i < count; i++) factors[i] = 1.0f;
    if (count < TW_GUARD_LEAST) return 0;
    if (usual == 0.0) return refuse_all_but_zeros(factors, sizes, count);
    for (uint32_t i = 0; i < count; i++) {
        if (sizes[i] > TW_GUARD_REFUSED * usual) {
            factors[i] = 0.0f;
            refused |= UINT64_C(1) << i;
        } else if (sizes[i] > TW_GUARD_SCALED * usual) {
            factors[i] = (float)(TW_GUARD_SCALED * usual / sizes[i]);
        }
    }
    return refused;
}
