/* fuzz_auto.c - auto on hostile bytes: the first three bytes are the element count, the next two a
 * target in eighths of a byte per element, the rest a payload, and also floats to encode. Accepted
 * payloads decode to finite values and have the mix of their heads; decoders refuse all others.
 * Encoded payloads are accepted, and within their target if that is possible. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "compress/codec_auto.h"
#include "kernels/merge.h"

enum { ELEMENTS_MAX = 1 << 16, HEAD = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static float *floats_new(size_t n, float value) {
    float *x = malloc(n * sizeof(*x)); /* exact size */
    TW_ASSERT(x != NULL || n == 0);
    for (size_t i = 0; i < n; i++) x[i] = value;
    return x;
}

static void assert_mix(const uint8_t *payload, size_t bytes, size_t n, enum tw_status status) {
    uint64_t mix[TW_AUTO_RUNGS], sum = 0;
    const enum tw_status mixed = tw_auto_mix(payload, bytes, n, mix);
    if (status == TW_OK) TW_ASSERT(mixed == TW_OK);
    if (mixed != TW_OK || n == 0) return;
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) sum += mix[r];
    TW_ASSERT(sum == n);
}

static void decode(const uint8_t *payload, size_t bytes, size_t n) {
    float *x = floats_new(n, 1.0f), *sum = floats_new(n, 3.0f), *want = floats_new(n, 3.0f);
    const enum tw_status status = tw_codec_auto.decode(payload, bytes, x, n);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT);
    TW_ASSERT(tw_codec_auto.check(payload, bytes, n) == status);
    TW_ASSERT(tw_codec_auto.decode_add(payload, bytes, 0.3f, sum, n) == status);
    if (status == TW_OK) {
        for (size_t i = 0; i < n; i++) TW_ASSERT(isfinite(x[i]));
        tw_merge_add(want, x, 0.3f, n);
        TW_ASSERT(memcmp(sum, want, n * sizeof(*sum)) == 0);
    }
    assert_mix(payload, bytes, n, status);
    free(x);
    free(sum);
    free(want);
}

/* Encodes n floats: the input's floats repeated, so that a few bytes of input make many cells. */
static void encode(const uint8_t *bytes, size_t floats_count, size_t n, size_t target) {
    static struct tw_auto work;
    const size_t capacity = tw_codec_auto.bound(n);
    float *x = floats_new(n, 0.0f);
    uint8_t *to = malloc(capacity);
    size_t written = 0;
    TW_ASSERT(to != NULL);
    for (size_t i = 0; i < n && floats_count > 0; i++) {
        memcpy(&x[i], bytes + i % floats_count * sizeof(float), sizeof(float));
        if (i >= floats_count) x[i] *= (float)(1 + i / floats_count % 7);
    }
    const uint64_t ends[] = {n / 9, n / 2};
    const struct tw_auto_part part = {
        .x = x, .n = n, .ends = ends, .ends_count = 2, .bytes_max = target};
    const enum tw_status status = tw_auto_encode(&work, &part, to, capacity, &written);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT);
    TW_ASSERT(written <= capacity);
    if (status == TW_OK) {
        TW_ASSERT(tw_codec_auto.check(to, written, n) == TW_OK);
        /* A block of the coarsest codec has at most 78 bytes, a piece's head 8; twice that if the
         * piece is split. */
        const size_t blocks = n / TW_AUTO_BLOCK + 1;
        TW_ASSERT(target == 0 || written <= target || written <= 4 + 160 * blocks);
        decode(to, written, n);
    }
    free(to);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) return 0;
    const size_t n = (tw_get_u16(data) | (size_t)data[2] << 16) % ELEMENTS_MAX;
    const size_t target = n * tw_get_u16(data + 3) / 8 / 1024;
    decode(data + HEAD, size - HEAD, n);
    encode(data + HEAD, (size - HEAD) / sizeof(float), n, target);
    return 0;
}
