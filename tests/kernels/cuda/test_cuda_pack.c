/* test_cuda_pack.c - a device's Delta and its encoding have the bits of the host's: every
 * fixed-rate codec, odd sizes, tiny and huge numbers, refused inputs, and residuals. */
#include "kernels/cuda/pack.h"

#include "compress/codec.h"
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outer.h"
#include "tests/kernels/cuda/card.h"

enum { SEED = 5151, N_MAX = 1500, SHAPES = 11 };

static const size_t sizes[] = {1, 2, 31, 33, 63, 64, 65, 127, 255, 256, 257, 1000, N_MAX};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static const struct {
    enum tw_cuda_pack_format format;
    enum tw_codec_id codec;
} codecs[] = {{TW_CUDA_PACK_BF16, TW_CODEC_BF16},
              {TW_CUDA_PACK_INT8, TW_CODEC_INT8},
              {TW_CUDA_PACK_INT4, TW_CODEC_INT4},
              {TW_CUDA_PACK_E3M0, TW_CODEC_E3M0},
              {TW_CUDA_PACK_SIGN, TW_CODEC_SIGN}};

enum { CODECS = sizeof(codecs) / sizeof(codecs[0]) };

static void *stream(void) {
    return tw_cuda_stream(card, TW_CUDA_SIDE);
}

/* Makes an array that is difficult for some codec. */
static float *shape_new(struct tw_rng *rng, size_t n, unsigned shape) {
    float *x = fill_new(rng, n, 1e-3f);
    for (size_t i = 0; i < n; i++) {
        switch (shape) {
        case 0: break;                                          /* normal */
        case 1: x[i] = i == n / 2 ? -7.0f : 0.0f; break;        /* a single element */
        case 2: x[i] = i == n / 2 ? 7.0f : 1e-3f * x[i]; break; /* one value far above the others */
        case 3: x[i] = i % 3 == 0 ? -0.25f : 0.25f; break;
        case 4: x[i] = i % 2 == 0 ? 0.0f : -0.0f; break;
        case 5: x[i] = ldexpf(x[i], -120 - (int)tw_rng_below(rng, 24)); break; /* denormals */
        case 6: x[i] = ldexpf(x[i], 130 + (int)tw_rng_below(rng, 4)); break;   /* below 2^126 */
        case 7: x[i] = ldexpf((float)((int)tw_rng_below(rng, 255) - 127), -7); break; /* ties */
        case 8: x[i] = ldexpf(x[i], -114); break; /* 1 / scale is not a float */
        case 9: x[i] = i % 64 == 0 ? 1.0f : ldexpf(1.5f, -(int)(i % 7) - 1); break;
        default: x[i] = ldexpf(x[i], (int)tw_rng_below(rng, 60) - 30); break;
        }
    }
    return x;
}

/* The outputs of the device for an array x. */
struct packed {
    uint8_t *bytes;
    float *decoded, *lost;
    uint32_t refused;
};

static struct packed pack(enum tw_cuda_pack_format format, const float *x, size_t n,
                          bool has_feedback) {
    const size_t bytes = tw_cuda_pack_bytes(format, n);
    const uint32_t no = 0;
    struct packed p = {.bytes = malloc(bytes), .decoded = fill_copy(x, n), .lost = fill_copy(x, n)};
    const struct tw_cuda_pack cfg = {
        .format = format,
        .n = n,
        .v = card_new(x, n * sizeof(float)),
        .out = card_new(NULL, bytes),
        .decoded = has_feedback ? card_new(NULL, n * sizeof(float)) : NULL,
        .lost = has_feedback ? card_new(NULL, n * sizeof(float)) : NULL,
        .refused = card_new(&no, sizeof(no))};
    assert_non_null(p.bytes);
    tw_cuda_pack(stream(), &cfg);
    card_read(p.bytes, cfg.out, bytes);
    if (has_feedback) card_read(p.decoded, cfg.decoded, n * sizeof(float));
    if (has_feedback) card_read(p.lost, cfg.lost, n * sizeof(float));
    card_read(&p.refused, cfg.refused, sizeof(p.refused));
    card_free_all();
    return p;
}

static void packed_free(struct packed *p) {
    free(p->bytes), free(p->decoded), free(p->lost);
}

static void check(const struct tw_codec *codec, enum tw_cuda_pack_format format, const float *x,
                  size_t n) {
    size_t bytes = 0;
    uint8_t *const want = malloc(codec->bound(n));
    float *const decoded = fill_copy(x, n);
    struct packed p = pack(format, x, n, n % 2 == 1);
    assert_int_equal(tw_cuda_pack_bytes(format, n), codec->bound(n));
    assert_int_equal(codec->encode(x, n, want, codec->bound(n), &bytes), TW_OK);
    assert_int_equal(p.refused, 0);
    for (size_t i = 0; i < bytes; i++) {
        if (p.bytes[i] != want[i])
            fail_msg("%s of %zu: byte %zu is %02x, not %02x", codec->name, n, i, p.bytes[i],
                     want[i]);
    }
    assert_int_equal(codec->decode(want, bytes, decoded, n), TW_OK);
    if (n % 2 == 1) {
        assert_memory_equal(p.decoded, decoded, n * sizeof(float));
        for (size_t i = 0; i < n; i++) decoded[i] = x[i] - decoded[i];
        assert_memory_equal(p.lost, decoded, n * sizeof(float));
    }
    packed_free(&p);
    free(want), free(decoded);
}

static void bytes_are_those_of_the_host(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t c = 0; c < CODECS; c++) {
        const struct tw_codec *const codec = tw_codec_get(codecs[c].codec);
        for (size_t s = 0; s < SIZES; s++) {
            float *const x = shape_new(&rng, sizes[s], (unsigned)(s + c) % SHAPES);
            check(codec, codecs[c].format, x, sizes[s]);
            free(x);
        }
        for (unsigned shape = 0; shape < SHAPES; shape++) {
            const size_t n = 1 + 2 * (size_t)tw_rng_below(&rng, N_MAX / 2);
            float *const x = shape_new(&rng, n, shape);
            check(codec, codecs[c].format, x, n);
            free(x);
        }
    }
}

/* The device refuses exactly the inputs that the codec refuses. */
static void the_device_refuses_what_the_host_refuses(void **state) {
    enum { N = 300 };
    const uint32_t quiet = 0x7FFFFFFFu; /* a NaN that rounding to bf16 would carry over to zero */
    float odd[] = {NAN, -INFINITY, 0x1p126f, -0x1p126f, 0x1.fffffep125f, 3.4028235e38f, 0.0f};
    float x[N];
    memcpy(&odd[6], &quiet, sizeof(odd[6]));
    for (size_t c = 0; c < CODECS; c++) {
        const struct tw_codec *const codec = tw_codec_get(codecs[c].codec);
        uint8_t want[4 * N];
        for (size_t o = 0; o < sizeof(odd) / sizeof(odd[0]); o++) {
            const size_t at = o % 2 == 0 ? N - 1 : 3;
            size_t bytes;
            for (size_t i = 0; i < N; i++) x[i] = 1.0f;
            x[at] = odd[o];
            const bool is_refused = codec->encode(x, N, want, sizeof(want), &bytes) != TW_OK;
            struct packed p = pack(codecs[c].format, x, N, true);
            assert_int_equal(p.refused, is_refused);
            if (!is_refused) assert_memory_equal(p.bytes, want, bytes);
            packed_free(&p);
        }
    }
}

static void delta_has_the_bits_of_the_host(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s], bytes = n * sizeof(float);
        float *const phi = fill_new(&rng, n, 1.0f), *const theta = fill_new(&rng, n, 1.0f);
        float *const ahead = fill_new(&rng, n, 0.1f), *const residual = fill_new(&rng, n, 0.1f);
        float *const want = fill_copy(phi, n), *const got = fill_copy(phi, n);
        struct tw_cuda_delta d = {.v = card_new(NULL, bytes),
                                  .given = card_new(NULL, bytes),
                                  .phi = card_new(phi, bytes),
                                  .theta = card_new(theta, bytes),
                                  .n = n};
        tw_delta(want, phi, theta, n);
        tw_cuda_delta(stream(), &d);
        card_read(got, d.v, bytes);
        assert_memory_equal(got, want, bytes);
        card_read(got, d.given, bytes);
        assert_memory_equal(got, want, bytes);
        d.ahead = card_new(ahead, bytes), d.residual = card_new(residual, bytes), d.beta = 0.93f;
        tw_cuda_delta(stream(), &d);
        tw_merge_add(want, ahead, 1.0f, n);
        card_read(got, d.given, bytes);
        assert_memory_equal(got, want, bytes);
        tw_merge_add(want, residual, 0.93f, n);
        card_read(got, d.v, bytes);
        assert_memory_equal(got, want, bytes);
        tw_cuda_scale(stream(), d.v, 0.3f, n);
        tw_scale(want, 0.3f, n);
        card_read(got, d.v, bytes);
        assert_memory_equal(got, want, bytes);
        card_free_all();
        free(phi), free(theta), free(ahead), free(residual), free(want), free(got);
    }
}

static void weighted_sums_have_the_bits_of_the_host(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s], bytes = n * sizeof(float);
        float *const sum = fill_new(&rng, n, 1.0f), *const got = fill_copy(sum, n);
        float *const x = fill_new(&rng, n, 1.0f), *const on = card_new(sum, bytes);
        tw_cuda_merge_add(stream(), on, card_new(x, bytes), -0.7f, n);
        tw_merge_add(sum, x, -0.7f, n);
        card_read(got, on, bytes);
        assert_memory_equal(got, sum, bytes);
        card_free_all();
        free(sum), free(got), free(x);
    }
}

static void energies_are_those_of_the_blocks(void **state) {
    enum { N = 70001 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t counts[] = {1, 63, 64, 1000, N};
    float *const x = fill_new(&rng, N, 1.0f);
    for (size_t c = 0; c < 5; c++) {
        struct tw_outlier_sizes want = {.count = {0}};
        double got[TW_OUTLIER_BLOCKS];
        float *const v = card_new(x, counts[c] * sizeof(float));
        double *const energies = card_new(NULL, sizeof(got));
        void *const scratch = card_new(NULL, TW_CUDA_ENERGIES_SCRATCH);
        tw_outlier_add(&want, x, 0, counts[c], counts[c]);
        tw_cuda_energies(stream(), energies, v, counts[c], scratch);
        card_read(got, energies, sizeof(got));
        for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++)
            assert_true(fabs(got[b] - want.energy[b]) <= 1e-12 * want.energy[b]);
        card_free_all();
    }
    x[N / 2] = NAN;
    double got[TW_OUTLIER_BLOCKS], sum = 0.0;
    double *const energies = card_new(NULL, sizeof(got));
    tw_cuda_energies(stream(), energies, card_new(x, N * sizeof(float)), N,
                     card_new(NULL, TW_CUDA_ENERGIES_SCRATCH));
    card_read(got, energies, sizeof(got));
    for (size_t b = 0; b < TW_OUTLIER_BLOCKS; b++) sum += got[b];
    assert_true(isfinite(sum) == 0);
    card_free_all();
    free(x);
}

int main(void) {
    if (!card_open()) return CARD_SKIPPED;
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_those_of_the_host),
        cmocka_unit_test(the_device_refuses_what_the_host_refuses),
        cmocka_unit_test(delta_has_the_bits_of_the_host),
        cmocka_unit_test(weighted_sums_have_the_bits_of_the_host),
        cmocka_unit_test(energies_are_those_of_the_blocks),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tw_cuda_close(card);
    return failed;
}
