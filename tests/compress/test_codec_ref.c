/* test_codec_ref.c - sparse codecs match their headers to the last bit: every variant encodes and
 * decodes like the plain twins. ecsq is compared here on hostile bytes only; its other tests are in
 * test_ecsq.c. Block codecs are in test_block.c. */
#include "compress/codec_ref.h"

#include "base/bytes.h"
#include "kernels/merge.h"
#include "tests/kernels/fill.h"

enum { SEED = 4660, CHUNK = 4096 };

static const enum tw_codec_id ids[] = {TW_CODEC_TOPK256, TW_CODEC_TOPK64, TW_CODEC_TOPK32,
                                       TW_CODEC_SPARSE8};
static const enum tw_codec_id ecsq_ids[] = {TW_CODEC_ECSQ4, TW_CODEC_ECSQ3, TW_CODEC_ECSQ2,
                                            TW_CODEC_ECSQ1, TW_CODEC_ECSQ05};
static const size_t sizes[] = {0, 1, 2, 15, 16, 17, 129, 4095, 4096, 4097, 9001};
static const float magnitudes[] = {1.0f, 1e-30f, 0x1p-126f, 0x1p-140f, 0x1p125f};

enum shape { ZEROS, TIES, ONE_LARGE, TAILS, NORMAL, SPARSE, CROWDED, RAMP, LATE, SHAPES };

#define EACH(array, item) for (size_t item = 0; item < sizeof(array) / sizeof((array)[0]); item++)

/* Returns a number of magnitude 1 at most. */
static float element(struct tw_rng *rng, enum shape shape, size_t i, size_t n) {
    const float unit = (float)(2.0 * tw_rng_unit(rng) - 1.0);
    const uint64_t dice = tw_rng_below(rng, 128);
    switch (shape) {
    case ZEROS: return dice % 2 == 0 ? 0.0f : -0.0f;
    case TIES: return ldexpf(dice % 2 == 0 ? 1.0f : -1.0f, -(int)(dice % 5));
    case ONE_LARGE: return i == n * 5 / 7 ? 1.0f : ldexpf(unit, -12);
    case TAILS: return copysignf(fminf(1.0f, 0.02f * powf(fabsf(unit), -0.5f)), unit);
    case NORMAL: return unit;
    case SPARSE: return dice < 3 ? unit : 0.0f;
    case CROWDED: return dice < 112 ? unit : 0.0f; /* a list is about as long as all codes */
    case RAMP: return (float)(i % CHUNK) / (float)CHUNK;
    case LATE: return i % CHUNK + 300 > CHUNK ? unit : 0.0f;
    case SHAPES: break;
    }
    fail();
    return 0.0f;
}

static float *sample_new(struct tw_rng *rng, size_t n, enum shape shape, float magnitude) {
    float *x = malloc((n > 0 ? n : 1) * sizeof(*x));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = element(rng, shape, i, n) * magnitude;
    return x;
}

/* Returns a copy of exact size, so that a sanitizer reports reads past it. */
static uint8_t *bytes_copy(const uint8_t *from, size_t bytes) {
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, from, bytes);
    return copy;
}

/* Checks that all variants agree with the twin on the status of arbitrary bytes, and on the
 * elements of accepted ones. */
static void check_decode(enum tw_codec_id id, const uint8_t *coded, size_t bytes, size_t n) {
    static const float weights[] = {1.0f, -0.3f, 0x1p-20f};
    struct tw_rng rng;
    const char *name;
    tw_rng_seed(&rng, bytes);
    float *before = fill_new(&rng, n, 1e-3f), *want = fill_copy(before, n);
    uint8_t *exact = bytes_copy(coded, bytes);
    const enum tw_status status = tw_codec_decode_ref(id, exact, bytes, want, n);
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        const struct tw_codec *codec = tw_codecs_form(f, &name)[id];
        float *y = fill_copy(before, n);
        assert_int_equal(codec->check(exact, bytes, n), status);
        assert_int_equal(codec->decode(exact, bytes, y, n), status);
        if (status == TW_OK) assert_memory_equal(y, want, n * sizeof(float));
        EACH(weights, w) {
            float *sum = fill_copy(before, n), *want_sum = fill_copy(before, n);
            tw_merge_add_ref(want_sum, want, weights[w], n);
            assert_int_equal(codec->decode_add(exact, bytes, weights[w], sum, n), status);
            if (status == TW_OK) assert_memory_equal(sum, want_sum, n * sizeof(float));
            free(sum), free(want_sum);
        }
        free(y);
    }
    free(before), free(want), free(exact);
}

/* Returns the bytes of the twin on the heap. Checks that every variant gives the same bytes, with
 * and without a residual. */
static uint8_t *check_encode(enum tw_codec_id id, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = tw_codec_get(id)->bound(n);
    uint8_t *want = malloc(capacity + 1), *coded = malloc(capacity + 1);
    float *decoded = fill_copy(x, n), *lost = fill_copy(x, n);
    const char *name;
    size_t coded_bytes;
    assert_int_equal(tw_codec_encode_ref(id, x, n, want, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    assert_int_equal(tw_codec_decode_ref(id, want, *bytes, decoded, n), TW_OK);
    for (size_t i = 0; i < n; i++) decoded[i] = x[i] - decoded[i];
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        const struct tw_codec *codec = tw_codecs_form(f, &name)[id];
        memset(coded, 0xFF, capacity); /* the old bytes must not show in the result */
        assert_int_equal(codec->encode(x, n, coded, capacity, &coded_bytes), TW_OK);
        assert_int_equal(coded_bytes, *bytes);
        assert_memory_equal(coded, want, *bytes);
        const struct tw_codec_source source = {.x = lost, .n = n, .lost = lost};
        for (size_t i = 0; i < n; i++) lost[i] = x[i];
        assert_int_equal(tw_codec_encode(codec, source, coded, capacity, &coded_bytes), TW_OK);
        assert_int_equal(coded_bytes, *bytes);
        assert_memory_equal(coded, want, *bytes);
        assert_memory_equal(lost, decoded, n * sizeof(float));
    }
    free(decoded), free(lost), free(coded);
    return want;
}

static void check_forms(enum tw_codec_id id, const float *x, size_t n) {
    size_t bytes;
    uint8_t *coded = check_encode(id, x, n, &bytes);
    check_decode(id, coded, bytes, n);
    free(coded);
}

TEST(forms_agree_with_the_headers) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(ids, c) assert_true(tw_codec_has_ref(ids[c]));
    for (int shape = 0; shape < SHAPES; shape++) EACH(magnitudes, m) EACH(sizes, s) {
            float *x = sample_new(&rng, sizes[s], (enum shape)shape, magnitudes[m]);
            EACH(ids, c) check_forms(ids[c], x, sizes[s]);
            free(x);
        }
}

/* Chunks of every shape side by side: the state of one must not affect the next. */
TEST(chunks_do_not_know_their_neighbours) {
    enum { N = 7 * CHUNK + 99 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned round = 0; round < 6; round++) {
        float *x = sample_new(&rng, N, NORMAL, 0.0f);
        for (size_t at = 0; at < N; at += CHUNK) {
            const size_t count = N - at < CHUNK ? N - at : CHUNK;
            float *chunk = sample_new(&rng, count, (enum shape)tw_rng_below(&rng, SHAPES),
                                      magnitudes[tw_rng_below(&rng, 5)]);
            memcpy(x + at, chunk, count * sizeof(float));
            free(chunk);
        }
        EACH(ids, c) check_forms(ids[c], x, N);
        free(x);
    }
}

/* Sets `count` of `elements` elements to nonzero values: the first, the last, evenly spaced, or
 * random. */
static void place(struct tw_rng *rng, float *x, size_t elements, size_t count, unsigned where) {
    for (size_t i = 0; i < elements; i++) x[i] = 0.0f;
    for (size_t i = 0; i < count; i++) {
        size_t at = where == 0 ? i : where == 1 ? elements - 1 - i : i * elements / count;
        while (where == 3 && x[at = tw_rng_below(rng, elements)] != 0.0f) continue;
        x[at] = tw_rng_below(rng, 2) == 0 ? 1.0f : -0.75f;
    }
}

/* Whether a list is used, and the parameter of its gap code, depend only on the count. */
TEST(every_count_of_elements_is_listed_alike) {
    static const size_t elements[] = {1, 2, 3, 10, 33, 100, 1000, 4095, 4096};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(elements, e) for (size_t count = 0; count <= elements[e]; count++) {
        float x[CHUNK];
        /* 2.078 * 2^r + 1/2: the mean distances at which r changes */
        const double distance = count > 0 ? (double)elements[e] / (double)count : 0.0;
        const double fraction = log2((distance - 0.5) / 2.078);
        const bool is_near = distance > 0.5 && fabs(fraction - rint(fraction)) < 0.02;
        if (elements[e] > 100 && !is_near && tw_rng_below(&rng, 40) != 0) continue;
        for (unsigned where = 0; where < 4; where++) {
            place(&rng, x, elements[e], count, where);
            check_forms(TW_CODEC_SPARSE8, x, elements[e]);
        }
    }
}

/* Among equal elements at the threshold, the first are kept, wherever the larger ones are. */
TEST(of_equal_elements_the_first_are_kept) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned round = 0; round < 60; round++) {
        float x[CHUNK];
        const size_t n = round % 3 == 0 ? CHUNK : 1 + tw_rng_below(&rng, CHUNK);
        for (size_t i = 0; i < n; i++) x[i] = i % 2 == 0 ? 1.0f : -1.0f;
        for (uint64_t larger = tw_rng_below(&rng, 300); larger > 0; larger--) {
            x[tw_rng_below(&rng, n)] = round % 2 == 0 ? 1.5f : nextafterf(1.0f, 2.0f);
        }
        EACH(ids, c) check_forms(ids[c], x, n);
    }
}

/* Damages a payload: a flipped bit, the first scale just inside or outside its range, or an invalid
 * code as the last byte. */
static void damage(struct tw_rng *rng, uint8_t *coded, size_t bytes) {
    static const uint16_t scales[] = {0x7B7F, 0x7B80, 0x7F7F, 0x7F80, 0x7FC0, 0x8000, 0};
    const uint64_t kind = tw_rng_below(rng, 4);
    if (bytes < 4 || kind == 0) return;
    if (kind == 1) tw_put_u16(coded, scales[tw_rng_below(rng, 7)]);
    if (kind == 2) coded[bytes - 1] = tw_rng_below(rng, 2) == 0 ? 0 : 0x80;
    /* Half of the flips hit the heads. */
    const size_t at = tw_rng_below(rng, tw_rng_below(rng, 2) == 0 ? bytes : 4);
    if (kind == 3) coded[at] = (uint8_t)(coded[at] ^ 1u << tw_rng_below(rng, 8));
}

static void check_hostile(struct tw_rng *rng, enum tw_codec_id id, size_t n, enum shape shape) {
    enum { MORE = 9 };
    size_t bytes;
    float *x = sample_new(rng, n, shape, 1.0f);
    uint8_t *first = check_encode(id, x, n, &bytes);
    uint8_t *coded = calloc(bytes + MORE, 1);
    memcpy(coded, first, bytes);
    damage(rng, coded, bytes);
    check_decode(id, coded, bytes, n);
    check_decode(id, coded, tw_rng_below(rng, bytes + 1), n);
    check_decode(id, coded, bytes + 1 + tw_rng_below(rng, MORE), n);
    check_decode(id, coded, bytes, n + 1);
    if (n > 0) check_decode(id, coded, bytes, n - 1);
    for (size_t i = 0; i < bytes; i++) coded[i] = (uint8_t)tw_rng_next(rng);
    check_decode(id, coded, bytes, n);
    free(x), free(first), free(coded);
}

TEST(hostile_bytes_are_seen_alike) {
    enum { TRIES = 36 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(sizes, s) for (unsigned t = 0; t < TRIES; t++) {
        const enum shape shape = (enum shape)(t % SHAPES);
        EACH(ids, c) check_hostile(&rng, ids[c], sizes[s], shape);
        EACH(ecsq_ids, c) check_hostile(&rng, ecsq_ids[c], sizes[s], shape);
    }
}

TEST(twins_refuse_the_same_values) {
    enum { N = CHUNK + 3 };
    static const size_t places[] = {0, 1, 2000, CHUNK - 1, CHUNK, N - 1};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p126f, -0x1p127f};
    float x[N] = {0};
    const char *name;
    EACH(ids, c) {
        const size_t capacity = tw_codec_get(ids[c])->bound(N);
        uint8_t *to = malloc(capacity);
        size_t bytes;
        EACH(places, p) EACH(bad, b) {
            x[places[p]] = bad[b];
            assert_int_equal(tw_codec_encode_ref(ids[c], x, N, to, capacity, &bytes), TW_CORRUPT);
            for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
                const struct tw_codec *codec = tw_codecs_form(f, &name)[ids[c]];
                assert_int_equal(codec->encode(x, N, to, capacity, &bytes), TW_CORRUPT);
            }
            x[places[p]] = nextafterf(0x1p126f, 0.0f); /* the largest value that can be sent */
            free(check_encode(ids[c], x, N, &bytes));
            x[places[p]] = 0.0f;
        }
        assert_int_equal(tw_codec_encode_ref(ids[c], x, N, to, capacity - 1, &bytes), TW_LIMIT);
        assert_int_equal(tw_codec_decode_ref(ids[c], to, capacity, x, SIZE_MAX), TW_CORRUPT);
        free(to);
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
