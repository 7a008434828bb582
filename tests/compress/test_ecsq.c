/* test_ecsq.c - the ecsq codecs use their nominal bits, keep every element within its step, are as
 * good as the reference tables, and refuse invalid payloads. */

#include "base/bytes.h"
#include "compress/codec_ref.h"
#include "compress/ecsq.h"
#include "compress/rans.h"
#include "tests/kernels/fill.h"

enum { SEED = 1957, N = 1 << 20, HEAD = TW_ECSQ_HEAD_BYTES };

struct member {
    enum tw_codec_id id;
    double bits, dead, limit;
    double gauss, t4; /* limits on the squared error, from tables at these bits */
};

static const struct member members[] = {
    {TW_CODEC_ECSQ4, 4.0, 0.0, 31, 5.8e-3, 5.2e-3},
    {TW_CODEC_ECSQ3, 3.0, 0.0, 15, 2.33e-2, 2.05e-2},
    {TW_CODEC_ECSQ2, 2.0, 0.0, 7, 9.4e-2, 8.3e-2},
    {TW_CODEC_ECSQ1, 1.0, 40.0 / 256.0, 7, 0.365, 0.29},
    {TW_CODEC_ECSQ05, 0.5, 52.0 / 256.0, 7, 0.65, 0.50},
};

#define EACH_MEMBER(m)                                                                             \
    for (const struct member *m = members; m < members + sizeof(members) / sizeof(*members); m++)

static double normal(struct tw_rng *rng) {
    const double u = tw_rng_unit(rng) + 0x1p-60;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * tw_rng_unit(rng));
}

/* Returns numbers with a normal or a Student's t distribution (4 degrees of freedom). Their scale
 * changes from tensor to tensor. */
static float *some(struct tw_rng *rng, size_t n, bool is_t4) {
    float *x = malloc((n > 0 ? n : 1) * sizeof(*x));
    assert_non_null(x);
    double size = 1.0;
    for (size_t i = 0; i < n; i++) {
        if (i % 65536 == 0) size = pow(10.0, -4.0 + 3.0 * tw_rng_unit(rng));
        double value = normal(rng);
        if (is_t4) {
            const double u = (tw_rng_unit(rng) + 0x1p-60) * (tw_rng_unit(rng) + 0x1p-60);
            value /= sqrt(-2.0 * log(u) / 4.0);
        }
        x[i] = (float)(value * size);
    }
    return x;
}

static uint8_t *encoded(const struct tw_codec *codec, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    to = realloc(to, *bytes > 0 ? *bytes : 1); /* exact size: a sanitizer reports reads past it */
    assert_non_null(to);
    return to;
}

static double squared_error(const float *x, const float *y, size_t n) {
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)y[i];
        error += d * d;
        size += (double)x[i] * (double)x[i];
    }
    return error / size;
}

/* Returns the mean of the tensors' relative squared errors. Tensors have equal weight. */
static double mean_squared_error(const float *x, const float *y) {
    double sum = 0.0;
    for (size_t at = 0; at < N; at += 65536) sum += squared_error(x + at, y + at, 65536);
    return sum / (N / 65536);
}

TEST(bits_are_those_of_the_name_and_errors_those_of_the_tables) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *y = malloc(N * sizeof(*y));
    for (int is_t4 = 0; is_t4 < 2; is_t4++) {
        float *x = some(&rng, N, is_t4 == 1);
        EACH_MEMBER(m) {
            const struct tw_codec *codec = tw_codec_get(m->id);
            size_t bytes;
            uint8_t *coded = encoded(codec, x, N, &bytes);
            assert_int_equal(codec->decode(coded, bytes, y, N), TW_OK);
            const double bits = 8.0 * (double)bytes / N, error = mean_squared_error(x, y);
            print_message("%-6s %-6s %.4f bits, squared error %.5f\n", codec->name,
                          is_t4 == 1 ? "t4" : "normal", bits, error);
            assert_true(fabs(bits - m->bits) < 0.015 * m->bits + 0.005);
            assert_true(error < (is_t4 == 1 ? m->t4 : m->gauss));
            free(coded);
        }
        free(x);
    }
    free(y);
}

/* Code a means that |x| / s is in [a - 1/2 + dead, a + 1/2 + dead). It is decoded to a + shift. */
TEST(every_element_is_within_its_step) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 20000, 300000};
    EACH_MEMBER(m) for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        const size_t n = sizes[k];
        float *x = some(&rng, n, true), *y = fill_copy(x, n);
        for (size_t i = 0; i < n; i += 9973) x[i] *= 300.0f; /* far outside any alphabet */
        size_t bytes;
        uint8_t *coded = encoded(codec, x, n, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        const uint32_t c = tw_get_u16(coded);
        const double one = (int8_t)coded[2] / 256.0, more = (int8_t)coded[3] / 256.0;
        for (size_t i = 0; i < n; i++) {
            const double s = (double)tw_ecsq_unit(tw_ecsq_scale(coded + HEAD, i / 4096), c);
            const double v = fabs((double)x[i]) / s, d = fabs((double)y[i]) / s;
            const double slack = 1e-5 * (1.0 + v);
            const double shift = fabs(d - 1.0 - one) < 1e-5 ? one : more;
            if (y[i] == 0.0f) {
                assert_true(v < 0.5 + m->dead + slack);
            } else if (d > m->limit - 0.5 - slack) { /* written out */
                assert_true(fabs(v - d - m->dead) <= 0.5 + slack);
            } else {
                assert_true(fabs(v - (d - shift) - m->dead) <= 0.5 + slack);
            }
            assert_true(y[i] == 0.0f || signbit(x[i]) == signbit(y[i]));
        }
        free(x), free(y), free(coded);
    }
}

TEST(the_size_of_numbers_changes_scales_alone) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const float powers[] = {0x1p-80f, 0x1p-20f, 0x1p60f, 0x1p100f};
    const size_t n = 20000, blocks = 5;
    float *x = some(&rng, n, true), *z = fill_copy(x, n);
    EACH_MEMBER(m) for (size_t p = 0; p < 4; p++) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        size_t bytes, z_bytes;
        for (size_t i = 0; i < n; i++) z[i] = x[i] * powers[p];
        uint8_t *coded = encoded(codec, x, n, &bytes), *z_coded = encoded(codec, z, n, &z_bytes);
        assert_int_equal(z_bytes, bytes);
        assert_memory_equal(z_coded, coded, HEAD);
        assert_memory_equal(z_coded + HEAD + 2 * blocks, coded + HEAD + 2 * blocks,
                            bytes - HEAD - 2 * blocks);
        free(coded), free(z_coded);
    }
    free(x), free(z);
}

TEST(zeros_are_free) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t n = 40 * 4096, half = 20 * 4096;
    float *x = some(&rng, n, false), *y = fill_copy(x, n);
    EACH_MEMBER(m) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        size_t all, some_bytes, none;
        free(encoded(codec, x, half, &some_bytes));
        float *z = fill_copy(x, n);
        for (size_t i = half; i < n; i++) z[i] = i % 2 == 0 ? 0.0f : 0x1p-125f;
        uint8_t *coded = encoded(codec, z, n, &all);
        assert_in_range(all, some_bytes * 99 / 100, some_bytes * 101 / 100 + 20 * 2);
        assert_int_equal(codec->decode(coded, all, y, n), TW_OK);
        for (size_t i = half; i < n; i++) assert_true(y[i] == 0.0f && !signbit(y[i]));
        free(coded);
        memset(z, 0, n * sizeof(float));
        coded = encoded(codec, z, n, &none);
        assert_int_equal(none, HEAD + 2 * 40);
        assert_int_equal(codec->decode(coded, none, y, n), TW_OK);
        for (size_t i = 0; i < n; i++) assert_true(y[i] == 0.0f);
        free(coded), free(z);
    }
    free(x), free(y);
}

/* Streams of equal codes, of few codes, and of codes that do not compress. */
TEST(every_kind_of_stream_is_used) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_ECSQ2);
    float *x = some(&rng, 70000, false), y[4096];
    size_t bytes;
    uint8_t *coded = encoded(codec, x, 100, &bytes);
    assert_int_equal(coded[HEAD + 2], TW_ECSQ_RAW);
    assert_in_range(bytes, HEAD + 2 + 5 + 50 + 1, HEAD + 2 + 5 + 50 + 13);
    free(coded);
    coded = encoded(codec, x, 70000, &bytes);
    assert_int_equal(coded[HEAD + 2 * 18], TW_ECSQ_CODED);
    free(coded);
    for (size_t i = 0; i < 4096; i++) x[i] = i < 5 ? -0.25f : 0.25f;
    coded = encoded(codec, x, 4096, &bytes);
    assert_int_equal(coded[HEAD + 2], TW_ECSQ_ONE);
    assert_int_equal(bytes, HEAD + 2 + 5 + 1 + 512);
    assert_int_equal(coded[HEAD + 2 + 5 + 1], 0x1F); /* the lowest bits hold the first signs */
    assert_int_equal(codec->decode(coded, bytes, y, 4096), TW_OK);
    for (size_t i = 0; i < 4096; i++) assert_true(y[i] * x[i] > 0.05f && y[i] * x[i] < 0.075f);
    free(coded);
    memset(x, 0, 2 * 4096 * sizeof(*x)); /* two blocks without codes before the others */
    for (size_t i = 2 * 4096; i < 3 * 4096; i++) x[i] = -0.25f;
    coded = encoded(codec, x, 3 * 4096, &bytes);
    assert_int_equal(bytes, HEAD + 6 + 5 + 1 + 512);
    float z[3 * 4096];
    assert_int_equal(codec->decode(coded, bytes, z, 3 * 4096), TW_OK);
    for (size_t i = 0; i < 2 * 4096; i++) assert_true(z[i] == 0.0f);
    for (size_t i = 2 * 4096; i < 3 * 4096; i++) assert_true(z[i] < -0.2f && z[i] > -0.3f);
    free(coded), free(x);
}

/* Counts each code as the encoder does, in groups of 64 elements: all groups up to the 16384th
 * code, then one group of eight. Returns the sum of counts. */
static uint32_t counts_of(const struct tw_ecsq *ecsq, const uint8_t *codes, uint32_t count,
                          uint32_t *counts) {
    const uint32_t in_group = 64 / ecsq->in_code;
    uint32_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (i < 16384) {
            counts[codes[i]]++;
        } else if (tw_ecsq_is_counted(i / in_group)) {
            counts[codes[i]] += 8;
        } else if (counts[codes[i]] == 0) {
            counts[codes[i]] = 1;
        }
    }
    for (uint32_t s = 0; s < TW_RANS_SYMBOLS_MAX; s++) total += counts[s];
    return total;
}

/* Checks that the model of a stream (`count` elements, at `from`) is the one fitted to its decoded
 * codes. Returns the start of the next stream. */
static size_t check_model(const struct tw_ecsq *ecsq, const uint8_t *coded, size_t bytes,
                          size_t from, uint32_t count) {
    static struct tw_rans_decoder decoder;
    struct tw_rans_model model, fit;
    uint32_t counts[TW_RANS_SYMBOLS_MAX] = {0}, signs = 0;
    const uint32_t codes_count = tw_ecsq_codes(ecsq, count);
    uint8_t *codes = malloc(codes_count);
    assert_int_equal(coded[from], TW_ECSQ_CODED);
    from += TW_ECSQ_STREAM_HEAD_BYTES + 2 * (size_t)tw_get_u32(coded + from + 1);
    from += tw_rans_model_decode(&model, coded + from, bytes - from, tw_ecsq_alphabet(ecsq));
    const size_t words = from + 4 + TW_RANS_STATES_BYTES,
                 end = words + 2 * tw_get_u32(coded + from);
    assert_true(end <= bytes);
    assert_int_equal(
        tw_rans_decoder_init(&decoder, &model, coded + from + 4, coded + words, end - words),
        TW_OK);
    assert_int_equal(tw_rans_form(0)->decode(&decoder, codes, codes_count), TW_OK);
    for (uint32_t i = 0; i < codes_count; i++) {
        signs += (codes[i] & tw_ecsq_limit(ecsq)) != 0;
        signs += codes[i] >> ecsq->magnitude_bits != 0;
    }
    const uint32_t total = counts_of(ecsq, codes, codes_count, counts);
    assert_true(tw_rans_model_fit(&fit, counts, total));
    assert_memory_equal(&model, &fit, sizeof(model));
    free(codes);
    return end + (signs + 7) / 8;
}

/* Two streams, with blocks of zeros and an incomplete last block, in every variant. */
TEST(models_fit_the_counts_and_variants_agree) {
    enum { MORE = 4096 + 549, N_MOST = 128 * 4096 + MORE };
    const char *name;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = some(&rng, N_MOST, true), *y = fill_copy(x, N_MOST), *z = fill_copy(x, N_MOST);
    memset(x + 3 * 4096, 0, 2 * 4096 * sizeof(*x));
    EACH_MEMBER(m) {
        const struct tw_ecsq *ecsq = tw_base_ecsq_row(m->id);
        const uint32_t blocks = 64 * ecsq->in_code, n = 4096 * blocks + MORE;
        size_t bytes, again_bytes;
        uint8_t *coded = encoded(tw_codec_get(m->id), x, n, &bytes);
        assert_int_equal(tw_codec_get(m->id)->decode(coded, bytes, y, n), TW_OK);
        const size_t first = HEAD + 2 * (blocks + 2);
        const size_t second = check_model(ecsq, coded, bytes, first, 4096 * (blocks - 2));
        assert_int_equal(check_model(ecsq, coded, bytes, second, MORE), bytes);
        for (uint32_t f = 1; tw_codecs_form(f, &name) != NULL; f++) {
            const struct tw_codec *other = tw_codecs_form(f, &name)[m->id];
            uint8_t *again = encoded(other, x, n, &again_bytes);
            assert_int_equal(again_bytes, bytes);
            assert_memory_equal(again, coded, bytes);
            assert_int_equal(other->decode(coded, bytes, z, n), TW_OK);
            assert_memory_equal(z, y, n * sizeof(*z));
            free(again);
        }
        free(coded);
    }
    free(x), free(y), free(z);
}

/* A code that occurs once, outside the counted groups, still has a frequency. */
TEST(a_symbol_that_occurs_once_is_coded) {
    enum { MANY = 100000, ONCE = 64 * (4 * 350 + 2) + 5 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = some(&rng, MANY, false), *y = malloc(MANY * sizeof(*y));
    for (size_t i = 0; i < MANY; i++) x[i] = x[i] > 0.0f ? 0.5f : -1.0f;
    x[ONCE] = 9.0f;
    assert_false(tw_ecsq_is_counted(ONCE / 64));
    EACH_MEMBER(m) {
        size_t bytes;
        uint8_t *coded = encoded(tw_codec_get(m->id), x, MANY, &bytes);
        assert_int_equal(coded[HEAD + 2 * tw_ecsq_blocks(MANY)], TW_ECSQ_CODED);
        assert_int_equal(tw_codec_get(m->id)->decode(coded, bytes, y, MANY), TW_OK);
        assert_true(y[ONCE] > 5.0f); /* coarse, with half a bit */
        free(coded);
    }
    free(x), free(y);
}

/* Only every 20th of many blocks has values, like a matrix in which few rows changed. A sample that
 * missed all of them would give no information on their bits. */
TEST(few_rows_take_the_bits_of_the_name) {
    enum { BLOCKS = 1024, EVERY = 20, ROWS = 51 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = calloc((size_t)BLOCKS * 4096, sizeof(*x)), *row = some(&rng, 4096, false);
    for (size_t r = 0; r < ROWS; r++) memcpy(x + (r * EVERY + 3) * 4096, row, 4096 * sizeof(*x));
    EACH_MEMBER(m) {
        size_t bytes;
        free(encoded(tw_codec_get(m->id), x, (size_t)BLOCKS * 4096, &bytes));
        const double each = 8.0 * (double)bytes / (ROWS * 4096.0);
        assert_true(each < tw_codec_get(m->id)->bits + 0.25);
    }
    free(x), free(row);
}

/* A matrix 512 wide, an eighth of whose columns are larger. Counting codes only in these columns,
 * or only in the others, would give wrong frequencies. */
TEST(some_columns_take_the_bits_of_the_name) {
    enum { ALL = 1 << 20, COLUMNS = 512 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = some(&rng, ALL, false);
    for (size_t i = 0; i < ALL; i++) x[i] *= i % COLUMNS < COLUMNS / 8 ? 8.0f : 1.0f;
    EACH_MEMBER(m) {
        size_t bytes;
        free(encoded(tw_codec_get(m->id), x, ALL, &bytes));
        assert_true(8.0 * (double)bytes / ALL < tw_codec_get(m->id)->bits + 0.05);
    }
    free(x);
}

/* Draws n numbers of one of 8 kinds. */
static void draw(struct tw_rng *rng, unsigned kind, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double value = normal(rng), u = tw_rng_unit(rng);
        const bool is_rare = tw_rng_below(rng, 200) == 0;
        const double kinds[] = {value,
                                is_rare ? 200.0 * value : value,   /* some sizes are written out */
                                is_rare ? value : 0.0,             /* sparse */
                                rint(2.0 * value),                 /* few values */
                                value > 0.0 ? 0.5 : -0.5,          /* one size */
                                i / 4096 % 2 == 0 ? 0.0 : value,   /* blocks of zeros */
                                ldexp(value, -125 + (int)(6 * u)), /* tiny ones beside zeros */
                                i % 11 == 0 ? 1.0 : 0.0};
        x[i] = (float)kinds[kind];
    }
}

/* Checks one variant's bytes, decoded values and residual. */
static void check_form(const struct tw_codec *codec, const float *x, size_t n, const uint8_t *want,
                       size_t want_bytes, const float *y) {
    uint8_t *coded = malloc(codec->bound(n) + 1);
    float *z = malloc((n + 1) * sizeof(*z)), *lost = malloc((n + 1) * sizeof(*z));
    size_t bytes;
    const struct tw_codec_source source = {.x = lost, .n = n, .lost = lost};
    memcpy(lost, x, n * sizeof(*x));
    assert_int_equal(tw_codec_encode(codec, source, coded, codec->bound(n), &bytes), TW_OK);
    assert_int_equal(bytes, want_bytes);
    assert_memory_equal(coded, want, bytes);
    assert_int_equal(codec->decode(want, want_bytes, z, n), TW_OK);
    assert_memory_equal(z, y, n * sizeof(*y));
    for (size_t i = 0; i < n; i++) z[i] = x[i] - y[i];
    assert_memory_equal(lost, z, n * sizeof(*z));
    free(coded), free(z), free(lost);
}

TEST(every_form_is_the_reference) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t sizes[] = {1,    2,    3,    31,   32,   33,   63,    64,     65,    127,
                            1000, 4095, 4096, 4097, 8191, 9999, 33000, 262145, 530001};
    unsigned kinds[3] = {0};
    EACH_MEMBER(m) for (size_t c = 0; c < 8 * sizeof(sizes) / sizeof(*sizes); c++) {
        const char *name;
        const size_t n = sizes[c / 8], bound = tw_codec_get(m->id)->bound(n);
        if (n > 40000 && c % 8 != m->id % 2) continue; /* slow */
        float *x = malloc(n * sizeof(*x)), *y = malloc(n * sizeof(*y));
        uint8_t *coded = malloc(bound);
        size_t bytes;
        draw(&rng, c % 8, x, n);
        assert_int_equal(tw_codec_encode_ref(m->id, x, n, coded, bound, &bytes), TW_OK);
        assert_int_equal(tw_codec_decode_ref(m->id, coded, bytes, y, n), TW_OK);
        for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
            check_form(tw_codecs_form(f, &name)[m->id], x, n, coded, bytes, y);
        }
        const size_t stream = HEAD + 2 * tw_ecsq_blocks(n);
        if (bytes > stream) kinds[coded[stream]]++;
        free(x), free(y), free(coded);
    }
    print_message("%u coded, %u raw, %u of one code\n", kinds[0], kinds[1], kinds[2]);
    assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
}

/* Other rates than those of the codecs, as auto uses them. */
TEST(every_form_gives_the_same_bytes_at_any_rate) {
    enum { MOST = 40000 };
    const double rates[] = {0.625, 0.9, 1.1, 1.5};
    size_t fewer_bytes = 0;
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = some(&rng, MOST, true), *y = malloc(MOST * sizeof(*y));
    EACH_MEMBER(m) for (size_t r = 0; r < sizeof(rates) / sizeof(*rates); r++) {
        const char *name;
        const uint32_t bits_256 = (uint32_t)(256.0 * m->bits * rates[r]);
        const struct tw_codec_source source = {.x = x, .n = MOST};
        const size_t bound = tw_codec_get(m->id)->bound(MOST);
        uint8_t *want = malloc(bound), *got = malloc(bound);
        size_t want_bytes = 0, bytes;
        for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
            const struct tw_codec *codec = tw_codecs_form(f, &name)[m->id];
            uint8_t *const to = f == 0 ? want : got;
            assert_int_equal(codec->encode_at(m->id, bits_256, source, to, bound, &bytes), TW_OK);
            if (f == 0) want_bytes = bytes;
            assert_int_equal(bytes, want_bytes);
            assert_memory_equal(to, want, bytes);
            assert_int_equal(codec->decode(to, bytes, y, MOST), TW_OK);
        }
        assert_true(r == 0 || want_bytes > fewer_bytes);
        fewer_bytes = want_bytes;
        free(want), free(got);
    }
    free(x), free(y);
}

/* Sparse, spiky and lattice-like arrays. encode itself asserts that its output fits the bound. */
TEST(bounds_hold_for_numbers_of_any_kind) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t n = 3 * 4096 + 77;
    float *x = malloc(n * sizeof(*x)), *y = fill_new(&rng, n, 1.0f);
    EACH_MEMBER(m) for (unsigned round = 0; round < 60; round++) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        const double density = pow(2.0, -(double)tw_rng_below(&rng, 13));
        const double power = 1.0 + (double)(round % 6);
        for (size_t i = 0; i < n; i++) {
            x[i] = 1e-3f * (float)tw_rng_unit(&rng);
            if (tw_rng_unit(&rng) < density) x[i] = (float)pow(normal(&rng), power);
            if (round % 5 == 4) x[i] = rintf(x[i]);
        }
        if (round == 0) { /* as many sizes written out as nearly possible */
            for (size_t i = 0; i < n; i++) x[i] = i % 11 == 0 ? 1.0f : 0.0f;
        }
        size_t bytes;
        uint8_t *coded = encoded(codec, x, n, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        free(coded);
    }
    free(x), free(y);
}

/* Runs one round of error feedback. Returns the rms of the residual in the first block. */
static double feed_back(const struct tw_codec *codec, float *e, const float *x, float *y,
                        size_t n) {
    double left = 0.0;
    size_t bytes;
    for (size_t i = 0; i < n; i++) e[i] = 0.95f * e[i] + x[i];
    uint8_t *coded = encoded(codec, e, n, &bytes);
    assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
    free(coded);
    for (size_t i = 0; i < n; i++) e[i] -= y[i];
    for (size_t i = 0; i < 4096; i++) left += (double)e[i] * (double)e[i];
    return sqrt(left / 4096);
}

/* A block whose elements all grow alike, next to one that is mostly zeros, as in embeddings. No
 * element of the first block would ever reach a quantiser step that suits the second. */
TEST(error_feedback_leaves_no_block_for_ever) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t n = 2 * 4096;
    EACH_MEMBER(m) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        float *x = calloc(n, sizeof(*x)), *e = calloc(n, sizeof(*e)), *y = calloc(n, sizeof(*y));
        double most = 0.0;
        for (unsigned round = 0; round < 80; round++) {
            for (size_t i = 0; i < 4096; i++) {
                x[i] = (i % 2 == 0 ? 0.8f : -0.8f) + 0.4f * (float)tw_rng_unit(&rng);
            }
            for (size_t i = 4096; i < n; i++) {
                x[i] = tw_rng_unit(&rng) < 0.2 ? (float)normal(&rng) : 0.0f;
            }
            const double left = feed_back(codec, e, x, y, n);
            most = left > most ? left : most;
        }
        print_message("%-6s leaves at most %.2f of 1\n", codec->name, most);
        assert_true(most < 12.0); /* 0.95 * 20 without the bound */
        free(x), free(e), free(y);
    }
}

struct payload {
    const struct tw_codec *codec;
    size_t n, bytes, stream; /* stream: start of the first stream */
    uint8_t *data;
    float *y;
};

/* Encodes two blocks of t4 numbers with outliers, so that some sizes are written out. */
static struct payload some_payload(enum tw_codec_id id, size_t n) {
    struct payload p = {.codec = tw_codec_get(id), .n = n};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *x = some(&rng, n, true);
    for (size_t i = 5; i < n; i += 1000) x[i] *= 100.0f;
    p.data = encoded(p.codec, x, n, &p.bytes);
    p.stream = HEAD + 2 * ((n + 4095) / 4096);
    p.y = fill_new(&rng, n, 1.0f);
    free(x);
    return p;
}

static void free_payload(struct payload *p) {
    free(p->data), free(p->y);
}

static void assert_refused(const struct payload *p, const char *why) {
    if (p->codec->check(p->data, p->bytes, p->n) != TW_CORRUPT ||
        p->codec->decode(p->data, p->bytes, p->y, p->n) != TW_CORRUPT ||
        p->codec->decode_add(p->data, p->bytes, 1.0f, p->y, p->n) != TW_CORRUPT) {
        fail_msg("taken: %s", why);
    }
}

TEST(heads_that_no_encoder_writes_are_refused) {
    struct payload p = some_payload(TW_CODEC_ECSQ2, 8000);
    const struct {
        size_t at;
        uint16_t value;
        const char *why;
    } cases[] = {
        {0, 0, "a step of 0"},
        {0, (1 << 11) - 1, "a step below the least"},
        {0, (1 << 15) + 1, "a step above the largest"},
        {HEAD, 0x037F, "a scale below 2^-120"},
        {HEAD + 2, 0x7B80, "a scale of 2^120"},
        {HEAD + 2, 0x7F80, "an infinite scale"},
        {HEAD, 0x7FC0, "a scale that is no number"},
        {HEAD, 0xBF80, "a negative scale"},
        {HEAD, 0x8000, "a scale of -0"},
        {HEAD + 2, 0, "a block without codes, whose codes are there"},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const uint16_t kept = tw_get_u16(p.data + cases[c].at);
        tw_put_u16(p.data + cases[c].at, cases[c].value);
        assert_refused(&p, cases[c].why);
        tw_put_u16(p.data + cases[c].at, kept);
    }
    assert_int_equal(p.codec->check(p.data, p.bytes, p.n), TW_OK);
    free_payload(&p);
}

/* Returns the size of the model at p->data + at. */
static size_t model_bytes(const struct payload *p, size_t at) {
    struct tw_rans_model model;
    return tw_rans_model_decode(&model, p->data + at, p->bytes - at, 64);
}

TEST(streams_that_no_encoder_writes_are_refused) {
    struct payload p = some_payload(TW_CODEC_ECSQ2, 8000);
    const uint32_t written = tw_get_u32(p.data + p.stream + 1);
    const size_t first = p.stream + 5, model = first + 2 * written;
    const size_t words = model + model_bytes(&p, model);
    const size_t signs = words + 4 + 256 + 2 * tw_get_u32(p.data + words);
    assert_true(written > 3);
    assert_int_equal(p.data[p.stream], TW_ECSQ_CODED);
    assert_in_range(p.bytes - signs, 8000 / 20, 8000 / 8);
    const struct {
        size_t at;
        uint32_t value;
        const char *why;
    } cases[] = {
        {p.stream, 3 | written << 8, "a kind that is none"},
        {p.stream, TW_ECSQ_RAW | written << 8, "coded ones as raw ones"},
        {p.stream, TW_ECSQ_ONE | written << 8, "coded ones as one"},
        {p.stream + 1, written + 1, "more sizes written out than there are"},
        {p.stream + 1, written - 1, "fewer"},
        {p.stream + 1, 8001, "more sizes than elements"},
        {p.stream + 1, UINT32_MAX, "far more"},
        {first, 6 | 9u << 16, "a size that has a code"},
        {first, 0 | 9u << 16, "none"},
        {first, 0x7FFFu | 9u << 16, "a size out of reach"},
        {first, 0xFFF9u | 9u << 16, "a negative one"},
        {words, tw_get_u32(p.data + words) + 1, "more words than there are"},
        {words, tw_get_u32(p.data + words) - 1, "fewer"},
        {words, UINT32_MAX, "far more"},
        {words + 4, 0x7FFF, "a state too small"},
        {words + 4 + 4 * 63, 0x80000000u, "a state too large"},
        {model, 0, "a model of nothing"},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const uint32_t kept = tw_get_u32(p.data + cases[c].at);
        assert_true(kept != cases[c].value);
        tw_put_u32(p.data + cases[c].at, cases[c].value);
        assert_refused(&p, cases[c].why);
        tw_put_u32(p.data + cases[c].at, kept);
    }
    assert_int_equal(p.codec->check(p.data, p.bytes, p.n), TW_OK);
    free_payload(&p);
}

TEST(raw_codes_that_no_encoder_writes_are_refused) {
    struct payload p = some_payload(TW_CODEC_ECSQ1, 99);
    const size_t codes = p.stream + 5;
    uint8_t *const last = p.data + codes + 49;
    assert_int_equal(p.data[p.stream], TW_ECSQ_RAW);
    const uint8_t kept = *last;
    *last = 64;
    assert_refused(&p, "code 64 of 64");
    *last = 7;
    assert_refused(&p, "a size that is not written out");
    *last = (uint8_t)(kept | 8);
    assert_refused(&p, "something behind the last element");
    *last = kept;
    assert_int_equal(p.codec->check(p.data, p.bytes, p.n), TW_OK);
    free_payload(&p);
}

/* A raw stream of 4 elements, -s, 0, 0, s: two codes and a byte of signs. */
TEST(signs_that_no_encoder_writes_are_refused) {
    uint8_t data[] = {0, 16, 0, 0, 0x80, 0x3F, TW_ECSQ_RAW, 0, 0, 0, 0, 1, 8, 1};
    struct payload p = {.codec = tw_codec_get(TW_CODEC_ECSQ2), .n = 4, .bytes = sizeof(data)};
    float y[4] = {0};
    const float want[4] = {-1.0f, 0.0f, 0.0f, 1.0f};
    p.data = data, p.y = y;
    data[13] = 1 | 4;
    assert_refused(&p, "a third sign for two");
    data[13] = 1 | 128;
    assert_refused(&p, "an eighth one");
    data[13] = 1;
    p.bytes--;
    assert_refused(&p, "no signs");
    p.bytes++;
    assert_int_equal(p.codec->decode(data, sizeof(data), y, 4), TW_OK);
    assert_memory_equal(y, want, sizeof(want));
}

/* One code for all 4096 elements says that every size is written out, but none is. A decoder
 * without a check would read far past the end. */
TEST(sizes_that_are_not_there_are_refused) {
    enum { ALL = 4096, KIND = HEAD + 2, CODE = KIND + TW_ECSQ_STREAM_HEAD_BYTES };
    const char *name;
    struct payload p = {.n = ALL, .bytes = CODE + 1 + ALL / 8};
    p.data = calloc(p.bytes, 1);
    p.y = calloc(ALL, sizeof(*p.y));
    tw_put_u16(p.data, 512);
    tw_put_u16(p.data + HEAD, 0x3F80);
    p.data[KIND] = TW_ECSQ_ONE;
    p.data[CODE] = 31;
    for (uint32_t f = 0; tw_codecs_form(f, &name) != NULL; f++) {
        p.codec = tw_codecs_form(f, &name)[TW_CODEC_ECSQ4];
        assert_refused(&p, name);
    }
    free_payload(&p);
}

/* Payloads in which every field has the largest value that a decoder accepts. */
TEST(accepted_payloads_are_finite) {
    EACH_MEMBER(m) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        const struct tw_ecsq *ecsq = tw_base_ecsq_row(m->id);
        const uint32_t limit = tw_ecsq_limit(ecsq), codes = tw_ecsq_codes(ecsq, 2);
        uint8_t data[HEAD + 2 + 5 + 2 + 2 + 1] = {0x00, 0x80, 127, 127, 0x7F, 0x7B, TW_ECSQ_RAW};
        const size_t at = HEAD + 2 + 5;
        float y[2];
        assert_int_equal(limit, m->limit);
        data[at] = (uint8_t)((limit - 1) * (codes == 1 ? limit + 2 : 1));
        if (codes == 2) data[at + 1] = data[at];
        data[at + codes] = 3;
        assert_int_equal(codec->decode(data, at + codes + 1, y, 2), TW_OK);
        assert_true(isfinite(y[0]) && y[0] < 0.0f && y[1] == y[0]);
        tw_put_u16(data, 1 << 12);
        data[HEAD + 2 + 1] = 1;
        tw_put_u16(data + at, 66);
        data[at + 2] = (uint8_t)limit;
        data[at + 3] = 0;
        data[at + 2 + codes] = 0;
        assert_int_equal(codec->decode(data, at + 2 + codes + 1, y, 2), TW_OK);
        assert_true(isfinite(y[0]) && y[0] > 0x1p125f);
        assert_true(y[1] == 0.0f);
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
