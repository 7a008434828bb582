/* fuzz_lattice.c - another node's anchor from hostile bytes: the first two bytes are the element
 * count, the third the distance of our own anchor. The fast and the plain decoder agree, and
 * accepted values are finite. The mutator repairs the element count and the checksums. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "compress/lattice.h"

enum { PREFIX_BYTES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static float near_of(size_t i, uint8_t scale) {
    return ldexpf((float)i - 7.5f, (int8_t)scale / 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < PREFIX_BYTES) return 0;
    const size_t n = tw_get_u16(data), bytes = size - PREFIX_BYTES;
    float *near = malloc(n * sizeof(*near)), *x = malloc(n * sizeof(*x));
    float *y = malloc(n * sizeof(*y));
    TW_ASSERT(n == 0 || (near != NULL && x != NULL && y != NULL));
    const enum tw_status checked = tw_lattice_check(data + PREFIX_BYTES, bytes, n);
    for (size_t i = 0; checked == TW_OK && i < n; i++) near[i] = near_of(i, data[2]);
    const enum tw_status status = tw_lattice_decode(data + PREFIX_BYTES, bytes, near, x, n);
    TW_ASSERT(checked == TW_OK ? status != TW_CORRUPT : status == TW_CORRUPT);
    TW_ASSERT(tw_lattice_decode_ref(data + PREFIX_BYTES, bytes, near, y, n) == status);
    if (status == TW_OK) TW_ASSERT(n == 0 || memcmp(x, y, n * sizeof(*x)) == 0);
    for (size_t i = 0; status == TW_OK && i < n; i++) TW_ASSERT(isfinite(x[i]));
    free(near);
    free(x);
    free(y);
    return 0;
}

#ifdef TW_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Returns the checksum that an honest sender would compute for the block [begin, end). */
static uint16_t sum_of(const uint8_t *data, const uint8_t *codes, size_t begin, size_t end) {
    const double step = ldexp(1.0, (int8_t)data[PREFIX_BYTES + 1]);
    uint32_t sum = 0;
    for (size_t i = begin; i < end; i++) {
        const double own = (double)near_of(i, data[2]) / step;
        if (!(fabs(own) < 0x1p30)) return 0;
        const int64_t least = llrint(own) - 128;
        const int64_t k = least + (uint8_t)(codes[i] - (uint8_t)((uint64_t)least & 0xFF));
        sum += (uint32_t)((uint64_t)k >> 8 & 0xFFFFFF) * tw_lattice_factor(i - begin);
    }
    return (uint16_t)sum;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    size = LLVMFuzzerMutate(data, size, max_size);
    uint8_t *const body = data + PREFIX_BYTES + TW_LATTICE_HEAD_BYTES;
    if (size < PREFIX_BYTES + TW_LATTICE_HEAD_BYTES || tw_rng_below(&rng, 8) == 0) return size;
    const size_t bytes = size - PREFIX_BYTES - TW_LATTICE_HEAD_BYTES,
                 blocks = (bytes + TW_LATTICE_BLOCK + 1) / (TW_LATTICE_BLOCK + 2);
    if (bytes > UINT16_MAX || bytes < 3 * blocks) return size;
    memset(data + PREFIX_BYTES + 2, 0, TW_LATTICE_HEAD_BYTES - 2);
    if (data[PREFIX_BYTES] == TW_LATTICE_WHOLE) {
        data[PREFIX_BYTES + 1] = 0;
        tw_put_u16(data, (uint16_t)(bytes / sizeof(float)));
        return size - bytes % sizeof(float);
    }
    const size_t n = bytes - 2 * blocks;
    tw_put_u16(data, (uint16_t)n);
    data[PREFIX_BYTES] = TW_LATTICE_CODES;
    for (size_t b = 0; b < blocks; b++) {
        const size_t begin = b * TW_LATTICE_BLOCK, left = n - begin,
                     count = left < TW_LATTICE_BLOCK ? left : TW_LATTICE_BLOCK;
        tw_put_u16(body + 2 * b, sum_of(data, body + 2 * blocks, begin, begin + count));
    }
    return size;
}

#endif
