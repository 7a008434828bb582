/* test_codec.c - codecs keep their error bounds, refuse invalid input, and are bit-exact. */
#include "compress/codec.h"

#include "kernels/type.h"

#include "kernels/merge.h"
#include "proto/run/run_key.h"
#include "tests/kernels/fill.h"

enum { SEED = 5150 };

static const struct tw_codec *const *codecs; /* all codecs */
static uint32_t codecs_count;
static const size_t sizes[] = {0, 1, 2, 63, 64, 65, 255, 256, 257, 1024, 5000};

#define EACH(array, item) for (size_t item = 0; item < sizeof(array) / sizeof((array)[0]); item++)
#define EACH_CODEC(c) for (uint32_t c = 0; c < codecs_count; c++)

/* Encodes into a heap block of exact size, so that a sanitizer reports writes past it. */
static uint8_t *encoded(const struct tw_codec *codec, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    return to;
}

TEST(bf16_error_is_at_most_half_a_last_bit) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 1.0f), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(tw_codec_get(TW_CODEC_BF16), x, n, &bytes);
        assert_int_equal(bytes, 2 * n);
        assert_int_equal(tw_codec_get(TW_CODEC_BF16)->decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) {
            assert_true(fabs((double)x[i] - (double)y[i]) <= 0x1p-8 * fabs((double)x[i]));
        }
        free(x), free(y), free(coded);
    }
    assert_int_equal(tw_bf16_from_f32(1.0f + 0x1p-8f), 0x3F80);            /* tie: to even */
    assert_int_equal(tw_bf16_from_f32(1.0f + 0x1p-7f + 0x1p-8f), 0x3F82);  /* tie: to even, up */
    assert_int_equal(tw_bf16_from_f32(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81); /* above the tie */
}

TEST(decode_add_has_the_bits_of_decode_then_merge) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH_CODEC(c) EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 0.1f), *sum = fill_new(&rng, n, 0.1f);
        float *want = fill_copy(sum, n), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(codecs[c], x, n, &bytes);
        assert_int_equal(codecs[c]->decode(coded, bytes, y, n), TW_OK);
        tw_merge_add_ref(want, y, 0.3f, n);
        assert_int_equal(codecs[c]->decode_add(coded, bytes, 0.3f, sum, n), TW_OK);
        assert_memory_equal(sum, want, n * sizeof(float));
        free(x), free(sum), free(want), free(y), free(coded);
    }
}

TEST(non_finite_values_are_not_encoded) {
    enum { N = 300 };
    float bad[] = {NAN,  -NAN,         INFINITY, -INFINITY,
                   0.0f, 3.4028235e38f}; /* largest finite value, whose code would not be finite */
    const uint32_t quiet = 0x7FFFFFFFu;  /* a NaN that rounding would carry over to zero */
    float x[N];
    size_t bytes;
    memcpy(&bad[4], &quiet, sizeof(bad[4]));
    for (size_t i = 0; i < N; i++) x[i] = 1.0f;
    EACH_CODEC(c) {
        const size_t capacity = codecs[c]->bound(N);
        uint8_t *to = malloc(capacity);
        EACH(bad, b) {
            x[N - 1] = bad[b];
            assert_int_equal(codecs[c]->encode(x, N, to, capacity, &bytes), TW_CORRUPT);
        }
        x[N - 1] = 1.0f;
        assert_int_equal(codecs[c]->encode(x, N, to, capacity, &bytes), TW_OK);
        free(to);
    }
}

TEST(short_room_is_refused) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = fill_new(&rng, 300, 1.0f);
    EACH_CODEC(c) {
        const size_t capacity = codecs[c]->bound(300);
        uint8_t *to = malloc(capacity - 1); /* a sanitizer reports writes past it */
        size_t bytes;
        assert_int_equal(codecs[c]->encode(x, 300, to, capacity - 1, &bytes), TW_LIMIT);
        free(to);
    }
    free(x);
}

TEST(a_payload_of_the_wrong_size_is_refused) {
    enum { N = 300, MORE = 8 };
    float x[N], y[N] = {0};
    for (size_t i = 0; i < N; i++) x[i] = (float)i;
    EACH_CODEC(c) {
        const size_t capacity = codecs[c]->bound(N);
        uint8_t *coded = calloc(capacity + MORE, 1);
        size_t bytes;
        assert_int_equal(codecs[c]->encode(x, N, coded, capacity, &bytes), TW_OK);
        for (size_t wrong = 0; wrong < bytes + MORE; wrong++) {
            if (wrong == bytes) continue;
            uint8_t *exact = malloc(wrong > 0 ? wrong : 1);
            memcpy(exact, coded, wrong);
            assert_int_equal(codecs[c]->decode(exact, wrong, y, N), TW_CORRUPT);
            assert_int_equal(codecs[c]->decode_add(exact, wrong, 1.0f, y, N), TW_CORRUPT);
            assert_int_equal(codecs[c]->check(exact, wrong, N), TW_CORRUPT);
            free(exact);
        }
        assert_int_equal(codecs[c]->check(coded, bytes, SIZE_MAX), TW_CORRUPT);
        free(coded);
    }
}

/* For damaged payloads, decode, decode_add and check agree on acceptance, and accepted values are
 * finite. */
TEST(hostile_bytes_are_refused_or_finite) {
    enum { TRIES = 300 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH_CODEC(c) EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 0.1f), *y = fill_copy(x, n), *kept = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(codecs[c], x, n, &bytes);
        for (unsigned t = 0; t < TRIES && bytes > 0; t++) {
            const unsigned flips = 1 + (unsigned)tw_rng_below(&rng, 4);
            for (unsigned f = 0; f < flips; f++) {
                coded[tw_rng_below(&rng, bytes)] = (uint8_t)tw_rng_next(&rng);
            }
            memcpy(y, kept, n * sizeof(float));
            const enum tw_status status = codecs[c]->check(coded, bytes, n);
            assert_true(status == TW_OK || status == TW_CORRUPT);
            assert_int_equal(codecs[c]->decode_add(coded, bytes, 0.0f, y, n), status);
            for (size_t i = 0; i < n && status == TW_OK; i++) {
                assert_true(y[i] == kept[i]); /* 0 times a finite value adds nothing */
            }
            assert_int_equal(codecs[c]->decode(coded, bytes, y, n), status);
            for (size_t i = 0; i < n && status == TW_OK; i++) assert_true(isfinite(y[i]) != 0);
        }
        free(x), free(y), free(kept), free(coded);
    }
}

TEST(values_that_are_not_finite_are_refused) {
    float y = 1.0f;
    uint8_t infinite[2] = {0x80, 0x7F};
    assert_int_equal(tw_codec_get(TW_CODEC_BF16)->decode(infinite, 2, &y, 1), TW_CORRUPT);
}

TEST(every_form_has_the_same_bits) {
    const char *name;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH_CODEC(c) EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 0.1f), *y = fill_copy(x, n), *z = fill_copy(x, n);
        size_t bytes, other_bytes;
        uint8_t *coded = encoded(codecs[c], x, n, &bytes);
        assert_int_equal(codecs[c]->decode(coded, bytes, y, n), TW_OK);
        for (uint32_t f = 1; tw_codecs_form(f, &name) != NULL; f++) {
            const struct tw_codec *other = tw_codecs_form(f, &name)[c];
            uint8_t *again = encoded(other, x, n, &other_bytes);
            assert_int_equal(other_bytes, bytes);
            assert_memory_equal(again, coded, bytes);
            assert_int_equal(other->decode(coded, bytes, z, n), TW_OK);
            assert_memory_equal(z, y, n * sizeof(float));
            free(again);
        }
        free(x), free(y), free(z), free(coded);
    }
    assert_ptr_equal(tw_codecs_form(0, &name), codecs);
}

/* Shapes of arrays that are difficult for some codec. */
enum { SHAPES = 6 };
static float *shape_new(struct tw_rng *rng, size_t n, unsigned shape) {
    float *x = fill_new(rng, n, 1e-3f);
    for (size_t i = 0; i < n; i++) {
        switch (shape) {
        case 0: break;                                          /* normal */
        case 1: x[i] = i == n / 2 ? -7.0f : 0.0f; break;        /* a single element */
        case 2: x[i] = i == n / 2 ? 7.0f : 1e-3f * x[i]; break; /* one far above the others */
        case 3: x[i] = 0.25f; break;
        case 4: x[i] = i % 2 == 0 ? 3e-7f : -3e-7f; break;
        default: x[i] = ldexpf(x[i], (int)tw_rng_below(rng, 20)); break;
        }
    }
    return x;
}

/* The condition for error feedback to work: || x - D(x) || < || x ||. */
TEST(less_is_lost_than_was_there) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH_CODEC(c) EACH(sizes, s) for (unsigned shape = 0; shape < SHAPES; shape++) {
        const size_t n = sizes[s];
        if (n == 0) continue;
        float *x = shape_new(&rng, n, shape), *y = fill_copy(x, n);
        double lost = 0.0, size = 0.0;
        size_t bytes;
        uint8_t *coded = encoded(codecs[c], x, n, &bytes);
        assert_int_equal(codecs[c]->decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) {
            lost += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
            size += (double)x[i] * (double)x[i];
        }
        if (!(lost < size)) {
            fail_msg("%s loses %.3g of %.3g: %zu elements of shape %u", codecs[c]->name, lost, size,
                     n, shape);
        }
        free(x), free(y), free(coded);
    }
}

/* With a residual, all variants give the bytes of encode and exactly the residual x - D(x). */
TEST(residuals_are_those_of_decoding) {
    const char *name;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH_CODEC(c) EACH(sizes, s) for (unsigned shape = 0; shape < SHAPES + 2; shape++) {
        const size_t n = sizes[s];
        float *x = shape_new(&rng, n, shape), *want = fill_copy(x, n), *lost = fill_copy(x, n);
        for (size_t i = 0; shape == SHAPES && i < n; i++) x[i] = i % 3 == 0 ? -0.0f : 0.0f;
        for (size_t i = 0; shape > SHAPES && i < n; i++) x[i] *= 1e-40f;
        size_t bytes, again_bytes;
        uint8_t *coded = encoded(codecs[c], x, n, &bytes), *again = malloc(codecs[c]->bound(n) + 1);
        assert_int_equal(codecs[c]->decode(coded, bytes, want, n), TW_OK);
        for (size_t i = 0; i < n; i++) want[i] = x[i] - want[i];
        for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
            const struct tw_codec *codec = tw_codecs_form(f, &name)[c];
            const struct tw_codec_source source = {.x = lost, .n = n, .lost = lost};
            for (size_t i = 0; i < n; i++) lost[i] = x[i];
            assert_int_equal(tw_codec_encode(codec, source, again, codec->bound(n), &again_bytes),
                             TW_OK);
            assert_int_equal(again_bytes, bytes);
            assert_memory_equal(again, coded, bytes);
            if (memcmp(lost, want, n * sizeof(float)) != 0)
                fail_msg("%s, %s: %zu elements of shape %u", codec->name, name, n, shape);
        }
        free(x), free(want), free(lost), free(coded), free(again);
    }
}

TEST(nothing_decodes_to_nothing) {
    const float zeros[5000] = {0};
    EACH_CODEC(c) EACH(sizes, s) {
        const size_t n = sizes[s];
        float y[5000];
        size_t bytes;
        for (size_t i = 0; i < n; i++) y[i] = 1.0f;
        uint8_t *coded = encoded(codecs[c], zeros, n, &bytes);
        assert_int_equal(codecs[c]->decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) assert_true(y[i] == 0.0f);
        free(coded);
    }
}

TEST(bounds_grow_with_the_array) {
    EACH_CODEC(c) {
        assert_int_equal(codecs[c]->bound(0), 0);
        for (size_t n = 1; n < 10000; n++) {
            assert_true(codecs[c]->bound(n) >= codecs[c]->bound(n - 1));
        }
        assert_true(codecs[c]->bound(1 << 20) <= (size_t)8 << 20);
    }
}

TEST(every_word_of_the_manifest_is_a_codec) {
    const struct tw_run_key *key = tw_run_key_find("sync.codec");
    assert_int_equal(key->max + 1, codecs_count);
    EACH_CODEC(c) {
        assert_string_equal(codecs[c]->name, key->names[c]);
        assert_int_equal(codecs[c]->id, c);
        assert_ptr_equal(tw_codec_get((enum tw_codec_id)c), codecs[c]);
        assert_true(codecs[c]->bits > 0.0 && codecs[c]->bits <= 32.0);
        assert_int_equal(codecs[c]->needs_feedback, tw_run_needs_feedback((enum tw_codec_id)c));
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    codecs = tw_codecs(&codecs_count);
    return test_run(NULL, NULL);
}
