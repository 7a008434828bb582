/* fuzz_lattice.c - anchors of another node over hostile bytes: the first two bytes are the element
 * count, the third says how near our own anchor is. Fast and slow decoder agree; what is accepted
 * is finite. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "compress/lattice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const size_t n = tw_get_u16(data), bytes = size - 3;
    float *near = malloc((n + 1) * sizeof(*near)), *x = malloc((n + 1) * sizeof(*x));
    float *y = malloc((n + 1) * sizeof(*y));
    TW_ASSERT(near != NULL && x != NULL && y != NULL);
    for (size_t i = 0; i < n; i++) near[i] = ldexpf((float)i - 7.5f, (int8_t)data[2] / 2);
    const enum tw_status status = tw_lattice_decode(data + 3, bytes, near, x, n);
    const enum tw_status checked = tw_lattice_check(data + 3, bytes, n);
    TW_ASSERT(checked == TW_OK ? status != TW_CORRUPT : status == TW_CORRUPT);
    TW_ASSERT(tw_lattice_decode_ref(data + 3, bytes, near, y, n) == status);
    if (status == TW_OK) TW_ASSERT(n == 0 || memcmp(x, y, n * sizeof(*x)) == 0);
    for (size_t i = 0; status == TW_OK && i < n; i++) TW_ASSERT(isfinite(x[i]));
    free(near);
    free(x);
    free(y);
    return 0;
}
