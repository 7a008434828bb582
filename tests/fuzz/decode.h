/* decode.h - a codec's decoder on arbitrary bytes, for fuzz targets. Payloads accepted by check
 * decode to finite values; payloads refused by check are refused by decoders too. All variants of a
 * codec agree, also with its reference if it has one. */
#ifndef TW_TESTS_FUZZ_DECODE_H
#define TW_TESTS_FUZZ_DECODE_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "compress/codec.h"
#include "compress/codec_ref.h"
#include "kernels/merge.h"

/* Returns the codec that a byte of the input selects. TW_FUZZ_CODECS=FIRST,COUNT (numbers of enum
 * tw_codec_id) restricts the choice, so that a run concentrates on a few codecs. */
static enum tw_codec_id codec_of(uint8_t byte) {
    static uint32_t first, count;
    if (count == 0) {
        const char *wanted = getenv("TW_FUZZ_CODECS");
        (void)tw_codecs(&count);
        if (wanted != NULL) {
            TW_ASSERT(sscanf(wanted, "%" SCNu32 ",%" SCNu32, &first, &count) == 2);
            TW_ASSERT(count > 0 && first + count <= TW_CODEC_AUTO + 1);
        }
    }
    const bool is_one = byte >= first && byte - first < count;
    return (enum tw_codec_id)(is_one ? byte : first + byte % count);
}

/* Allocates exactly n floats, so that a sanitizer finds writes past them. */
static float *floats_new(size_t n, float value) {
    float *x = malloc(n * sizeof(*x));
    TW_ASSERT(x != NULL || n == 0);
    for (size_t i = 0; i < n; i++) x[i] = value;
    return x;
}

static void assert_same(const float *x, const float *y, size_t n) {
    TW_ASSERT(n == 0 || memcmp(x, y, n * sizeof(*x)) == 0);
}

/* Decodes with another variant. Status and values must equal the first variant's. */
static void decode_again(const struct tw_codec *codec, const uint8_t *payload, size_t bytes,
                         const float *want, enum tw_status status, size_t n) {
    float *y = floats_new(n, 1.0f), *sum = floats_new(n, 3.0f), *want_sum = floats_new(n, 3.0f);
    TW_ASSERT(codec->check(payload, bytes, n) == status);
    TW_ASSERT(codec->decode(payload, bytes, y, n) == status);
    TW_ASSERT(codec->decode_add(payload, bytes, 0.3f, sum, n) == status);
    if (status == TW_OK) {
        tw_merge_add(want_sum, want, 0.3f, n);
        assert_same(y, want, n);
        assert_same(sum, want_sum, n);
    }
    free(y);
    free(sum);
    free(want_sum);
}

static enum tw_status decode(enum tw_codec_id id, const uint8_t *payload, size_t bytes, size_t n) {
    const char *name;
    float *x = floats_new(n, 1.0f);
    const enum tw_status status = tw_codec_get(id)->decode(payload, bytes, x, n);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT);
    for (size_t i = 0; i < n && status == TW_OK; i++) TW_ASSERT(isfinite(x[i]));
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        decode_again(tw_codecs_form(f, &name)[id], payload, bytes, x, status, n);
    }
    if (tw_codec_has_ref(id)) {
        float *y = floats_new(n, 1.0f);
        TW_ASSERT(tw_codec_decode_ref(id, payload, bytes, y, n) == status);
        if (status == TW_OK) assert_same(y, x, n);
        free(y);
    }
    free(x);
    return status;
}

#endif
