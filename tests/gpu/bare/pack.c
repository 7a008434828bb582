/* pack.c - compress/pack.h on a machine without zstd: packs a fragment's state uncompressed. Only a
 * bench reads such a state; nodes of a run need zstd. */
#include "compress/pack.h"

#include <string.h>

struct tw_packer {
    size_t elements_max, u_bytes;
};

static struct tw_packer only;

enum tw_status tw_packer_create(struct tw_packer **packer_out, size_t elements_max,
                                enum tw_momentum momentum, struct tw_error *err) {
    (void)err;
    only.elements_max = elements_max;
    only.u_bytes = (size_t)tw_momentum_bytes(momentum);
    *packer_out = &only;
    return TW_OK;
}

void tw_packer_destroy(struct tw_packer *packer) {
    (void)packer;
}

size_t tw_pack_bound(size_t n) {
    return 2 * n * sizeof(float);
}

enum tw_status tw_pack(struct tw_packer *packer, const float *phi, const void *u, size_t n,
                       uint8_t *dst, size_t capacity, size_t *bytes_out, struct tw_error *err) {
    const size_t bytes = n * sizeof(float), u_bytes = n * packer->u_bytes;
    if (n > packer->elements_max || capacity < bytes + u_bytes) {
        return tw_fail(err, TW_LIMIT, "%zu elements do not fit %zu bytes", n, capacity);
    }
    memcpy(dst, phi, bytes);
    memcpy(dst + bytes, u, u_bytes);
    *bytes_out = bytes + u_bytes;
    return TW_OK;
}

enum tw_status tw_unpack(struct tw_packer *packer, const uint8_t *src, size_t bytes, float *phi,
                         void *u, size_t n, struct tw_error *err) {
    const size_t phi_bytes = n * sizeof(float), u_bytes = n * packer->u_bytes;
    if (n > packer->elements_max || bytes != phi_bytes + u_bytes) {
        return tw_fail(err, TW_CORRUPT, "%zu bytes are no state of %zu elements", bytes, n);
    }
    memcpy(phi, src, phi_bytes);
    memcpy(u, src + phi_bytes, u_bytes);
    return TW_OK;
}
