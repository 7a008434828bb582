/* rda.c - averages directions and norms separately. */
#include "kernels/rda.h"

#include <float.h>
#include <math.h>

#include "kernels/merge.h"
#include "kernels/norm.h"

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
