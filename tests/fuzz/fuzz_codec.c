/* fuzz_codec.c - codecs on hostile bytes: the first byte selects the codec, the next two are the
 * element count, the rest is a payload, and also floats to encode. Accepted payloads decode to
 * finite values. Encoded payloads are accepted, and their residual matches the decoded values. All
 * variants of a codec agree, also with its reference if it has one. fuzz_decode covers the half
 * that attackers reach, and is many times as fast. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "compress/codec.h"
#include "compress/codec_ref.h"
#include "tests/fuzz/decode.h"
#include "tests/fuzz/repair.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The residual is exactly x - D(x) in all variants. */
static void lose(enum tw_codec_id id, const float *x, size_t n, const uint8_t *first,
                 size_t bytes) {
    const char *name;
    const size_t capacity = tw_codec_get(id)->bound(n);
    float *want = floats_new(n, 0.0f), *lost = floats_new(n, 0.0f);
    uint8_t *again = malloc(capacity > 0 ? capacity : 1);
    TW_ASSERT(again != NULL);
    TW_ASSERT(tw_codec_get(id)->decode(first, bytes, want, n) == TW_OK);
    for (size_t i = 0; i < n; i++) want[i] = x[i] - want[i];
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        const struct tw_codec_source source = {.x = lost, .n = n, .lost = lost};
        const struct tw_codec *codec = tw_codecs_form(f, &name)[id];
        size_t again_bytes = 0;
        for (size_t i = 0; i < n; i++) lost[i] = x[i];
        TW_ASSERT(tw_codec_encode(codec, source, again, capacity, &again_bytes) == TW_OK);
        TW_ASSERT(again_bytes == bytes && memcmp(again, first, bytes) == 0);
        assert_same(lost, want, n);
    }
    free(want);
    free(lost);
    free(again);
}

static void encode(enum tw_codec_id id, const float *x, size_t n) {
    const char *name;
    const struct tw_codec *codec = tw_codec_get(id);
    const size_t capacity = codec->bound(n);
    size_t bytes = 0, again_bytes = 0;
    uint8_t *first = malloc(capacity), *again = malloc(capacity);
    TW_ASSERT(capacity == 0 || (first != NULL && again != NULL));
    const enum tw_status status = codec->encode(x, n, first, capacity, &bytes);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT); /* not finite, or too large to send */
    TW_ASSERT(bytes <= capacity);
    if (status == TW_OK) {
        TW_ASSERT(decode(id, first, bytes, n) == TW_OK);
        lose(id, x, n, first, bytes);
    }
    for (uint32_t f = 1; tw_codecs_form(f, &name) != NULL; f++) {
        const struct tw_codec *other = tw_codecs_form(f, &name)[id];
        TW_ASSERT(other->bound(n) == capacity);
        TW_ASSERT(other->encode(x, n, again, capacity, &again_bytes) == status);
        TW_ASSERT(status != TW_OK || (again_bytes == bytes && memcmp(again, first, bytes) == 0));
    }
    if (tw_codec_has_ref(id)) {
        TW_ASSERT(tw_codec_encode_ref(id, x, n, again, capacity, &again_bytes) == status);
        TW_ASSERT(status != TW_OK || (again_bytes == bytes && memcmp(again, first, bytes) == 0));
    }
    free(first);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const enum tw_codec_id id = codec_of(data[0]);
    const size_t n = tw_get_u16(data + 1) % REPAIR_ELEMENTS_MAX, bytes = size - 3,
                 floats_count = bytes / sizeof(float);
    (void)decode(id, data + 3, bytes, n);
    float *floats = floats_new(floats_count, 0.0f);
    memcpy(floats, data + 3, floats_count * sizeof(float));
    encode(id, floats, floats_count);
    free(floats);
    return 0;
}
