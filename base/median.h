/* median.h - sorts a few numbers, and finds their median. */
#ifndef TW_BASE_MEDIAN_H
#define TW_BASE_MEDIAN_H

#include <stdint.h>

/* Sorts values[count] in ascending order by insertion, for up to a few hundred values. */
static inline void tw_sort_u64(uint64_t *values, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t value = values[i];
        uint32_t at = i;
        for (; at > 0 && values[at - 1] > value; at--) values[at] = values[at - 1];
        values[at] = value;
    }
}

/* Sorts values[count] and returns the median: the upper one if count is even, 0 if count is 0. */
static inline uint64_t tw_median_u64(uint64_t *values, uint32_t count) {
    tw_sort_u64(values, count);
    return count > 0 ? values[count / 2] : 0;
}

#endif
