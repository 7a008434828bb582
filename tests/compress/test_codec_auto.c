/* test_codec_auto.c - payloads of several codecs (rungs of the ladder) stay within their bytes and
 * are no worse than one codec for all. Hostile payloads are refused. */
#include "compress/codec_auto.h"

#include <math.h>

#include "base/bytes.h"
#include "compress/codec_ref.h"
#include "tests/kernels/fill.h"

enum { SEED = 6262, N = 200000, ENDS = 5, HEADS = TW_AUTO_HEAD_BYTES };

/* Tensors of very different sizes and scales, as in a model. */
static const uint64_t ends[ENDS] = {300, 40000, 40700, 150000, N};
static const double scales[ENDS] = {0.1, 1.0, 30.0, 0.02, 3.0};

static float *gradient_new(void) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = fill_new(&rng, N, 1.0f);
    for (size_t i = 0, t = 0; i < N; i++) {
        if (i == ends[t]) t++;
        x[i] = (float)(1e-3 * scales[t] * (double)x[i]);
    }
    return x;
}

static struct tw_auto_part part_of(const float *x, size_t bytes_max) {
    return (struct tw_auto_part){
        .x = x, .n = N, .ends = ends, .ends_count = ENDS, .bytes_max = bytes_max};
}

static struct tw_auto *work_new(void) {
    struct tw_auto *work = malloc(sizeof(*work));
    assert_non_null(work);
    memset(work, 0xA5, sizeof(*work)); /* encoding needs no initialised memory */
    return work;
}

/* Encodes into a block of exact size. Returns the size. */
static size_t fitted(struct tw_auto *work, const struct tw_auto_part *part, uint8_t **payload) {
    const size_t capacity = tw_codec_auto.bound(part->n);
    size_t bytes;
    uint8_t *to = malloc(capacity);
    assert_int_equal(tw_auto_encode(work, part, to, capacity, &bytes), TW_OK);
    *payload = malloc(bytes > 0 ? bytes : 1);
    memcpy(*payload, to, bytes);
    free(to);
    return bytes;
}

/* Returns the squared error of y divided by the sum of squares of x (n elements). Writes that sum
 * to *size_out unless it is NULL. */
static double share_lost(const float *x, const float *y, size_t n, double *size_out) {
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        size += (double)x[i] * (double)x[i];
    }
    if (size_out != NULL) *size_out = size;
    return error / size;
}

static float *decoded_new(const struct tw_codec *codec, const uint8_t *payload, size_t bytes,
                          size_t n) {
    float *y = malloc(n * sizeof(*y));
    assert_non_null(y);
    assert_int_equal(codec->decode(payload, bytes, y, n), TW_OK);
    return y;
}

static double error_of(const struct tw_codec *codec, const uint8_t *payload, size_t bytes,
                       const float *x, size_t n) {
    float *y = decoded_new(codec, payload, bytes, n);
    const double error = share_lost(x, y, n, NULL);
    free(y);
    return error;
}

/* Returns the squared residual that error feedback accumulates in the tensors. If a share e of the
 * squares is lost each round, it is e / (1 - e) of them. Tensors smaller than a cell belong to the
 * next. */
static double held_of(const struct tw_codec *codec, const uint8_t *payload, size_t bytes,
                      const float *x) {
    static const size_t begins[] = {0, 40000, 150000, N};
    float *y = decoded_new(codec, payload, bytes, N);
    double held = 0.0;
    for (size_t t = 0; t < 3; t++) {
        const size_t begin = begins[t];
        double size;
        const double e = share_lost(x + begin, y + begin, begins[t + 1] - begin, &size);
        held += size * (e < 0.999 ? e / (1.0 - e) : 999.0);
    }
    free(y);
    return held;
}

TEST(a_target_within_reach_is_kept) {
    float *x = gradient_new();
    struct tw_auto *work = work_new();
    const size_t least = (size_t)tw_auto_bytes_min(N) + 100;
    double last = INFINITY;
    bool is_sparse, was_sparse = true;
    for (size_t bytes_max = least; bytes_max < N + N / 4; bytes_max += 1 + bytes_max / 6) {
        const struct tw_auto_part part = part_of(x, bytes_max);
        uint8_t *payload;
        const size_t bytes = fitted(work, &part, &payload);
        assert_true(bytes <= bytes_max);
        /* All bytes are used, except fewer than one more cell needs. */
        if (bytes_max < N) assert_true(bytes + TW_AUTO_BLOCK >= bytes_max - bytes_max / 50);
        const double held = held_of(&tw_codec_auto, payload, bytes, x);
        print_message("%7zu bytes of %7zu: held %.3e\n", bytes, bytes_max, held);
        /* From half a bit upwards, cells are larger, for the sake of ecsq. The rate of ecsq is
         * found after the rungs are chosen, which shows above four bits. */
        is_sparse = bytes_max < N / 16;
        const double slack = bytes_max < N / 2 ? 1.02 : 1.15;
        assert_true(held <= slack * last || is_sparse != was_sparse);
        was_sparse = is_sparse;
        last = held;
        free(payload);
    }
    free(x), free(work);
}

TEST(out_of_reach_is_as_small_as_it_gets) {
    float *x = gradient_new();
    struct tw_auto *work = work_new();
    const struct tw_auto_part part = part_of(x, 1);
    uint64_t mix[TW_AUTO_RUNGS];
    uint8_t *payload;
    const size_t bytes = fitted(work, &part, &payload);
    assert_true(bytes < N / 80);
    assert_int_equal(tw_auto_mix(payload, bytes, N, mix), TW_OK);
    assert_int_equal(mix[TW_AUTO_RUNGS - 1], N);
    free(payload), free(x), free(work);
}

/* With as many bytes as any one codec needs, the residual is no larger than with that codec. The
 * coarsest codec is not tested: within its bytes there is no choice. */
TEST(no_rung_alone_is_better_at_its_bytes) {
    float *x = gradient_new();
    struct tw_auto *work = work_new();
    for (uint32_t r = 0; r + 1 < TW_AUTO_RUNGS; r++) {
        const struct tw_codec *codec = tw_auto_rung(r);
        uint8_t *fixed = malloc(codec->bound(N)), *payload;
        size_t fixed_bytes;
        assert_int_equal(codec->encode(x, N, fixed, codec->bound(N), &fixed_bytes), TW_OK);
        const struct tw_auto_part part = part_of(x, fixed_bytes + HEADS + 8 * 4);
        const size_t bytes = fitted(work, &part, &payload);
        const double fixed_held = held_of(codec, fixed, fixed_bytes, x);
        const double held = held_of(&tw_codec_auto, payload, bytes, x);
        print_message("%-8s %7zu bytes, held %.3e; auto %7zu, %.3e\n", codec->name, fixed_bytes,
                      fixed_held, bytes, held);
        assert_true(held <= fixed_held);
        free(fixed), free(payload);
    }
    free(x), free(work);
}

/* For a few thousand elements at one bit, an entropy coder's states are a quarter of the bytes. So
 * there is only one piece if several pieces gain nothing. */
TEST(small_tensors_that_are_alike_share_a_piece) {
    enum { MOST = 30000 };
    static const size_t sizes[] = {12300, 15072, MOST};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = fill_new(&rng, MOST, 1.0f);
    struct tw_auto *work = work_new();
    for (uint32_t i = 0; i < 3; i++) {
        const size_t n = sizes[i];
        const uint64_t thirds[] = {n / 3, n * 2 / 3, n};
        for (uint32_t r = 0; r + 1 < TW_AUTO_RUNGS; r++) {
            const struct tw_codec *codec = tw_auto_rung(r);
            uint8_t *fixed = malloc(codec->bound(n)), *payload;
            size_t fixed_bytes;
            assert_int_equal(codec->encode(x, n, fixed, codec->bound(n), &fixed_bytes), TW_OK);
            const struct tw_auto_part part = {.x = x,
                                              .n = n,
                                              .ends = thirds,
                                              .ends_count = 3,
                                              .bytes_max = fixed_bytes + HEADS + 8};
            const size_t bytes = fitted(work, &part, &payload);
            const double fixed_error = error_of(codec, fixed, fixed_bytes, x, n);
            const double error = error_of(&tw_codec_auto, payload, bytes, x, n);
            print_message("%6zu: %-8s %6zu bytes, error %.3e; auto %6zu, %.3e\n", n, codec->name,
                          fixed_bytes, fixed_error, bytes, error);
            assert_true(bytes <= part.bytes_max);
            assert_true(error <= 1.02 * fixed_error);
            free(fixed), free(payload);
        }
    }
    free(x), free(work);
}

/* Below one bit, each further byte reduces the error by nearly the same amount. Chosen by errors
 * alone, the larger of two tensors would get all bytes until the other had waited long enough.
 * Instead, each gets some bytes in every round. */
TEST(of_tensors_nearly_alike_none_waits_for_its_turn) {
    enum { TENSOR = 65536, TENSORS = 4 };
    static const uint64_t four[TENSORS] = {TENSOR, 2 * TENSOR, 3 * TENSOR, 4 * TENSOR};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = fill_new(&rng, (size_t)TENSORS * TENSOR, 1.0f);
    struct tw_auto *work = work_new();
    for (size_t i = TENSOR; i < (size_t)TENSORS * TENSOR; i++) {
        x[i] *= 1.0f + 0.25f * (float)(i / TENSOR); /* up to 1.75 times the first */
    }
    static const double bits[] = {0.2, 0.41, 0.7};
    for (uint32_t k = 0; k < 3; k++) {
        const struct tw_auto_part part = {.x = x,
                                          .n = (size_t)TENSORS * TENSOR,
                                          .ends = four,
                                          .ends_count = TENSORS,
                                          .bytes_max = (size_t)(bits[k] * TENSORS * TENSOR / 8.0)};
        uint8_t *payload;
        const size_t bytes = fitted(work, &part, &payload);
        float *y = decoded_new(&tw_codec_auto, payload, bytes, part.n);
        for (size_t t = 0; t < TENSORS; t++) {
            const double e = share_lost(x + t * TENSOR, y + t * TENSOR, TENSOR, NULL);
            print_message("%.2f bits, tensor %zu: %.3f is lost\n", bits[k], t, e);
            assert_true(e < (k == 0 ? 0.9 : 0.8)); /* topk32 loses .93 */
        }
        free(y), free(payload);
    }
    free(x), free(work);
}

/* With enough bytes for int8 everywhere, there is one piece per tensor. Tensors of 300 and of 700
 * elements are joined with the next. */
TEST(pieces_end_where_tensors_do) {
    enum { LARGE = 2 * TW_AUTO_PIECE_MAX + 5000 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = gradient_new(), *large = fill_new(&rng, LARGE, 1.0f);
    struct tw_auto *work = work_new();
    uint8_t *payload;
    struct tw_auto_part part = part_of(x, 2 * N);
    (void)fitted(work, &part, &payload);
    assert_int_equal(tw_get_u32(payload), 3);
    assert_int_equal(tw_get_u32(payload + HEADS), 40000);
    assert_int_equal(tw_get_u32(payload + HEADS + 8), 110000);
    assert_int_equal(tw_get_u32(payload + HEADS + 16), 50000);
    free(payload);
    part = (struct tw_auto_part){.x = large, .n = LARGE, .bytes_max = 2 * LARGE};
    (void)fitted(work, &part, &payload);
    assert_int_equal(tw_get_u32(payload), 3);
    assert_int_equal(tw_get_u32(payload + HEADS), TW_AUTO_PIECE_MAX);
    assert_int_equal(tw_get_u32(payload + HEADS + 8), TW_AUTO_PIECE_MAX);
    assert_int_equal(tw_get_u32(payload + HEADS + 16), 5000);
    free(payload), free(x), free(large), free(work);
}

TEST(without_a_target_all_is_int4) {
    float *x = gradient_new();
    struct tw_auto *work = work_new();
    const struct tw_auto_part part = part_of(x, 0);
    uint64_t mix[TW_AUTO_RUNGS];
    uint8_t *payload;
    const size_t bytes = fitted(work, &part, &payload);
    assert_int_equal(tw_auto_mix(payload, bytes, N, mix), TW_OK);
    assert_int_equal(mix[1], N);
    assert_string_equal(tw_auto_rung(1)->name, "int4");
    free(payload), free(x), free(work);
}

/* For sizes at and around every boundary of pieces, no element is lost, and bound() holds. */
TEST(any_size_is_cut_and_comes_back) {
    static const size_t sizes[] = {1,
                                   TW_AUTO_BLOCK - 1,
                                   TW_AUTO_BLOCK,
                                   2 * TW_AUTO_BLOCK - 1,
                                   TW_AUTO_PIECE_MAX,
                                   TW_AUTO_PIECE_MAX + 1,
                                   TW_AUTO_PIECE_MAX + TW_AUTO_BLOCK - 1,
                                   TW_AUTO_PIECE_MAX + TW_AUTO_BLOCK,
                                   2 * TW_AUTO_PIECE_MAX + 1};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    struct tw_auto *work = work_new();
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 1.0f);
        const size_t targets[] = {0, 1, n / 8 + 1, 4 * n};
        for (size_t t = 0; t < 4; t++) {
            const uint64_t middle[] = {n / 3, n / 2};
            const struct tw_auto_part part = {
                .x = x, .n = n, .ends = middle, .ends_count = 2, .bytes_max = targets[t]};
            uint8_t *payload;
            const size_t bytes = fitted(work, &part, &payload);
            assert_int_equal(tw_codec_auto.check(payload, bytes, n), TW_OK);
            assert_true(error_of(&tw_codec_auto, payload, bytes, x, n) < 1.0);
            assert_int_equal(tw_codec_auto.check(payload, bytes, n + 1), TW_CORRUPT);
            free(payload);
        }
        free(x);
    }
    free(work);
}

/* bound() is at least the size of a piece in any codec of the ladder. */
TEST(no_rung_takes_more_than_the_bound) {
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) {
        const struct tw_codec *codec = tw_auto_rung(r);
        for (size_t n = 1; n < TW_AUTO_BLOCK; n += 97)
            assert_true(12 + codec->bound(n) <= tw_codec_auto.bound(n));
        for (size_t pieces = 1; pieces < 40; pieces++) {
            const size_t each = TW_AUTO_BLOCK + pieces * 911;
            assert_true(4 + pieces * (8 + codec->bound(each)) <=
                        tw_codec_auto.bound(pieces * each));
        }
    }
}

TEST(non_finite_values_are_refused) {
    float *x = gradient_new();
    struct tw_auto *work = work_new();
    uint8_t *to = malloc(tw_codec_auto.bound(N));
    size_t bytes;
    const struct tw_auto_part part = part_of(x, 60000);
    x[N - 20000] = NAN; /* an element outside every sample */
    assert_int_equal(tw_auto_encode(work, &part, to, tw_codec_auto.bound(N), &bytes), TW_CORRUPT);
    x[N - 20000] = 0.0f;
    assert_int_equal(tw_auto_encode(work, &part, to, tw_codec_auto.bound(N) - 1, &bytes), TW_LIMIT);
    assert_int_equal(tw_auto_encode(work, &part, to, tw_codec_auto.bound(N), &bytes), TW_OK);
    free(to), free(x), free(work);
}

/* Heads that are false in every possible way. */
TEST(false_heads_are_refused) {
    float *x = gradient_new(), *y = calloc(N, sizeof(*y));
    struct tw_auto *work = work_new();
    const struct tw_auto_part part = part_of(x, 60000);
    uint8_t *payload;
    uint64_t mix[TW_AUTO_RUNGS];
    const size_t bytes = fitted(work, &part, &payload);
    const uint32_t count = tw_get_u32(payload), first = tw_get_u32(payload + HEADS);
    const uint32_t size = tw_get_u32(payload + HEADS + 4);
    const struct {
        uint32_t at, value;
    } lies[] = {
        {0, 0},                                   /* no pieces */
        {0, count - 1},                           /* one too few */
        {0, count + 1},                           /* one too many: payload read as a head */
        {0, UINT32_MAX},                          /* more than the bytes can hold */
        {HEADS, first + 1},                       /* elements do not add up */
        {HEADS, (first & 0xFF000000) | 5},        /* too small a piece */
        {HEADS, (first & 0xFF000000) | 0xFFFFFF}, /* larger than any piece */
        {HEADS, (first & 0xFFFFFF) | 0xFF000000}, /* no such rung */
        {HEADS, (first & 0xFFFFFF) | 10u << 24},  /* the first rung that does not exist */
        {HEADS + 4, size + 1},                    /* bytes do not add up */
        {HEADS + 4, UINT32_MAX},                  /* more than the payload has */
        {HEADS, first & 0xFFFFFF}                 /* int8, but of another size */
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint8_t *false_one = malloc(bytes);
        memcpy(false_one, payload, bytes);
        if (tw_get_u32(false_one + lies[i].at) == lies[i].value) fail_msg("lie %zu is true", i);
        tw_put_u32(false_one + lies[i].at, lies[i].value);
        assert_int_equal(tw_codec_auto.check(false_one, bytes, N), TW_CORRUPT);
        assert_int_equal(tw_codec_auto.decode(false_one, bytes, y, N), TW_CORRUPT);
        assert_int_equal(tw_codec_auto.decode_add(false_one, bytes, 1.0f, y, N), TW_CORRUPT);
        free(false_one);
    }
    assert_int_equal(tw_auto_mix(payload, 3, N, mix), TW_CORRUPT);
    assert_int_equal(tw_auto_mix(payload, 0, 0, mix), TW_OK);
    payload[bytes - 1] ^= 0xFF;
    payload[bytes - 2] ^= 0xFF;
    assert_int_equal(tw_codec_auto.check(payload, bytes, N), TW_CORRUPT);
    assert_int_equal(tw_codec_auto.decode(payload, bytes, y, N), TW_CORRUPT);
    free(payload), free(x), free(y), free(work);
}

/* A payload with a piece of each codec, built by this test: the order of the ladder is part of the
 * format. */
TEST(every_rung_decodes_where_it_lies) {
    static const char *const names[TW_AUTO_RUNGS] = {"int8",   "int4",  "ecsq4",  "ecsq3",
                                                     "ecsq2",  "ecsq1", "ecsq05", "topk256",
                                                     "topk64", "topk32"};
    enum { EACH = TW_AUTO_BLOCK + 77, ALL = TW_AUTO_RUNGS * EACH };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = fill_new(&rng, ALL, 1.0f), *y = malloc(ALL * sizeof(*y));
    float *want = malloc(ALL * sizeof(*want));
    uint8_t *payload = calloc(tw_codec_auto.bound(ALL), 1);
    size_t at = HEADS + 8 * TW_AUTO_RUNGS;
    tw_put_u32(payload, TW_AUTO_RUNGS);
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) {
        const struct tw_codec *codec = tw_auto_rung(r);
        size_t bytes;
        assert_string_equal(codec->name, names[r]);
        assert_int_equal(
            codec->encode(x + r * EACH, EACH, payload + at, codec->bound(EACH), &bytes), TW_OK);
        float *const wanted = want + r * EACH;
        assert_int_equal(tw_codec_has_ref(codec->id)
                             ? tw_codec_decode_ref(codec->id, payload + at, bytes, wanted, EACH)
                             : codec->decode(payload + at, bytes, wanted, EACH),
                         TW_OK);
        tw_put_u32(payload + HEADS + 8 * r, EACH | r << 24);
        tw_put_u32(payload + HEADS + 8 * r + 4, (uint32_t)bytes);
        at += bytes;
    }
    assert_int_equal(tw_codec_auto.decode(payload, at, y, ALL), TW_OK);
    assert_memory_equal(y, want, ALL * sizeof(*y));
    uint64_t mix[TW_AUTO_RUNGS];
    assert_int_equal(tw_auto_mix(payload, at, ALL, mix), TW_OK);
    for (uint32_t r = 0; r < TW_AUTO_RUNGS; r++) assert_int_equal(mix[r], EACH);
    free(x), free(y), free(want), free(payload);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
