/* test_codec_golden.c - every codec gives the payloads that NumPy computes from the same arrays and
 * equations: tests/golden/codecs.txt and entropy.txt, made by make_codecs.py and make_entropy.py.
 */
#include "compress/codec.h"

#include "tests/kernels/fill.h"

enum { ELEMENTS_MAX = 5000, LINE_BYTES = 16384, WORD_BYTES = 16 };

static char **paths; /* ends with NULL */

static const struct {
    const char *name;
    int exponent;
    bool has_tails, is_zero;
    unsigned one_of; /* one element in one_of is nonzero; 0: all are */
} cases[] = {{"usual", -20, false, false, 0},  {"tails", -33, true, false, 0},
             {"large", 100, true, false, 0},   {"small", -110, true, false, 0},
             {"tiny", -140, false, false, 0},  {"zero", 0, false, true, 0},
             {"sparse", -20, false, false, 29}};

static uint32_t hash32(uint32_t number, uint32_t index) {
    uint32_t x = number * 1000003u + index * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    return x ^ x >> 13;
}

static void elements_of(const char *name, float *x, size_t n) {
    uint32_t number = 0;
    while (strcmp(cases[number].name, name) != 0) {
        number++;
        assert_true(number < sizeof(cases) / sizeof(cases[0]));
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t h = hash32(number, i);
        const int value = (int)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24)) - 510;
        const bool is_large = cases[number].has_tails && h % 61 == 0;
        const unsigned one_of = cases[number].one_of;
        x[i] = cases[number].is_zero || (one_of > 0 && h % one_of != 0)
                   ? 0.0f
                   : (float)ldexp(is_large ? 64 * value : value, cases[number].exponent);
    }
}

static size_t bytes_of(const char *hex, uint8_t *bytes) {
    size_t count = 0;
    for (unsigned byte; sscanf(hex + 2 * count, "%2x", &byte) == 1; count++) {
        bytes[count] = (uint8_t)byte;
    }
    return count;
}

static uint64_t sum_of(const float *x, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof(bits));
        sum += (i + 1) * bits;
    }
    return sum;
}

static void check(const struct tw_codec *codec, const float *x, size_t n, const uint8_t *want,
                  size_t want_bytes, uint64_t want_sum) {
    float y[ELEMENTS_MAX];
    uint8_t *coded = malloc(codec->bound(n));
    size_t bytes;
    assert_int_equal(codec->encode(x, n, coded, codec->bound(n), &bytes), TW_OK);
    assert_int_equal(bytes, want_bytes);
    assert_memory_equal(coded, want, bytes);
    assert_int_equal(codec->decode(want, want_bytes, y, n), TW_OK);
    assert_true(sum_of(y, n) == want_sum);
    free(coded);
}

static uint32_t id_of(const char *name) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    for (uint32_t id = 0; id < count; id++) {
        if (strcmp(codecs[id]->name, name) == 0) return id;
    }
    fail_msg("no codec %s", name);
    return count;
}

/* Checks a line with every variant of its codec. Returns the codec's id. */
static uint32_t check_line(const char *line) {
    static char hex[LINE_BYTES];
    static uint8_t want[LINE_BYTES / 2];
    static float x[ELEMENTS_MAX];
    char codec[WORD_BYTES], name[WORD_BYTES];
    size_t n;
    unsigned long long sum;
    assert_int_equal(sscanf(line, "%15s %15s %zu %16383s %llx", codec, name, &n, hex, &sum), 5);
    assert_true(n <= ELEMENTS_MAX);
    elements_of(name, x, n);
    const size_t bytes = bytes_of(hex, want);
    const uint32_t id = id_of(codec);
    const char *form;
    for (uint32_t f = 0; tw_codecs_form(f, &form) != NULL; f++) {
        print_message("%s, %s, %s\n", codec, name, form);
        check(tw_codecs_form(f, &form)[id], x, n, want, bytes, sum);
    }
    return id;
}

TEST(payloads_are_those_of_numpy) {
    static char line[LINE_BYTES];
    uint32_t codecs_count, seen = 0;
    (void)tw_codecs(&codecs_count);
    for (char **path = paths; *path != NULL; path++) {
        FILE *file = fopen(*path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof(line), file) != NULL) seen |= 1u << check_line(line);
        (void)fclose(file);
    }
    assert_true(codecs_count < 32);
    assert_int_equal(seen, (1u << codecs_count) - 1); /* a new codec needs lines in the files */
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    paths = argv + 1;
    return test_run(NULL, NULL);
}
