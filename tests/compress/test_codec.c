/* test_codec.c - codecs keep their error bounds, refuse what they must, and are bit-exact. */
#include "compress/codec.h"

#include "base/bytes.h"
#include "compress/codec_bf16.h"
#include "compress/codec_int8.h"
#include "kernels/merge.h"
#include "tests/kernels/fill.h"

enum { SEED = 5150 };

static const struct tw_codec *const codecs[] = {&tw_codec_bf16, &tw_codec_int8};
static const size_t sizes[] = {0, 1, 2, 255, 256, 257, 1024, 5000};

#define EACH(array, item) for (size_t item = 0; item < sizeof(array) / sizeof((array)[0]); item++)

/* Encodes into an exactly fitting heap block, so that a sanitizer sees a byte too many. */
static uint8_t *encoded(const struct tw_codec *codec, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    return to;
}

static void int8_error_is_at_most_half_a_scale(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const float magnitudes[] = {1.0f, 1e-6f, 1e6f, 1e30f, 0x1p125f, 1e-30f, 0x1p-120f, 0x1p-140f};
    EACH(magnitudes, m) EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, magnitudes[m] / 8.0f), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(&tw_codec_int8, x, n, &bytes);
        assert_int_equal(tw_codec_int8.decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) {
            const float scale = tw_bf16_value(tw_get_u16(coded + 2 * (i / 256)));
            const int code = (int8_t)coded[bytes - n + i];
            assert_in_range(code + 127, 0, 254);
            const double error = fabs((double)x[i] - (double)y[i]);
            assert_true(error <= (double)scale / 2.0 * (1.0 + 0x1p-15));
            assert_true((double)y[i] == (double)scale * code); /* exact */
        }
        free(x), free(y), free(coded);
    }
}

static void int8_scale_is_the_least_that_keeps_codes_in_range(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned round = 0; round < 2000; round++) {
        float x = (float)ldexp(tw_rng_unit(&rng) + 0.5, (int)tw_rng_below(&rng, 200) - 100);
        uint8_t coded[3];
        size_t bytes;
        assert_int_equal(tw_codec_int8.encode(&x, 1, coded, 3, &bytes), TW_OK);
        const uint16_t scale = tw_get_u16(coded);
        assert_true(127.0 * (double)tw_bf16_value(scale) >= (double)x * (1.0 - 0x1p-23));
        assert_true(127.0 * (double)tw_bf16_value((uint16_t)(scale - 1)) < (double)x);
    }
}

static void int8_encoder_agrees_with_the_equation(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    unsigned differing = 0, total = 0;
    EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 0.01f);
        size_t bytes, bytes_ref;
        uint8_t *coded = encoded(&tw_codec_int8, x, n, &bytes);
        uint8_t *want = malloc(tw_codec_int8.bound(n) + 1);
        assert_int_equal(tw_codec_int8_encode_ref(x, n, want, tw_codec_int8.bound(n), &bytes_ref),
                         TW_OK);
        assert_int_equal(bytes, bytes_ref);
        assert_memory_equal(coded, want, bytes - n); /* scales: exactly */
        for (size_t i = bytes - n; i < bytes; i++, total++) {
            /* The reciprocal may move a quotient across a tie, never further. */
            assert_true(abs((int8_t)coded[i] - (int8_t)want[i]) <= 1);
            differing += coded[i] != want[i];
        }
        free(x), free(coded), free(want);
    }
    assert_true(differing * 1000 <= total);
}

static void bf16_error_is_at_most_half_a_last_bit(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(sizes, s) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 1.0f), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(&tw_codec_bf16, x, n, &bytes);
        assert_int_equal(bytes, 2 * n);
        assert_int_equal(tw_codec_bf16.decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) {
            assert_true(fabs((double)x[i] - (double)y[i]) <= 0x1p-8 * fabs((double)x[i]));
        }
        free(x), free(y), free(coded);
    }
    assert_int_equal(tw_bf16_round(1.0f + 0x1p-8f), 0x3F80);            /* tie: to even */
    assert_int_equal(tw_bf16_round(1.0f + 0x1p-7f + 0x1p-8f), 0x3F82);  /* tie: to even, up */
    assert_int_equal(tw_bf16_round(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81); /* above the tie */
}

static void decode_add_has_the_bits_of_decode_then_merge(void **state) {
    (void)state;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(codecs, c) EACH(sizes, s) {
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

static void what_is_not_finite_is_not_encoded(void **state) {
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    uint32_t quiet = 0x7FFFFFFFu; /* the NaN that rounding would carry to zero */
    float x[300], carried;
    uint8_t to[1024];
    size_t bytes;
    memcpy(&carried, &quiet, sizeof(carried));
    for (size_t i = 0; i < 300; i++) x[i] = 1.0f;
    EACH(codecs, c) {
        EACH(bad, b) {
            x[299] = bad[b];
            assert_int_equal(codecs[c]->encode(x, 300, to, sizeof(to), &bytes), TW_CORRUPT);
        }
        x[299] = carried;
        assert_int_equal(codecs[c]->encode(x, 300, to, sizeof(to), &bytes), TW_CORRUPT);
        x[299] = 3.4028235e38f; /* finite, but its code would not be */
        assert_int_equal(codecs[c]->encode(x, 300, to, sizeof(to), &bytes), TW_CORRUPT);
        x[299] = 1.0f;
        assert_int_equal(codecs[c]->encode(x, 300, to, sizeof(to), &bytes), TW_OK);
        assert_int_equal(codecs[c]->encode(x, 300, to, codecs[c]->bound(300) - 1, &bytes),
                         TW_LIMIT);
    }
}

static void a_payload_of_the_wrong_size_leaves_the_output_alone(void **state) {
    (void)state;
    float x[300], y[300], kept[300];
    uint8_t coded[1024];
    size_t bytes;
    for (size_t i = 0; i < 300; i++) x[i] = kept[i] = (float)i;
    EACH(codecs, c) {
        memcpy(y, kept, sizeof(y));
        assert_int_equal(codecs[c]->encode(x, 300, coded, sizeof(coded), &bytes), TW_OK);
        for (size_t wrong = 0; wrong < bytes + 8; wrong++) {
            if (wrong == bytes) continue;
            assert_int_equal(codecs[c]->decode(coded, wrong, y, 300), TW_CORRUPT);
            assert_int_equal(codecs[c]->decode_add(coded, wrong, 1.0f, y, 300), TW_CORRUPT);
            assert_int_equal(codecs[c]->check(coded, wrong, 300), TW_CORRUPT);
        }
        assert_int_equal(codecs[c]->check(coded, bytes, SIZE_MAX), TW_CORRUPT);
        assert_memory_equal(y, kept, sizeof(y));
    }
}

static void scales_that_are_not_finite_or_negative_are_refused(void **state) {
    (void)state;
    const uint16_t bad[] = {0x7F80, 0x7FC0, 0xFF80, 0xFFFF, 0x8000, 0xBF80, 0x7B80, 0x7F7F};
    uint8_t coded[2 * 2 + 300] = {0};
    float y[300] = {0};
    memset(coded + 4, 0x80, 300); /* code -128: no encoder sends it, any decoder takes it */
    EACH(bad, b) {
        tw_put_u16(coded + 2, bad[b]);
        assert_int_equal(tw_codec_int8.check(coded, sizeof(coded), 300), TW_CORRUPT);
        assert_int_equal(tw_codec_int8.decode(coded, sizeof(coded), y, 300), TW_CORRUPT);
    }
    tw_put_u16(coded + 2, 0x7B7F); /* the largest scale that is taken */
    assert_int_equal(tw_codec_int8.decode(coded, sizeof(coded), y, 300), TW_OK);
    assert_true(isfinite(y[299]) != 0);
    assert_true(y[299] < 0.0f);
    uint8_t infinite[2] = {0x80, 0x7F};
    assert_int_equal(tw_codec_bf16.decode(infinite, 2, y, 1), TW_CORRUPT);
}

static void the_table_finds_every_codec(void **state) {
    (void)state;
    assert_string_equal(tw_codec_get(TW_CODEC_BF16)->name, "bf16");
    assert_string_equal(tw_codec_get(TW_CODEC_INT8)->name, "int8");
    assert_int_equal(tw_codec_get(TW_CODEC_INT8)->id, TW_CODEC_INT8);
}

int main(void) {
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_error_is_at_most_half_a_scale),
        cmocka_unit_test(int8_scale_is_the_least_that_keeps_codes_in_range),
        cmocka_unit_test(int8_encoder_agrees_with_the_equation),
        cmocka_unit_test(bf16_error_is_at_most_half_a_last_bit),
        cmocka_unit_test(decode_add_has_the_bits_of_decode_then_merge),
        cmocka_unit_test(what_is_not_finite_is_not_encoded),
        cmocka_unit_test(a_payload_of_the_wrong_size_leaves_the_output_alone),
        cmocka_unit_test(scales_that_are_not_finite_or_negative_are_refused),
        cmocka_unit_test(the_table_finds_every_codec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
