/* pack.c - lossless compression of a fragment's (phi, u). */
#include "compress/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/assert.h"
#include "base/bytes.h"

enum {
    PLANES = 4,          /* bytes of a float, each in its own plane, most significant first */
    FRAMES = 2 * PLANES, /* phi, then u; frames beyond the bytes of u have 0 bytes */
    HEADER_BYTES = 16 + 4 * FRAMES,
    VERSION = 1,
    LEVEL = 1, /* zstd level; higher levels gain nothing, because mantissa bytes are noise */
};

static const char magic[4] = {'T', 'W', 'P', 'K'};

struct tw_packer {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    size_t elements_max;
    unsigned u_planes; /* bytes of an element of u */
    uint8_t *plane;    /* (elements_max) */
};

enum tw_status tw_packer_create(struct tw_packer **packer_out, size_t elements_max,
                                enum tw_momentum momentum, struct tw_error *err) {
    TW_ASSERT(elements_max > 0);
    struct tw_packer *packer = calloc(1, sizeof(*packer));
    if (packer != NULL) {
        packer->elements_max = elements_max;
        packer->u_planes = (unsigned)tw_momentum_bytes(momentum);
        TW_ASSERT(packer->u_planes <= PLANES);
        packer->compress = ZSTD_createCCtx();
        packer->decompress = ZSTD_createDCtx();
        packer->plane = malloc(elements_max);
    }
    if (packer == NULL || packer->compress == NULL || packer->decompress == NULL ||
        packer->plane == NULL) {
        tw_packer_destroy(packer);
        return tw_fail(err, TW_NOMEM, "no memory to pack fragments of %zu elements", elements_max);
    }
    *packer_out = packer;
    return TW_OK;
}

void tw_packer_destroy(struct tw_packer *packer) {
    if (packer == NULL) return;
    (void)ZSTD_freeCCtx(packer->compress);
    (void)ZSTD_freeDCtx(packer->decompress);
    free(packer->plane);
    free(packer);
}

size_t tw_pack_bound(size_t n) {
    return HEADER_BYTES + FRAMES * ZSTD_compressBound(n);
}

/* Rotates the sign to the lowest bit, so that the first plane contains only the exponent. */
static uint32_t rotated(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits << 1 | bits >> 31;
}

static void take_plane(uint8_t *restrict plane, const float *restrict x, size_t n, unsigned p) {
    const unsigned shift = 24 - 8 * p;
    for (size_t i = 0; i < n; i++) plane[i] = (uint8_t)(rotated(x[i]) >> shift);
}

/* As take_plane, of bf16: plane 0 is the exponent. */
static void take_half(uint8_t *restrict plane, const uint16_t *restrict x, size_t n, unsigned p) {
    const unsigned shift = 8 - 8 * p;
    for (size_t i = 0; i < n; i++) {
        const unsigned bits = x[i];
        plane[i] = (uint8_t)((bits << 1 | bits >> 15) >> shift);
    }
}

/* As give_plane, of bf16. */
static void give_half(uint16_t *restrict x, const uint8_t *restrict plane, size_t n, unsigned p) {
    for (size_t i = 0; i < n; i++) {
        if (p == 0) {
            x[i] = plane[i];
            continue;
        }
        const unsigned bits = (unsigned)x[i] << 8 | plane[i];
        x[i] = (uint16_t)(bits >> 1 | bits << 15);
    }
}

/* Adds the next plane to x. Planes arrive most significant first, so each shifts the earlier ones
 * up. */
static void give_plane(float *restrict x, const uint8_t *restrict plane, size_t n, unsigned p) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        if (p > 0) memcpy(&bits, x + i, sizeof(bits));
        bits = bits << 8 | plane[i];
        if (p == PLANES - 1) bits = bits >> 1 | bits << 31;
        memcpy(x + i, &bits, sizeof(bits));
    }
}

/* A value is infinite or NaN if all its exponent bits are set. */
static int is_finite(const float *x, size_t n) {
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7FFFFFFFu;
        max = bits > max ? bits : max;
    }
    return max < 0x7F800000u;
}

static int is_half_finite(const uint16_t *x, size_t n) {
    unsigned max = 0;
    for (size_t i = 0; i < n; i++) max = (x[i] & 0x7FFFu) > max ? x[i] & 0x7FFFu : max;
    return max < 0x7F80u;
}

static int is_u_finite(const struct tw_packer *packer, const void *u, size_t n) {
    if (packer->u_planes == PLANES) return is_finite(u, n);
    return packer->u_planes == 0 || is_half_finite(u, n);
}

static bool is_empty_frame(const struct tw_packer *packer, unsigned f) {
    return f >= PLANES && f - PLANES >= packer->u_planes;
}

static void frame_take(struct tw_packer *packer, const float *phi, const void *u, size_t n,
                       unsigned f) {
    if (f >= PLANES && packer->u_planes < PLANES)
        take_half(packer->plane, u, n, f - PLANES);
    else
        take_plane(packer->plane, f < PLANES ? phi : u, n, f % PLANES);
}

static void frame_give(const struct tw_packer *packer, float *phi, void *u, size_t n, unsigned f) {
    if (f >= PLANES && packer->u_planes < PLANES)
        give_half(u, packer->plane, n, f - PLANES);
    else
        give_plane(f < PLANES ? phi : u, packer->plane, n, f % PLANES);
}

enum tw_status tw_pack(struct tw_packer *packer, const float *phi, const void *u, size_t n,
                       uint8_t *dst, size_t capacity, size_t *bytes_out, struct tw_error *err) {
    if (n > packer->elements_max) {
        return tw_fail(err, TW_LIMIT, "a fragment of %zu elements does not fit a packer for %zu", n,
                       packer->elements_max);
    }
    if (!is_finite(phi, n) || !is_u_finite(packer, u, n)) {
        return tw_fail(err, TW_CORRUPT, "anchor or momentum is not finite: it is not handed on");
    }
    if (capacity < HEADER_BYTES) return tw_fail(err, TW_LIMIT, "no room for a packed fragment");
    memcpy(dst, magic, sizeof(magic));
    tw_put_u32(dst + 4, VERSION);
    tw_put_u64(dst + 8, n);
    size_t used = HEADER_BYTES;
    for (unsigned f = 0; f < FRAMES; f++) {
        tw_put_u32(dst + 16 + 4 * f, 0);
        if (is_empty_frame(packer, f)) continue;
        frame_take(packer, phi, u, n, f);
        const size_t frame = ZSTD_compressCCtx(packer->compress, dst + used, capacity - used,
                                               packer->plane, n, LEVEL);
        if (ZSTD_isError(frame)) {
            return tw_fail(err, TW_LIMIT, "a packed fragment of %zu elements needs up to %zu bytes",
                           n, tw_pack_bound(n));
        }
        tw_put_u32(dst + 16 + 4 * f, (uint32_t)frame);
        used += frame;
    }
    TW_ASSERT(used <= capacity && used <= tw_pack_bound(n));
    *bytes_out = used;
    return TW_OK;
}

/* Decompresses exactly one frame, of exactly n bytes, into packer->plane. */
static enum tw_status unpack_frame(struct tw_packer *packer, const uint8_t *frame, size_t bytes,
                                   size_t n, struct tw_error *err) {
    if (ZSTD_getFrameContentSize(frame, bytes) != n ||
        ZSTD_findFrameCompressedSize(frame, bytes) != bytes) {
        return tw_fail(err, TW_CORRUPT, "packed state: a plane is not one frame of %zu bytes", n);
    }
    /* The output buffer has the expected size, so zstd allocates nothing, even if the frame states
     * another size. */
    const size_t got = ZSTD_decompressDCtx(packer->decompress, packer->plane, n, frame, bytes);
    if (ZSTD_isError(got) || got != n) {
        return tw_fail(err, TW_CORRUPT, "packed state: a plane does not decompress");
    }
    return TW_OK;
}

static enum tw_status check_header(const uint8_t *src, size_t bytes, size_t n,
                                   struct tw_error *err) {
    if (bytes < HEADER_BYTES || memcmp(src, magic, sizeof(magic)) != 0 ||
        tw_get_u32(src + 4) != VERSION) {
        return tw_fail(err, TW_CORRUPT, "packed state: no header of version %d", VERSION);
    }
    if (tw_get_u64(src + 8) != n) {
        return tw_fail(err, TW_CORRUPT, "packed state: made for another number of elements");
    }
    uint64_t sum = HEADER_BYTES;
    for (unsigned f = 0; f < FRAMES; f++) sum += tw_get_u32(src + 16 + 4 * f);
    if (sum != bytes) return tw_fail(err, TW_CORRUPT, "packed state: sizes do not add up");
    return TW_OK;
}

enum tw_status tw_unpack(struct tw_packer *packer, const uint8_t *src, size_t bytes, float *phi,
                         void *u, size_t n, struct tw_error *err) {
    if (n > packer->elements_max) {
        return tw_fail(err, TW_LIMIT, "a fragment of %zu elements does not fit a packer for %zu", n,
                       packer->elements_max);
    }
    TW_TRY(check_header(src, bytes, n, err));
    const uint8_t *frame = src + HEADER_BYTES;
    for (unsigned f = 0; f < FRAMES; f++) {
        const size_t frame_bytes = tw_get_u32(src + 16 + 4 * f);
        if (is_empty_frame(packer, f)) {
            if (frame_bytes == 0) continue;
            return tw_fail(err, TW_CORRUPT, "packed state: momentum of another type");
        }
        TW_TRY(unpack_frame(packer, frame, frame_bytes, n, err));
        frame_give(packer, phi, u, n, f);
        frame += frame_bytes;
    }
    if (!is_finite(phi, n) || !is_u_finite(packer, u, n)) {
        return tw_fail(err, TW_CORRUPT, "packed state: it holds values that are not finite");
    }
    return TW_OK;
}
