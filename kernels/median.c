#include "kernels/median.h"

#include "base/assert.h"

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
