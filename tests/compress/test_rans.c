/* test_rans.c - decoded symbols equal the encoded ones, every variant gives the same bytes, and
 * incomplete streams are refused. */
#include "compress/rans.h"

#include "base/bytes.h"
#include "kernels/ops.h"
#include "tests/kernels/fill.h"

enum { SEED = 4096, N_MAX = 70000, STREAM_BYTES = TW_RANS_STATES_BYTES + 2 * N_MAX + 64 };

struct stream {
    struct tw_rans_model model;
    uint8_t states[TW_RANS_STATES_BYTES];
    uint8_t *words; /* exactly words_bytes on the heap: a sanitizer sees any access past it */
    size_t words_bytes;
};

/* Returns random symbols below `symbols`. Larger symbols are rarer, the more so with larger `skew`.
 */
static uint8_t *some_symbols(struct tw_rng *rng, size_t n, unsigned symbols, double skew) {
    uint8_t *s = malloc(n > 0 ? n : 1);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) {
        s[i] = (uint8_t)(pow(tw_rng_unit(rng), skew) * symbols);
    }
    return s;
}

static bool fit(struct tw_rans_model *model, const uint8_t *symbols, size_t n) {
    uint32_t counts[256] = {0};
    for (size_t i = 0; i < n; i++) counts[symbols[i]]++;
    return tw_rans_model_fit(model, counts, (uint32_t)n);
}

/* Encodes in several calls of `step` symbols each, a multiple of 64. */
static struct stream coded(const struct tw_rans_form *form, const struct tw_rans_model *model,
                           const uint8_t *symbols, size_t n, size_t step) {
    struct stream stream = {.model = *model};
    static struct tw_rans_encoder encoder;
    const size_t room = 2 * n + TW_RANS_WORDS_SLACK;
    uint8_t *words = malloc(room);
    assert_non_null(words);
    tw_rans_encoder_init(&encoder, model);
    for (size_t tiles = (n + step - 1) / step; tiles-- > 0;) {
        const size_t at = tiles * step, count = n - at < step ? n - at : step;
        stream.words_bytes +=
            form->encode(&encoder, symbols + at, count, words + room - stream.words_bytes);
    }
    tw_rans_encoder_finish(&encoder, stream.states);
    stream.words = malloc(stream.words_bytes + 1);
    memcpy(stream.words, words + room - stream.words_bytes, stream.words_bytes);
    stream.words = realloc(stream.words, stream.words_bytes > 0 ? stream.words_bytes : 1);
    assert_non_null(stream.words);
    free(words);
    return stream;
}

static enum tw_status decoded(const struct tw_rans_form *form, const struct stream *stream,
                              uint8_t *symbols, size_t n, size_t step) {
    static struct tw_rans_decoder decoder;
    TW_TRY(tw_rans_decoder_init(&decoder, &stream->model, stream->states, stream->words,
                                stream->words_bytes));
    for (size_t at = 0; at < n; at += step) {
        TW_TRY(form->decode(&decoder, symbols + at, n - at < step ? n - at : step));
    }
    return tw_rans_decoder_finish(&decoder);
}

static const struct tw_rans_form *plain_form(void) {
    uint32_t i = 0;
    while (tw_rans_form(i + 1) != NULL) i++;
    assert_string_equal(tw_rans_form(i)->name, "plain");
    return tw_rans_form(i);
}

TEST(every_form_gives_the_bytes_of_the_plain_one) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const size_t sizes[] = {2, 63, 64, 65, 127, 128, 1000, 4096, 5000, N_MAX};
    const unsigned alphabets[] = {2, 3, 14, 16, 17, 32, 33, 64, 65, 256};
    const double skews[] = {1.0, 3.0, 30.0};
    uint8_t *back = malloc(N_MAX);
    unsigned tried = 0;
    for (size_t c = 0; c < 10 * 10 * 3; c++) {
        const size_t n = sizes[c / 30];
        uint8_t *symbols = some_symbols(&rng, n, alphabets[c / 3 % 10], skews[c % 3]);
        struct tw_rans_model model;
        if (!fit(&model, symbols, n)) {
            free(symbols);
            continue;
        }
        struct stream want = coded(plain_form(), &model, symbols, n, 1 << 20);
        for (uint32_t i = 0; tw_rans_form(i) != NULL; i++) {
            const struct tw_rans_form *form = tw_rans_form(i);
            struct stream got = coded(form, &model, symbols, n, 192);
            assert_int_equal(got.words_bytes, want.words_bytes);
            assert_memory_equal(got.words, want.words, want.words_bytes);
            assert_memory_equal(got.states, want.states, sizeof(want.states));
            memset(back, 0xEE, N_MAX);
            assert_int_equal(decoded(form, &got, back, n, c % 2 == 0 ? 64 : 4096), TW_OK);
            assert_memory_equal(back, symbols, n);
            free(got.words);
            tried++;
        }
        free(want.words), free(symbols);
    }
    print_message("%u streams, best form %s\n", tried, tw_rans_form(0)->name);
    free(back);
}

/* Returns the order-0 entropy of all symbols together, in bits. */
static double entropy_bits(const uint8_t *symbols, size_t n) {
    double counts[256] = {0}, bits = 0.0;
    for (size_t i = 0; i < n; i++) counts[symbols[i]] += 1.0;
    for (unsigned s = 0; s < 256; s++) {
        if (counts[s] > 0.0) bits -= counts[s] * log2(counts[s] / (double)n);
    }
    return bits;
}

TEST(streams_are_as_short_as_their_entropy) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    const unsigned alphabets[] = {2, 16, 64, 256};
    const double skews[] = {1.0, 3.0, 10.0};
    for (unsigned c = 0; c < 12; c++) {
        uint8_t *symbols = some_symbols(&rng, N_MAX, alphabets[c / 3], skews[c % 3]);
        struct tw_rans_model model;
        assert_true(fit(&model, symbols, N_MAX));
        struct stream stream = coded(tw_rans_form(0), &model, symbols, N_MAX, 1 << 20);
        const double best = entropy_bits(symbols, N_MAX) / N_MAX;
        const double bits = 8.0 * ((double)stream.words_bytes + sizeof(stream.states)) / N_MAX;
        print_message("%3u symbols, skew %2.0f: entropy %.4f, coded %.4f bits\n", alphabets[c / 3],
                      skews[c % 3], best, bits);
        /* The final states add 8 * 256 / 70000 = 0.029 bits per symbol, half of which is content.
         */
        assert_true(bits < best + 0.03);
        free(stream.words), free(symbols);
    }
}

TEST(frequencies_add_up_and_forget_no_symbol) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (unsigned round = 0; round < 500; round++) {
        uint32_t counts[256] = {0}, total = 0;
        const unsigned symbols = 2 + (unsigned)tw_rng_below(&rng, 255);
        for (unsigned s = 0; s < symbols; s++) {
            /* Counts from one to millions. */
            counts[s] = 1 + (uint32_t)(tw_rng_next(&rng) >> (40 + tw_rng_below(&rng, 24)));
            total += counts[s];
        }
        struct tw_rans_model model, back;
        assert_true(tw_rans_model_fit(&model, counts, total));
        unsigned sum = 0;
        for (unsigned s = 0; s < 256; s++) {
            sum += model.frequency[s];
            assert_int_equal(model.frequency[s] > 0, counts[s] > 0);
        }
        assert_int_equal(sum, TW_RANS_TOTAL);
        uint8_t bytes[TW_RANS_MODEL_BYTES_MAX];
        const size_t size = tw_rans_model_encode(&model, bytes);
        assert_in_range(size, symbols, symbols + 31); /* at most 31 symbols can have 128 or more */
        assert_int_equal(tw_rans_model_decode(&back, bytes, size, 256), size);
        assert_memory_equal(&back, &model, sizeof(model));
    }
    const uint32_t lonely[256] = {[7] = 100}, none[256] = {0};
    struct tw_rans_model model;
    assert_false(tw_rans_model_fit(&model, lonely, 100));
    assert_false(tw_rans_model_fit(&model, none, 0));
}

static size_t model_size(const uint8_t *bytes, size_t size, unsigned symbols) {
    struct tw_rans_model model;
    uint8_t *exact = malloc(size > 0 ? size : 1);
    memcpy(exact, bytes, size);
    const size_t used = tw_rans_model_decode(&model, exact, size, symbols);
    free(exact);
    return used;
}

TEST(a_model_that_no_encoder_writes_is_refused) {
    /* 3 symbols: 1, 4 and 9 with frequencies 4000, 90 and 6. */
    const uint8_t good[] = {0, 0, 0x8F, 0xA0, 0, 1, 90, 0, 3, 6};
    uint8_t bytes[sizeof(good)];
    assert_int_equal(model_size(good, sizeof(good), 10), sizeof(good));
    for (size_t size = 0; size < sizeof(good); size++) {
        assert_int_equal(model_size(good, size, 10), 0);
    }
    assert_int_equal(model_size(good, sizeof(good), 9), 0); /* a symbol too large */
    const struct {
        size_t at;
        uint8_t value;
        const char *why;
    } cases[] = {
        {9, 5, "a sum of 4095"},          {9, 7, "a sum of 4097"},
        {2, 0x90, "one symbol has 4256"}, {6, 0, "zeros up to the end"},
        {1, 255, "symbol 256"},           {5, 255, "more zeros than there are"},
        {8, 4, "the last is symbol 10"},  {2, 0xFF, "far above the total"},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        memcpy(bytes, good, sizeof(good));
        bytes[cases[c].at] = cases[c].value;
        if (model_size(bytes, sizeof(bytes), 10) != 0) fail_msg("taken: %s", cases[c].why);
    }
    const uint8_t wide[] = {0x8F, 0xF0, 0x80, 16}, narrow[] = {0x8F, 0xF0, 16}, all[] = {0x90, 0};
    assert_int_equal(model_size(narrow, sizeof(narrow), 10), sizeof(narrow));
    assert_int_equal(model_size(wide, sizeof(wide), 10), 0); /* two bytes where one suffices */
    assert_int_equal(model_size(all, sizeof(all), 10), 0);   /* one symbol has all */
    uint8_t zeros[600] = {0};
    assert_int_equal(model_size(zeros, sizeof(zeros), 256), 0);
}

struct fixture {
    struct stream stream;
    uint8_t *symbols, *back;
};

enum { N = 3000 };

static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    f->symbols = some_symbols(&rng, N, 16, 3.0);
    f->back = malloc(N);
    struct tw_rans_model model;
    assert_true(fit(&model, f->symbols, N));
    f->stream = coded(tw_rans_form(0), &model, f->symbols, N, 1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    free(f->stream.words), free(f->symbols), free(f->back), free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

#define EACH_FORM(i) for (uint32_t i = 0; tw_rans_form(i) != NULL; i++)

FACT(states_out_of_range_are_refused) {
    struct fixture *f = *state;
    const uint32_t bad[] = {0, 1, 0x7FFF, 0x80000000u, 0xFFFFFFFFu};
    EACH_FORM(i) for (unsigned j = 0; j < TW_RANS_LANES; j += 9) {
        uint8_t kept[4];
        memcpy(kept, f->stream.states + 4 * j, 4);
        for (size_t b = 0; b < 5; b++) {
            tw_put_u32(f->stream.states + 4 * j, bad[b]);
            assert_int_equal(decoded(tw_rans_form(i), &f->stream, f->back, N, 4096), TW_CORRUPT);
        }
        memcpy(f->stream.states + 4 * j, kept, 4);
    }
    EACH_FORM(i) {
        assert_int_equal(decoded(tw_rans_form(i), &f->stream, f->back, N, 4096), TW_OK);
    }
}

FACT(missing_and_left_over_words_are_refused) {
    struct fixture *f = *state;
    struct stream cut = f->stream;
    EACH_FORM(i) {
        for (size_t bytes = 0; bytes < f->stream.words_bytes + 8; bytes++) {
            if (bytes == f->stream.words_bytes) continue;
            cut.words_bytes = bytes;
            cut.words = calloc(1, bytes > 0 ? bytes : 1);
            memcpy(cut.words, f->stream.words,
                   bytes < f->stream.words_bytes ? bytes : f->stream.words_bytes);
            assert_int_equal(decoded(tw_rans_form(i), &cut, f->back, N, 4096), TW_CORRUPT);
            free(cut.words);
        }
        cut = f->stream;
        assert_int_equal(decoded(tw_rans_form(i), &cut, f->back, N - 1, 4096), TW_CORRUPT);
    }
}

/* If all symbols are the same rare symbol, all lanes read a word at once. */
TEST(lanes_in_step_take_the_last_word_and_no_other) {
    enum { GROUPS = 8, COUNT = TW_RANS_LANES * GROUPS };
    const struct tw_rans_model model = {.frequency = {TW_RANS_TOTAL - 1, 1}};
    uint8_t symbols[COUNT], back[COUNT];
    memset(symbols, 1, COUNT);
    EACH_FORM(i) {
        struct stream whole = coded(tw_rans_form(i), &model, symbols, COUNT, COUNT);
        assert_int_equal(whole.words_bytes, 2 * COUNT * 3 / 4); /* 12 bits a symbol */
        assert_int_equal(decoded(tw_rans_form(i), &whole, back, COUNT, COUNT), TW_OK);
        assert_memory_equal(back, symbols, COUNT);
        for (size_t bytes = 2; bytes <= 2 * TW_RANS_LANES; bytes += 2) {
            struct stream cut = whole;
            cut.words_bytes -= bytes;
            cut.words = malloc(cut.words_bytes);
            memcpy(cut.words, whole.words, cut.words_bytes);
            assert_int_equal(decoded(tw_rans_form(i), &cut, back, COUNT, COUNT), TW_CORRUPT);
            free(cut.words);
        }
        free(whole.words);
    }
}

/* Each sequence of symbols has exactly one encoding. If a changed stream still ends correctly, it
 * is the valid encoding of other symbols. */
FACT(damage_is_seen_or_is_another_stream) {
    struct fixture *f = *state;
    unsigned seen = 0, tried = 0;
    EACH_FORM(i) for (size_t bit = 0; bit < 8 * f->stream.words_bytes; bit += 3, tried++) {
        f->stream.words[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (decoded(tw_rans_form(i), &f->stream, f->back, N, 4096) == TW_OK) {
            struct stream other = coded(tw_rans_form(i), &f->stream.model, f->back, N, 1 << 20);
            assert_int_equal(other.words_bytes, f->stream.words_bytes);
            assert_memory_equal(other.words, f->stream.words, other.words_bytes);
            free(other.words);
        } else {
            seen++;
        }
        f->stream.words[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    print_message("%u of %u flips seen\n", seen, tried);
    assert_true(seen * 100 >= tried * 95);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
