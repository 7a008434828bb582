/* fuzz_pack.c - unpacking of hostile bytes: the first byte is the element count. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "compress/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { ELEMENTS_MAX = 255 };
    if (size < 1) return 0;
    const size_t n = data[0];
    float phi[ELEMENTS_MAX], u[ELEMENTS_MAX];
    struct tw_packer *packer;
    TW_ASSERT(tw_packer_create(&packer, ELEMENTS_MAX, TW_MOMENTUM_FLOAT32, NULL) == TW_OK);
    if (tw_unpack(packer, data + 1, size - 1, phi, u, n, NULL) == TW_OK) {
        for (size_t i = 0; i < n; i++) TW_ASSERT(isfinite(phi[i]) && isfinite(u[i]));
    }
    tw_packer_destroy(packer);
    return 0;
}
