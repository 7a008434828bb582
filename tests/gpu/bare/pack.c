/* pack.c - compress/pack.h on a machine without zstd: packs a fragment's state uncompressed. Only a
 * bench reads such a state; nodes of a run need zstd. */
#include "compress/pack.h"

#include <string.h>

struct tw_packer {
    size_t elements_max;
};

static struct tw_packer only;

enum tw_status tw_packer_create(struct tw_packer **packer_out, size_t elements_max,
                                struct tw_error *err) {
    (void)err;
    only.elements_max = elements_max;
    *packer_out = &only;
    return TW_OK;
}

void tw_packer_destroy(struct tw_packer *packer) {
    (void)packer;
}

size_t tw_pack_bound(size_t n) {
    return 2 * n * sizeof(float);
}

enum tw_status tw_pack(struct tw_packer *packer, const float *phi, const float *u, size_t n,
                       uint8_t *dst, size_t capacity, size_t *bytes_out, struct tw_error *err) {
    const size_t bytes = n * sizeof(float);
    if (n > packer->elements_max || capacity < 2 * bytes) {
        return tw_fail(err, TW_LIMIT, "%zu elements do not fit %zu bytes", n, capacity);
    }
    memcpy(dst, phi, bytes);
    memcpy(dst + bytes, u, bytes);
    *bytes_out = 2 * bytes;
    return TW_OK;
}

enum tw_status tw_unpack(struct tw_packer *packer, const uint8_t *src, size_t bytes, float *phi,
                         float *u, size_t n, struct tw_error *err) {
    if (n > packer->elements_max || bytes != 2 * n * sizeof(float)) {
        return tw_fail(err, TW_CORRUPT, "%zu bytes are no state of %zu elements", bytes, n);
    }
    memcpy(phi, src, bytes / 2);
    memcpy(u, src + bytes / 2, bytes / 2);
    return TW_OK;
}
