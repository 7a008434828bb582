/* test_block.c - block codecs match their equations to the last bit, keep their error bounds, and
 * accept no payload that decodes to non-finite values. */
#include "compress/codec_row.h"

#include "compress/codec_ref.h"
#include "tests/kernels/fill.h"

enum { SEED = 5151 };

static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 255, 256, 257, 1024, 5000};
static const float magnitudes[] = {1.0f,   1e-6f,    1e6f,      1e30f,     0x1p125f,
                                   1e-30f, 0x1p-99f, 0x1p-120f, 0x1p-126f, 0x1p-140f};

#define EACH(array, item) for (size_t item = 0; item < sizeof(array) / sizeof((array)[0]); item++)

static const struct {
    enum tw_codec_id id;
    size_t block, code_bytes;
    uint16_t scale_end; /* bf16 */
    double top;         /* largest level; 0: the scale is an average */
} formats[] = {
    {TW_CODEC_INT8, 256, 256, 0x7B80, 127},
    {TW_CODEC_INT4, 64, 32, 0x7D80, 7},
    {TW_CODEC_E3M0, 64, 32, 0x7F00, 1},
    {TW_CODEC_SIGN, 256, 32, 0x7F00, 0},
};

static uint8_t *encoded(const struct tw_codec *codec, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_int_equal(*bytes, capacity); /* a fixed rate */
    return to;
}

/* Normally distributed numbers mixed with zeros, equal values, half levels and single huge values.
 */
static float *sample_new(struct tw_rng *rng, size_t n, float magnitude) {
    float *x = fill_new(rng, n, magnitude / 8.0f);
    for (size_t i = 0; i < n; i++) {
        switch (tw_rng_below(rng, 16)) {
        case 0: x[i] = 0.0f; break;
        case 1: x[i] = -0.0f; break;
        case 2: x[i] = magnitude / 8.0f; break;
        case 3: x[i] = ldexpf(copysignf(magnitude, x[i]), -(int)tw_rng_below(rng, 12)); break;
        case 4: x[i] *= 0x1p-30f; break;
        default: break;
        }
    }
    return x;
}

/* Asserts that every variant encodes and decodes like the reference. */
static void check_forms(enum tw_codec_id id, const float *x, size_t n) {
    const size_t capacity = tw_codec_get(id)->bound(n);
    float *y = fill_copy(x, n), *want = fill_copy(x, n);
    uint8_t *wanted = malloc(capacity + 1);
    size_t bytes, wanted_bytes;
    const char *name;
    assert_int_equal(tw_codec_encode_ref(id, x, n, wanted, capacity, &wanted_bytes), TW_OK);
    assert_int_equal(tw_codec_decode_ref(id, wanted, wanted_bytes, want, n), TW_OK);
    for (uint32_t i = 0; tw_codecs_form(i, &name) != NULL; i++) {
        const struct tw_codec *codec = tw_codecs_form(i, &name)[id];
        uint8_t *coded = encoded(codec, x, n, &bytes);
        assert_int_equal(bytes, wanted_bytes);
        assert_memory_equal(coded, wanted, bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        assert_memory_equal(y, want, n * sizeof(float));
        free(coded);
    }
    free(y), free(want), free(wanted);
}

TEST(forms_agree_with_the_equations) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) EACH(magnitudes, m) EACH(sizes, s) {
        float *x = sample_new(&rng, sizes[s], magnitudes[m]);
        assert_true(tw_codec_has_ref(formats[f].id));
        check_forms(formats[f].id, x, sizes[s]);
        free(x);
    }
    assert_false(tw_codec_has_ref(TW_CODEC_BF16));
}

/* Variants encode several blocks at once, so huge blocks are placed next to tiny ones and zeros. */
TEST(blocks_do_not_know_their_neighbours) {
    enum { N = 5000 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) for (unsigned round = 0; round < 20; round++) {
        float *x = sample_new(&rng, N, 1.0f);
        for (size_t b = 0; b < N; b += formats[f].block) {
            const uint64_t m = tw_rng_below(&rng, sizeof(magnitudes) / sizeof(magnitudes[0]) + 1);
            const float by = m > 0 ? magnitudes[m - 1] : 0.0f;
            for (size_t i = b; i < N && i < b + formats[f].block; i++) x[i] *= by;
        }
        check_forms(formats[f].id, x, N);
        free(x);
    }
}

TEST(one_bad_element_of_any_block_is_refused) {
    enum { N = 5 * 256 + 7 };
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 0x1p126f, -0x1p127f};
    float x[N] = {0};
    uint8_t coded[2 * N];
    size_t bytes;
    const char *name;
    EACH(formats, f) for (uint32_t i = 0; tw_codecs_form(i, &name) != NULL; i++) {
        const struct tw_codec *codec = tw_codecs_form(i, &name)[formats[f].id];
        for (size_t at = 0; at < N; at++) {
            x[at] = bad[at % 6];
            assert_int_equal(codec->encode(x, N, coded, sizeof(coded), &bytes), TW_CORRUPT);
            x[at] = 0.0f;
        }
        assert_int_equal(codec->encode(x, N, coded, sizeof(coded), &bytes), TW_OK);
    }
}

/* Midpoints between levels and the adjacent floats, for blocks of scale 1 and other scales. */
TEST(floats_beside_middles_agree_with_the_equations) {
    enum { N = 64 };
    float x[N];
    for (int e = -140; e < 126; e++) EACH(formats, f) {
            for (size_t i = 0; i < N; i++) {
                const float middle = formats[f].id == TW_CODEC_E3M0
                                         ? ldexpf(1.5f, -(int)(i / 4) / 2)
                                         : (float)((int)(i / 4) - 8) + 0.5f;
                x[i] = i % 4 == 0 ? middle
                                  : nextafterf(middle, i % 4 == 1 ? -2.0f * middle : INFINITY);
                x[i] = ldexpf(i % 4 == 3 ? -middle : x[i], e < 120 ? e : 120);
            }
            if (formats[f].top > 0) x[0] = ldexpf((float)formats[f].top, e < 118 ? e : 118);
            check_forms(formats[f].id, x, N);
        }
}

/* For arbitrary bytes, the reference and all variants agree on acceptance and values. */
TEST(forms_agree_on_hostile_bytes) {
    enum { TRIES = 40 };
    struct tw_rng rng;
    const char *name;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) EACH(sizes, s) for (unsigned t = 0; t < TRIES; t++) {
        const enum tw_codec_id id = formats[f].id;
        const size_t n = sizes[s], bytes = tw_codec_get(id)->bound(n);
        float *y = fill_new(&rng, n, 1.0f), *want = fill_copy(y, n);
        uint8_t *coded = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++) coded[i] = (uint8_t)tw_rng_next(&rng);
        const size_t blocks = (n + formats[f].block - 1) / formats[f].block;
        for (size_t b = 0; b < blocks && t % 4 != 0; b++) coded[2 * b + 1] &= 0x7B; /* plausible */
        if (t % 4 > 1 && bytes > 0) memset(coded + 2 * blocks, 0, bytes - 2 * blocks);
        const enum tw_status status = tw_codec_decode_ref(id, coded, bytes, want, n);
        for (uint32_t i = 0; tw_codecs_form(i, &name) != NULL; i++) {
            const struct tw_codec *codec = tw_codecs_form(i, &name)[id];
            assert_int_equal(codec->check(coded, bytes, n), status);
            assert_int_equal(codec->decode(coded, bytes, y, n), status);
            if (status == TW_OK) assert_memory_equal(y, want, n * sizeof(float));
        }
        free(y), free(want), free(coded);
    }
}

TEST(integers_err_by_at_most_half_a_scale) {
    const enum tw_codec_id integers[] = {TW_CODEC_INT8, TW_CODEC_INT4};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(integers, c) EACH(magnitudes, m) EACH(sizes, s) {
        const struct tw_codec *codec = tw_codec_get(integers[c]);
        const size_t n = sizes[s], block = integers[c] == TW_CODEC_INT8 ? 256 : 64;
        const int top = integers[c] == TW_CODEC_INT8 ? 127 : 7;
        float *x = sample_new(&rng, n, magnitudes[m]), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(codec, x, n, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) {
            const double scale = (double)tw_bf16_to_f32(tw_get_u16(coded + 2 * (i / block)));
            const double code = scale > 0.0 ? (double)y[i] / scale : 0.0;
            assert_true(code == rint(code) && fabs(code) <= top); /* exact */
            assert_true(fabs((double)x[i] - (double)y[i]) <= scale / 2.0 * (1.0 + 0x1p-15));
        }
        free(x), free(y), free(coded);
    }
}

TEST(scales_are_the_least_that_reach_the_maximum) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) for (unsigned round = 0; round < 2000; round++) {
        const struct tw_codec *codec = tw_codec_get(formats[f].id);
        const double top = formats[f].top;
        const float x = (float)ldexp(tw_rng_unit(&rng) + 0.5, (int)tw_rng_below(&rng, 200) - 100);
        uint8_t coded[34];
        size_t bytes;
        if (top == 0) continue;
        assert_int_equal(codec->encode(&x, 1, coded, sizeof(coded), &bytes), TW_OK);
        const uint16_t scale = tw_get_u16(coded);
        assert_true(top * (double)tw_bf16_to_f32(scale) >= (double)x * (1.0 - 0x1p-23));
        assert_true(top * (double)tw_bf16_to_f32((uint16_t)(scale - 1)) < (double)x);
    }
}

/* In a block with scale 1, each element becomes its nearest level. */
TEST(nearest_levels_are_taken) {
    float x[64], y[64];
    uint8_t coded[34];
    size_t bytes;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned round = 0; round < 200; round++) {
        x[0] = 1.0f;
        for (size_t i = 1; i < 64; i++) x[i] = (float)(2.0 * tw_rng_unit(&rng) - 1.0);
        assert_int_equal(tw_codec_get(TW_CODEC_E3M0)->encode(x, 64, coded, 34, &bytes), TW_OK);
        assert_int_equal(tw_codec_get(TW_CODEC_E3M0)->decode(coded, bytes, y, 64), TW_OK);
        for (size_t i = 0; i < 64; i++) {
            assert_true(fabsf(x[i] - y[i]) <= fabsf(x[i]));
            for (int e = -6; e <= 0; e++) {
                assert_true(fabsf(x[i] - y[i]) <= fabsf(fabsf(x[i]) - ldexpf(1.0f, e)));
            }
        }
    }
}

TEST(middles_between_levels_go_up_in_e3m0) {
    float x[64] = {1.0f}, y[64];
    uint8_t coded[34];
    size_t bytes;
    for (int e = -7; e < 0; e++) x[8 + e] = -ldexpf(e == -7 ? 1.0f : 1.5f, e);
    assert_int_equal(tw_codec_get(TW_CODEC_E3M0)->encode(x, 64, coded, 34, &bytes), TW_OK);
    assert_int_equal(tw_codec_get(TW_CODEC_E3M0)->decode(coded, bytes, y, 64), TW_OK);
    for (int e = -7; e < 0; e++) assert_true(y[8 + e] == -ldexpf(1.0f, e + 1));
}

TEST(averages_are_those_of_the_block) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(magnitudes, m) EACH(sizes, s) {
        const size_t n = sizes[s] < 64 ? sizes[s] : 64;
        float *x = fill_new(&rng, n, magnitudes[m] / 8.0f);
        double sum = 0.0;
        size_t bytes;
        if (n == 0 || magnitudes[m] < 0x1p-110f) { /* below that, a scale has too few bits */
            free(x);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            sum += fabs((double)x[i]) / (double)n;
        }
        uint8_t *coded = encoded(tw_codec_get(TW_CODEC_SIGN), x, n, &bytes);
        assert_true(fabs((double)tw_bf16_to_f32(tw_get_u16(coded)) / sum - 1.0) < 0x1p-8);
        free(coded), free(x);
    }
}

TEST(signs_are_those_of_the_bits) {
    const float x[4] = {0.0f, -0.0f, -3.0f, 5.0f};
    float y[4];
    uint8_t coded[34];
    size_t bytes;
    assert_int_equal(tw_codec_get(TW_CODEC_SIGN)->encode(x, 4, coded, 34, &bytes), TW_OK);
    assert_int_equal(tw_codec_get(TW_CODEC_SIGN)->decode(coded, bytes, y, 4), TW_OK);
    assert_true(y[0] == 2.0f && y[1] == -2.0f && y[2] == -2.0f && y[3] == 2.0f);
}

TEST(scales_that_are_not_finite_or_negative_are_refused) {
    enum { N = 300 };
    const uint16_t bad[] = {0x7F80, 0x7FC0, 0xFF80, 0xFFFF, 0x8000, 0xBF80, 0x7F7F};
    float y[N] = {0};
    EACH(formats, f) {
        const struct tw_codec *codec = tw_codec_get(formats[f].id);
        const size_t bytes = codec->bound(N),
                     blocks = (N + formats[f].block - 1) / formats[f].block;
        uint8_t *coded = calloc(bytes, 1);
        const uint16_t end = formats[f].scale_end;
        for (size_t b = 0; b < blocks; b++) {
            EACH(bad, i) {
                tw_put_u16(coded + 2 * b, bad[i]);
                assert_int_equal(codec->check(coded, bytes, N), TW_CORRUPT);
                assert_int_equal(codec->decode(coded, bytes, y, N), TW_CORRUPT);
            }
            tw_put_u16(coded + 2 * b, end);
            assert_int_equal(codec->decode_add(coded, bytes, 1.0f, y, N), TW_CORRUPT);
            tw_put_u16(coded + 2 * b, (uint16_t)(end - 1)); /* the largest accepted scale */
            assert_int_equal(codec->check(coded, bytes, N), TW_OK);
        }
        /* All codes in whole blocks are valid, also with the largest scale. */
        for (unsigned byte = 0; byte < 256; byte++) {
            memset(coded + 2 * blocks, (int)byte, (N / formats[f].block) * formats[f].code_bytes);
            assert_int_equal(codec->decode(coded, bytes, y, N), TW_OK);
            for (size_t i = 0; i < N; i++) assert_true(isfinite(y[i]) != 0);
        }
        free(coded);
    }
}

TEST(padding_is_zero) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) EACH(sizes, s) {
        const struct tw_codec *codec = tw_codec_get(formats[f].id);
        const size_t n = sizes[s], blocks = (n + formats[f].block - 1) / formats[f].block;
        const size_t bytes = codec->bound(n), digits = blocks * formats[f].code_bytes * 8;
        if (formats[f].id == TW_CODEC_INT8 || n == 0) continue; /* the codec has no padding */
        uint8_t *coded = calloc(bytes, 1);
        size_t taken = 0;
        for (size_t bit = 0; bit < digits; bit++) {
            coded[2 * blocks + bit / 8] = (uint8_t)(1u << bit % 8);
            taken += codec->check(coded, bytes, n) == TW_OK;
            coded[2 * blocks + bit / 8] = 0;
        }
        assert_int_equal(taken, n * formats[f].code_bytes * 8 / formats[f].block);
        free(coded);
    }
}

TEST(every_payload_has_one_form) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    EACH(formats, f) EACH(sizes, s) {
        const struct tw_codec *codec = tw_codec_get(formats[f].id);
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 1.0f);
        size_t bytes;
        uint8_t *first = encoded(codec, x, n, &bytes);
        /* Earlier contents of the buffer must not affect the payload. */
        uint8_t *second = malloc(bytes + 1);
        memset(second, 0xFF, bytes);
        assert_int_equal(codec->encode(x, n, second, bytes, &bytes), TW_OK);
        assert_memory_equal(first, second, bytes);
        free(x), free(first), free(second);
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
