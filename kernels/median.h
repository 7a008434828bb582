/* median.h - the median of a few numbers. */
#ifndef TW_KERNELS_MEDIAN_H
#define TW_KERNELS_MEDIAN_H

#include <stdint.h>

enum { TW_MEDIAN_MAX = 64 };

/* Returns the median; the lower of the two middle values if count is even. values (count): 1 to
 * TW_MEDIAN_MAX, no NaN. */
double tw_median_low(const double *values, uint32_t count);

#endif
