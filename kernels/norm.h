/* norm.h - sums of squares, tests for finite values, and the median of a few numbers. Double
 * accumulators in a fixed order: same input, same bits on every machine. */
#ifndef TW_KERNELS_NORM_H
#define TW_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- sums ----------------------------------------------------------------------------------- */

/* Sums of squares, and tests for finite values. Double accumulators in a fixed order: same
 * input, same bits on every machine. */

/* Returns the sum of x[i]^2, which is NaN or infinity if any element is not finite. */
double tw_norm_squared(const float *x, size_t n);
double tw_norm_squared_ref(const float *x, size_t n);

/* Returns the sum of (a[i] - b[i])^2. */
double tw_distance_squared(const float *a, const float *b, size_t n);
double tw_distance_squared_ref(const float *a, const float *b, size_t n);

/* Returns whether x contains neither NaN nor infinity. */
bool tw_is_finite(const float *x, size_t n);
bool tw_is_finite_ref(const float *x, size_t n);

/* x[i] *= factor */
void tw_scale(float *x, float factor, size_t n);

/* ---- the median ----------------------------------------------------------------------------- */

/* The median of a few numbers. */

enum { TW_MEDIAN_MAX = 64 };

/* Returns the median; the lower of the two middle values if count is even. values (count): 1 to
 * TW_MEDIAN_MAX, no NaN. */
double tw_median_low(const double *values, uint32_t count);

#endif
