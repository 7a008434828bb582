/* elements.h - converts elements of model files (float32, bfloat16, float16) to float and back.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even, so a widened value converts back to
 * the same bits. Elements are little-endian and need no alignment. */
#ifndef TW_WORKER_FILES_ELEMENTS_H
#define TW_WORKER_FILES_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/safetensors.h"

/* Returns true for F32, BF16 and F16, the types that these functions convert. */
bool tw_elements_can(enum tw_dtype dtype);

/* Converts n elements of `dtype` to floats. `from` may overlap `to` if both end at the same
 * address. Returns the index of the first element that is not finite, or n. */
size_t tw_elements_load(enum tw_dtype dtype, float *to, const uint8_t *from, size_t n);

/* Converts `from` (n) to n elements of `dtype`. `to` may be `from`. Returns the index of the first
 * result that is not finite (the largest float16 is 65504), or n. */
size_t tw_elements_store(enum tw_dtype dtype, uint8_t *to, const float *from, size_t n);

#endif
