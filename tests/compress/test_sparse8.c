/* test_sparse8.c - sparse arrays keep their zeros and shrink, dense ones lose only precision, and
 * invalid payloads are refused. */
#include "compress/codec_sparse.h"

#include <math.h>

#include "base/bytes.h"
#include "compress/rice.h"
#include "kernels/type.h"
#include "tests/kernels/fill.h"

enum { SEED = 88, CHUNK = TW_SPARSE_CHUNK };

static uint8_t *encoded(const float *x, size_t n, size_t *bytes) {
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_SPARSE8);
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    to = realloc(to, *bytes > 0 ? *bytes : 1); /* exact size: a sanitizer reports reads past it */
    assert_non_null(to);
    return to;
}

/* Each element is nonzero with probability `density`. */
static float *sparse_new(struct tw_rng *rng, size_t n, double density) {
    float *x = fill_new(rng, n, 1e-3f);
    for (size_t i = 0; i < n; i++) {
        if (tw_rng_unit(rng) >= density) x[i] = 0.0f;
    }
    return x;
}

TEST(zeros_stay_and_others_are_within_half_a_step) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_SPARSE8);
    const double densities[] = {0.0, 1e-3, 0.01, 0.0625, 0.2, 0.5, 0.8, 0.9, 1.0};
    const size_t sizes[] = {1, 2, 100, 4095, 4096, 4097, 20000};
    for (size_t k = 0; k < 9 * 7; k++) {
        const size_t n = sizes[k / 9];
        float *x = sparse_new(&rng, n, densities[k % 9]), *y = fill_new(&rng, n, 1.0f);
        size_t bytes;
        uint8_t *coded = encoded(x, n, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        for (size_t at = 0; at < n; at += CHUNK) {
            const size_t end = n < at + CHUNK ? n : at + CHUNK;
            double max = 0.0;
            for (size_t i = at; i < end; i++) max = fmax(max, fabs((double)x[i]));
            /* the scale is rounded up to bf16: at most 2^-7 above max / 127 */
            const double half = max / 127.0 * (1.0 + 0x1p-7) / 2.0 * (1.0 + 1e-6);
            for (size_t i = at; i < end; i++) {
                assert_true(x[i] != 0.0f || (y[i] == 0.0f && signbit(y[i]) == 0));
                assert_true(fabs((double)x[i] - (double)y[i]) <= half);
            }
        }
        free(x), free(y), free(coded);
    }
}

/* The size is 8 bits per code, plus gaps at most a twentieth above their entropy. */
TEST(sizes_follow_the_density) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t n = 64 * CHUNK;
    for (unsigned step = 1; step < 11; step++) {
        const double p = pow(2.0, -(double)step);
        float *x = sparse_new(&rng, n, p);
        size_t bytes;
        free(encoded(x, n, &bytes));
        const double gaps = -log2(p) - (1.0 - p) / p * log2(1.0 - p);
        const double bits = 8.0 * (double)bytes / (double)n, want = p * (8.0 + gaps) + 32.0 / CHUNK;
        print_message("density 2^-%-2u %.4f bits, with ideal positions %.4f\n", step, bits, want);
        /* Padding adds half a byte per chunk on average: 4 bits. */
        assert_true(bits < want + 0.05 * p * gaps + 4.0 / CHUNK);
        free(x);
    }
    const double best = 1.0 + 4.0 / CHUNK;
    float *x = sparse_new(&rng, n, 1.0);
    size_t bytes;
    free(encoded(x, n, &bytes));
    assert_true((double)bytes == best * (double)n);
    free(x);
}

static void assert_refused(const uint8_t *coded, size_t bytes, size_t n, const char *why) {
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_SPARSE8);
    float *y = calloc(n, sizeof(*y));
    uint8_t *exact = malloc(bytes > 0 ? bytes : 1);
    memcpy(exact, coded, bytes);
    if (codec->check(exact, bytes, n) != TW_CORRUPT ||
        codec->decode(exact, bytes, y, n) != TW_CORRUPT ||
        codec->decode_add(exact, bytes, 1.0f, y, n) != TW_CORRUPT) {
        fail_msg("taken: %s", why);
    }
    free(y), free(exact);
}

/* Writes one chunk of 100 elements: a scale of 1, and two codes at positions 3 and 99 (r = 5). */
static size_t written(uint8_t *to, uint32_t first, uint32_t second) {
    struct tw_bits_writer bits = {.at = to + 4};
    tw_put_u16(to, 0x3F80);
    tw_put_u16(to + 2, 2);
    tw_bits_put_gap(&bits, first, 5);
    tw_bits_put_gap(&bits, second, 5);
    tw_bits_pad(&bits);
    *bits.at++ = 0x81;
    *bits.at++ = 0x7F;
    return (size_t)(bits.at - to);
}

TEST(payloads_no_encoder_writes_are_refused) {
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_SPARSE8);
    uint8_t coded[200];
    float y[100];
    size_t bytes = written(coded, 3, 95);
    assert_int_equal(codec->decode(coded, bytes, y, 100), TW_OK);
    assert_true(y[3] == -127.0f && y[99] == 127.0f && y[0] == 0.0f && y[98] == 0.0f);
    assert_refused(coded, bytes - 1, 100, "a byte less");
    assert_refused(coded, bytes + 1, 100, "a byte more");
    assert_refused(coded, 3, 100, "half a head");
    assert_refused(coded, bytes, 99, "a position beyond the end");
    const uint8_t bad_codes[] = {0x00, 0x80};
    for (size_t b = 0; b < 2; b++) {
        coded[bytes - 1] = bad_codes[b];
        assert_refused(coded, bytes, 100, "a code that is 0, or -128");
    }
    bytes = written(coded, 3, 96);
    assert_refused(coded, bytes, 100, "gaps that add up to more than there is");
    bytes = written(coded, 3, 95);
    coded[bytes - 3] |= 0x80;
    assert_refused(coded, bytes, 100, "a bit in the padding");
    bytes = written(coded, 3, 95);
    const uint16_t counts[] = {0, 1, 3, 100, 101, 65535};
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        tw_put_u16(coded + 2, counts[c]);
        assert_refused(coded, bytes, 100, "a count that is not that of the codes");
    }
    tw_put_u16(coded + 2, 2);
    const uint16_t scales[] = {0x7B80, 0x7F80, 0x7FC0, 0x8000, 0xBF80};
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
        tw_put_u16(coded, scales[s]);
        assert_refused(coded, bytes, 100, "a scale that is none");
    }
    memset(coded, 0, sizeof(coded));
    tw_put_u16(coded + 2, 100);
    assert_int_equal(codec->check(coded, 104, 100), TW_OK); /* in dense form, codes may be 0 */
    coded[50] = 0x80;
    assert_refused(coded, 104, 100, "a dense code of -128");
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
