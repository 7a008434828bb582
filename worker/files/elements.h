/* elements.h - numbers of model files: float32, bfloat16 and float16 to float and back.
 *
 * Widening is exact; narrowing rounds to nearest, ties to even, so that what was widened comes back
 * bit for bit. Little-endian on disk, any alignment. */
#ifndef TW_WORKER_FILES_ELEMENTS_H
#define TW_WORKER_FILES_ELEMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/safetensors.h"

/* F32, BF16 and F16. */
bool tw_elements_can(enum tw_dtype dtype);

/* to (n) from n elements of `dtype`. `from` may be the upper end of `to` (the room of n floats less
 * the bytes of the elements). Returns the first place that is not finite, n when there is none. */
size_t tw_elements_load(enum tw_dtype dtype, float *to, const uint8_t *from, size_t n);

/* n elements of `dtype` from `from` (n). `to` may be `from`. Returns the first place that is not
 * finite afterwards (float16 ends at 65504), n when there is none. */
size_t tw_elements_store(enum tw_dtype dtype, uint8_t *to, const float *from, size_t n);

#endif
