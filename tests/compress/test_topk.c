/* test_topk.c - exactly k elements are kept, the largest, as sign and mean; invalid positions are
 * refused. */
#include "compress/codec_sparse.h"

#include "base/bytes.h"
#include "compress/rice.h"
#include "kernels/type.h"
#include "tests/kernels/fill.h"

enum { SEED = 64, CHUNK = TW_SPARSE_CHUNK };

static const struct member {
    enum tw_codec_id id;
    uint32_t k;
    unsigned r;
} members[] = {{TW_CODEC_TOPK256, 256, 3}, {TW_CODEC_TOPK64, 64, 5}, {TW_CODEC_TOPK32, 32, 6}};

#define EACH_MEMBER(m)                                                                             \
    for (const struct member *m = members; m < members + sizeof(members) / sizeof(*members); m++)

static uint8_t *encoded(const struct tw_codec *codec, const float *x, size_t n, size_t *bytes) {
    const size_t capacity = codec->bound(n);
    uint8_t *to = malloc(capacity > 0 ? capacity : 1);
    assert_int_equal(codec->encode(x, n, to, capacity, bytes), TW_OK);
    assert_true(*bytes <= capacity);
    to = realloc(to, *bytes > 0 ? *bytes : 1); /* exact size: a sanitizer reports reads past it */
    assert_non_null(to);
    return to;
}

/* Returns a magnitude of one of several kinds, in which many are equal. */
static uint32_t some_magnitude(struct tw_rng *rng, unsigned kind) {
    const uint32_t bits = (uint32_t)tw_rng_next(rng);
    const float value = (float)pow(tw_rng_unit(rng), -0.4);
    uint32_t magnitude;
    memcpy(&magnitude, &value, sizeof(magnitude));
    switch (kind) {
    case 0: return bits >> 1;
    case 1: return magnitude;
    case 2: return bits % 7;
    case 3: return bits % 50 == 0 ? magnitude : 0;
    case 4: return 0x3F800000u;
    case 5: return bits % 3 == 0 ? 0x3F800000u : 0x3F7FFFFFu;
    default: return bits % 300 == 0 ? 0x7E7FFFFFu : 0;
    }
}

TEST(the_largest_are_kept_whatever_the_guess) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const uint32_t counts[] = {1, 2, 63, 64, 65, 1000, 4095, 4096};
    uint32_t magnitudes[CHUNK], guess = 0;
    for (unsigned kind = 0; kind < 7; kind++) {
        for (unsigned c = 0; c < 8; c++) {
            const uint32_t count = counts[c];
            for (uint32_t k = 1; k <= count && k <= TW_TOPK_MAX; k = k * 2 + (k == 4)) {
                uint16_t want[TW_TOPK_MAX], got[TW_TOPK_MAX];
                for (uint32_t i = 0; i < count; i++) {
                    magnitudes[i] = some_magnitude(&rng, kind);
                }
                tw_topk_select_ref(magnitudes, count, k, want);
                const uint32_t guesses[] = {guess, 0, UINT32_MAX, magnitudes[0]};
                for (unsigned g = 0; g < 4; g++) {
                    guess = guesses[g];
                    tw_base_topk_select(magnitudes, count, k, got, &guess);
                    assert_memory_equal(got, want, k * sizeof(want[0]));
                }
            }
        }
    }
}

/* A chunk of `count` elements keeps k / 4096 of them, rounded up. */
TEST(exactly_k_are_decoded_to_their_mean) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t sizes[] = {1, 15, 16, 17, 100, 4095, 4096, 4097, 20000};
    EACH_MEMBER(m) for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        const size_t n = sizes[s];
        float *x = fill_new(&rng, n, 1e-3f), *y = fill_copy(x, n);
        size_t bytes;
        uint8_t *coded = encoded(codec, x, n, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, n), TW_OK);
        for (size_t at = 0; at < n; at += CHUNK) {
            const size_t count = n - at < CHUNK ? n - at : CHUNK;
            double kept_least = 1.0, left_most = 0.0, sum = 0.0;
            size_t kept = 0;
            for (size_t i = at; i < at + count; i++) {
                const double size = fabs((double)x[i]);
                if (y[i] == 0.0f) {
                    left_most = fmax(left_most, size);
                    continue;
                }
                kept_least = fmin(kept_least, size);
                sum += size;
                kept++;
                assert_true(signbit(y[i]) == signbit(x[i]));
                assert_true(fabsf(y[i]) == tw_bf16_to_f32(tw_get_u16(coded + 2 * (at / CHUNK))));
            }
            assert_int_equal(kept, (m->k * count + CHUNK - 1) / CHUNK);
            assert_true(kept_least >= left_most);
            const double mean = (double)tw_bf16_to_f32(tw_get_u16(coded + 2 * (at / CHUNK)));
            assert_true(fabs(mean - sum / (double)kept) <= 0x1p-8 * mean);
        }
        free(x), free(y), free(coded);
    }
}

/* Elements that were not kept are skipped: adding a weighted 0 to -0 would give +0. */
TEST(elements_that_are_not_kept_do_not_change) {
    enum { N = 2 * CHUNK + 100 };
    struct tw_rng rng;
    float *const x = malloc(3 * N * sizeof(*x)), *const y = x + N, *const sum = y + N;
    tw_rng_seed(&rng, SEED);
    for (size_t i = 0; i < N; i++) x[i] = (float)tw_rng_unit(&rng) - 0.5f;
    for (size_t i = 0; i < CHUNK; i++) x[i] = 0.0f;
    const char *name;
    const struct tw_codec *const *codecs;
    for (uint32_t form = 0; (codecs = tw_codecs_form(form, &name)) != NULL; form++) EACH_MEMBER(m) {
            const struct tw_codec *const codec = codecs[m->id];
            size_t bytes;
            uint8_t *const coded = encoded(codec, x, N, &bytes);
            for (size_t i = 0; i < N; i++) sum[i] = -0.0f;
            assert_int_equal(codec->decode(coded, bytes, y, N), TW_OK);
            assert_int_equal(codec->decode_add(coded, bytes, 0.5f, sum, N), TW_OK);
            for (size_t i = 0; i < N; i++) {
                assert_true(y[i] == 0.0f ? sum[i] == 0.0f && signbit(sum[i])
                                         : sum[i] == 0.5f * y[i]);
            }
            free(coded);
        }
    free(x);
}

TEST(chunks_of_zeros_take_a_mean_alone) {
    float x[3 * CHUNK] = {0}, y[3 * CHUNK];
    size_t bytes;
    EACH_MEMBER(m) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        uint8_t *coded = encoded(codec, x, 3 * CHUNK, &bytes);
        assert_int_equal(bytes, 6);
        memset(y, 1, sizeof(y));
        assert_int_equal(codec->decode(coded, bytes, y, 3 * CHUNK), TW_OK);
        for (size_t i = 0; i < 3 * CHUNK; i++) assert_true(y[i] == 0.0f);
        free(coded);
        x[CHUNK + 9] = -1.0f; /* the first k - 1 zeros are kept too */
        coded = encoded(codec, x, 3 * CHUNK, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, 3 * CHUNK), TW_OK);
        assert_true(y[CHUNK + 9] == -1.0f / (float)m->k && y[CHUNK] == 1.0f / (float)m->k);
        assert_true(y[CHUNK - 1] == 0.0f && y[2 * CHUNK] == 0.0f);
        free(coded);
        x[CHUNK + 9] = 0.0f;
    }
}

/* The longest gaps: elements at the end of each chunk only, or at its beginning and its end. */
TEST(bounds_hold_for_positions_of_any_kind) {
    float *x = malloc(3 * CHUNK * sizeof(*x)), *y = malloc(3 * CHUNK * sizeof(*y));
    EACH_MEMBER(m) for (unsigned kind = 0; kind < 4; kind++) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        size_t bytes;
        for (size_t i = 0; i < 3 * CHUNK; i++) {
            const size_t at = i % CHUNK;
            const bool is_last = at >= CHUNK - m->k, is_first = at < m->k / 2;
            const bool is_edge = is_first || at >= CHUNK - m->k / 2;
            const bool is_even = at % (CHUNK / m->k) == CHUNK / m->k - 1;
            const bool is_large = kind == 0   ? is_last
                                  : kind == 1 ? is_edge
                                  : kind == 2 ? is_even
                                              : at == CHUNK - 1 || at + 1 < m->k;
            x[i] = is_large ? 2.0f : 1e-3f;
        }
        uint8_t *coded = encoded(codec, x, 3 * CHUNK, &bytes);
        assert_int_equal(codec->decode(coded, bytes, y, 3 * CHUNK), TW_OK);
        for (size_t i = 0; i < 3 * CHUNK; i++) assert_true((x[i] == 2.0f) == (y[i] == 2.0f));
        free(coded);
    }
    free(x), free(y);
}

TEST(gaps_come_back_until_bits_run_out) {
    const uint32_t gaps[] = {0, 1, 7, 8, 4095, 0, 31, 32, 62, 63, 64, 500, 4095, 3};
    enum { GAPS = sizeof(gaps) / sizeof(gaps[0]) };
    for (unsigned r = 0; r <= 6; r++) {
        uint8_t bytes[4096];
        struct tw_bits_writer to = {.at = bytes};
        for (size_t i = 0; i < GAPS; i++) tw_bits_put_gap(&to, gaps[i], r);
        tw_bits_pad(&to);
        const size_t size = (size_t)(to.at - bytes);
        for (size_t cut = 0; cut <= size; cut++) {
            uint8_t *exact = malloc(cut > 0 ? cut : 1);
            memcpy(exact, bytes, cut);
            struct tw_bits_reader from = {.at = exact, .end = exact + cut};
            uint32_t gap;
            size_t read = 0;
            while (read < GAPS && tw_bits_get_gap(&from, r, 4096, &gap)) {
                assert_int_equal(gap, gaps[read++]);
            }
            assert_true(cut == size ? read == GAPS : read < GAPS);
            if (cut == size) assert_true(tw_bits_end(&from) && from.at == from.end);
            free(exact);
        }
        struct tw_bits_reader from = {.at = bytes, .end = to.at};
        uint32_t gap;
        for (size_t i = 0; i < 4; i++) assert_true(tw_bits_get_gap(&from, r, 4096, &gap));
        assert_false(tw_bits_get_gap(&from, r, 4095, &gap)); /* a gap as large as the rest */
    }
    const uint8_t zeros[4096] = {0};
    struct tw_bits_reader from = {.at = zeros, .end = zeros + sizeof(zeros)};
    uint32_t gap;
    assert_false(tw_bits_get_gap(&from, 0, 4096, &gap));
    assert_true(from.at - zeros <= 4096 / 8 + 16); /* reading stops */
}

static void assert_refused(const struct tw_codec *codec, const uint8_t *coded, size_t bytes,
                           size_t n, const char *why) {
    float *y = calloc(n, sizeof(*y));
    uint8_t *exact = malloc(bytes);
    memcpy(exact, coded, bytes);
    if (codec->check(exact, bytes, n) != TW_CORRUPT ||
        codec->decode(exact, bytes, y, n) != TW_CORRUPT ||
        codec->decode_add(exact, bytes, 1.0f, y, n) != TW_CORRUPT) {
        fail_msg("%s taken: %s", codec->name, why);
    }
    free(y), free(exact);
}

/* Writes one chunk with k positive elements at the given distances, and `more` zero bits at the
 * end. */
static size_t written(const struct member *m, uint8_t *to, const uint32_t *gaps, uint32_t k,
                      unsigned more) {
    struct tw_bits_writer bits = {.at = to + 2};
    tw_put_u16(to, 0x3F80);
    for (uint32_t i = 0; i < k; i++) {
        tw_bits_put_gap(&bits, gaps[i], m->r);
        tw_bits_put(&bits, 0, 1);
    }
    tw_bits_put(&bits, 0, more % 32);
    tw_bits_pad(&bits);
    return (size_t)(bits.at - to);
}

TEST(positions_that_no_encoder_writes_are_refused) {
    EACH_MEMBER(m) {
        const struct tw_codec *codec = tw_codec_get(m->id);
        uint32_t gaps[TW_TOPK_MAX] = {0};
        uint8_t coded[4096];
        gaps[0] = CHUNK - m->k; /* the last k elements have the largest positions */
        size_t bytes = written(m, coded, gaps, m->k, 0);
        assert_int_equal(codec->check(coded, bytes, CHUNK), TW_OK);
        assert_refused(codec, coded, bytes, CHUNK - 1, "an element beyond the end");
        assert_refused(codec, coded, bytes - 1, CHUNK, "a byte less");
        assert_refused(codec, coded, bytes + 1, CHUNK, "a byte more");
        bytes = written(m, coded, gaps, m->k, 16);
        assert_refused(codec, coded, bytes, CHUNK, "two bytes more");
        gaps[m->k - 1] = 1;
        bytes = written(m, coded, gaps, m->k, 0);
        assert_refused(codec, coded, bytes, CHUNK, "gaps that add up to more than there is");
        gaps[m->k - 1] = 0;
        bytes = written(m, coded, gaps, m->k - 1, 0);
        assert_refused(codec, coded, bytes, CHUNK, "fewer than k");
        memset(coded + 2, 0, 1000);
        assert_refused(codec, coded, 1002, CHUNK, "zeros without end");
        gaps[0] = 0;
        bytes = written(m, coded, gaps, m->k, 0);
        const uint16_t bad[] = {0x7F80, 0x7FC0, 0x8000, 0xBF80, 0xFF80, 0};
        for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
            tw_put_u16(coded, bad[b]);
            assert_refused(codec, coded, bytes, CHUNK, "a mean that is none");
        }
    }
}

TEST(padding_that_is_not_zero_is_refused) {
    const struct tw_codec *codec = tw_codec_get(TW_CODEC_TOPK32);
    float x[100];
    size_t bytes;
    for (size_t i = 0; i < 100; i++) x[i] = i == 50 ? 1.0f : 0.0f;
    uint8_t *coded = encoded(codec, x, 100, &bytes); /* 1 + 6 + 1 bits, plus the mean */
    assert_int_equal(codec->check(coded, bytes, 100), TW_OK);
    assert_int_equal(bytes, 3);
    free(coded);
    coded = encoded(tw_codec_get(TW_CODEC_TOPK64), x, 100, &bytes);
    assert_int_equal(bytes, 4); /* 2 elements kept: 0 and 50, with 1 + 5 + 1 and 2 + 5 + 1 bits */
    coded[3] |= 0x80;
    assert_refused(tw_codec_get(TW_CODEC_TOPK64), coded, bytes, 100, "a bit in the padding");
    free(coded);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
