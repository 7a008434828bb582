/* exact.c - sends outer gradients uncompressed, as float32. */
#include "tests/bench/quality/exact.h"

#include <math.h>
#include <string.h>

static size_t bound(size_t n) {
    return n * sizeof(float);
}

static enum tw_status check(const uint8_t *src, size_t bytes, size_t n) {
    if (bytes != bound(n)) return TW_CORRUPT;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, src + i * sizeof(x), sizeof(x));
        if (!isfinite(x)) return TW_CORRUPT;
    }
    return TW_OK;
}

static enum tw_status encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                             size_t *bytes_out) {
    if (capacity < bound(n)) return TW_LIMIT;
    memcpy(dst, src, bound(n));
    *bytes_out = bound(n);
    return check(dst, bound(n), n);
}

static enum tw_status decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    if (check(src, bytes, n) != TW_OK) return TW_CORRUPT;
    memcpy(dst, src, bytes);
    return TW_OK;
}

static enum tw_status decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                 size_t n) {
    if (check(src, bytes, n) != TW_OK) return TW_CORRUPT;
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, src + i * sizeof(x), sizeof(x));
        dst[i] += weight * x;
    }
    return TW_OK;
}

const struct tw_codec exact_codec = {.name = "fp32",
                                     .id = TW_CODEC_BF16,
                                     .bound = bound,
                                     .encode = encode,
                                     .decode = decode,
                                     .decode_add = decode_add,
                                     .check = check};
