/* fuzz_codec.c - codecs over hostile bytes: the first byte chooses the codec, the next two the
 * element count, the rest is a payload, and then floats to encode. What check accepts decodes to
 * finite values; what it refuses changes nothing; what encode makes is accepted. All forms of a
 * codec agree, and so does its reference if it has one. The mutator gives payloads of ecsq an
 * entropy coder's stream that ends where it should, which chance never finds. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "compress/codec_ref.h"
#include "compress/ecsq.h"
#include "compress/rans.h"
#include "kernels/merge.h"

enum { ELEMENTS_MAX = 10000 }; /* two blocks of any codec and a part of one */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static float *floats_new(size_t n, float value) {
    float *x = malloc((n + 1) * sizeof(*x));
    TW_ASSERT(x != NULL);
    for (size_t i = 0; i < n; i++) x[i] = value;
    return x;
}

static void assert_same(const float *x, const float *y, size_t n) {
    TW_ASSERT(memcmp(x, y, n * sizeof(*x)) == 0);
}

/* Status and values as those of the form that came first. */
static void decode_again(const struct tw_codec *codec, const uint8_t *payload, size_t bytes,
                         const float *want, enum tw_status status, size_t n) {
    float *y = floats_new(n, 1.0f), *sum = floats_new(n, 3.0f), *want_sum = floats_new(n, 3.0f);
    TW_ASSERT(codec->check(payload, bytes, n) == status);
    TW_ASSERT(codec->decode(payload, bytes, y, n) == status);
    TW_ASSERT(codec->decode_add(payload, bytes, 0.3f, sum, n) == status);
    assert_same(y, want, n);
    if (status == TW_OK) tw_merge_add(want_sum, want, 0.3f, n);
    assert_same(sum, want_sum, n);
    free(y);
    free(sum);
    free(want_sum);
}

static void decode(enum tw_codec_id id, const uint8_t *payload, size_t bytes, size_t n) {
    const char *name;
    float *x = floats_new(n, 1.0f);
    const enum tw_status status = tw_codec_get(id)->decode(payload, bytes, x, n);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT);
    for (size_t i = 0; i < n; i++) TW_ASSERT(status == TW_OK ? isfinite(x[i]) : x[i] == 1.0f);
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        decode_again(tw_codecs_form(f, &name)[id], payload, bytes, x, status, n);
    }
    if (tw_codec_has_ref(id)) {
        float *y = floats_new(n, 1.0f);
        TW_ASSERT(tw_codec_decode_ref(id, payload, bytes, y, n) == status);
        assert_same(y, x, n);
        free(y);
    }
    free(x);
}

static void encode(enum tw_codec_id id, const float *x, size_t n) {
    const char *name;
    const struct tw_codec *codec = tw_codec_get(id);
    const size_t capacity = codec->bound(n);
    size_t bytes = 0, again_bytes = 0;
    uint8_t *first = malloc(capacity + 1), *again = malloc(capacity + 1);
    TW_ASSERT(first != NULL);
    TW_ASSERT(again != NULL);
    const enum tw_status status = codec->encode(x, n, first, capacity, &bytes);
    TW_ASSERT(status == TW_OK || status == TW_CORRUPT); /* not finite, or too large to send */
    TW_ASSERT(bytes <= capacity);
    if (status == TW_OK) decode(id, first, bytes, n);
    if (status == TW_OK) TW_ASSERT(codec->check(first, bytes, n) == TW_OK);
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
    uint32_t codecs_count;
    (void)tw_codecs(&codecs_count);
    const enum tw_codec_id id = (enum tw_codec_id)(data[0] % codecs_count);
    const size_t n = tw_get_u16(data + 1) % ELEMENTS_MAX, bytes = size - 3,
                 floats_count = bytes / sizeof(float);
    decode(id, data + 3, bytes, n);
    float *floats = floats_new(floats_count, 0.0f);
    memcpy(floats, data + 3, floats_count * sizeof(float));
    encode(id, floats, floats_count);
    free(floats);
    return 0;
}

#ifdef TW_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

enum { PREFIX_BYTES = 3, CODES_MAX = 8 };

static const uint8_t limits[] = {32, 16, 8, 8, 8}; /* of ecsq4 to ecsq05 */

/* Symbols (n) of any shape, of which mostly `codes` say that a code is written out. */
static void draw_symbols(struct tw_rng *rng, uint8_t *symbols, size_t n, uint8_t limit,
                         size_t codes) {
    const uint64_t spread = 1 + tw_rng_below(rng, 2 * limit - 1u);
    for (size_t i = 0; i < n; i++) symbols[i] = (uint8_t)tw_rng_below(rng, spread);
    for (size_t i = 0; i < codes; i++) symbols[tw_rng_below(rng, n)] = (uint8_t)(2 * limit - 1);
}

/* Model, words and states of symbols (n) into `to`. The bytes; 0: one symbol alone. */
static size_t put_stream(const uint8_t *symbols, size_t n, uint8_t *to) {
    static struct tw_rans_encoder encoder;
    static uint8_t words[2 * ELEMENTS_MAX + TW_RANS_WORDS_SLACK];
    uint32_t counts[TW_RANS_SYMBOLS_MAX] = {0};
    struct tw_rans_model model;
    for (size_t i = 0; i < n; i++) counts[symbols[i]]++;
    if (!tw_rans_model_fit(&model, counts, (uint32_t)n)) return 0;
    const size_t at = tw_rans_model_encode(&model, to);
    tw_rans_encoder_init(&encoder, &model);
    const size_t bytes = tw_rans_form(0)->encode(&encoder, symbols, n, words + sizeof(words));
    tw_put_u32(to + at, (uint32_t)bytes / 2);
    tw_rans_encoder_finish(&encoder, to + at + 4);
    memcpy(to + at + 4 + TW_RANS_STATES_BYTES, words + sizeof(words) - bytes, bytes);
    return at + 4 + TW_RANS_STATES_BYTES + bytes;
}

/* The one stream of a payload of at most ELEMENTS_MAX elements, made anew behind its codes. */
static size_t repair(uint8_t *data, size_t size, size_t max_size, struct tw_rng *rng) {
    static uint8_t symbols[ELEMENTS_MAX],
        stream[TW_RANS_MODEL_BYTES_MAX + 4 + TW_RANS_STATES_BYTES + 2 * ELEMENTS_MAX];
    const size_t n = tw_get_u16(data + 1) % ELEMENTS_MAX;
    uint8_t *const scales = data + PREFIX_BYTES + TW_ECSQ_HEAD_BYTES, *const kind =
                                                                          scales +
                                                                          2 * tw_ecsq_blocks(n);
    if (size < (size_t)(kind - data) + TW_ECSQ_STREAM_HEAD_BYTES + 2 * CODES_MAX) return size;
    const uint32_t active = tw_ecsq_active(scales, n, 0, tw_ecsq_blocks(n));
    if (active == 0) return size;
    const size_t codes = tw_rng_below(rng, CODES_MAX + 1);
    kind[0] = TW_ECSQ_CODED;
    tw_put_u32(kind + 1, (uint32_t)codes);
    draw_symbols(rng, symbols, active, limits[data[0] - TW_CODEC_ECSQ4], codes);
    const size_t bytes = put_stream(symbols, active, stream);
    uint8_t *const to = kind + TW_ECSQ_STREAM_HEAD_BYTES + 2 * codes;
    if (bytes == 0 || bytes > max_size - (size_t)(to - data)) return size;
    memcpy(to, stream, bytes);
    return (size_t)(to - data) + bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < PREFIX_BYTES || tw_rng_below(&rng, 4) == 0) return size;
    if (data[0] < TW_CODEC_ECSQ4 || data[0] > TW_CODEC_ECSQ05) return size;
    return repair(data, size, max_size, &rng);
}

#endif
