/* test_codec_golden.c - codecs of blocks make the payloads that NumPy makes of the same arrays from
 * the same equations: tests/golden/codecs.txt, by make_codecs.py. */
#include "compress/codec.h"

#include "compress/codec_ref.h"
#include "tests/kernels/fill.h"

enum { ELEMENTS_MAX = 1024, LINE_BYTES = 8192 };

static const char *path;

static const struct {
    const char *name;
    int exponent;
    bool has_tails, is_zero;
} cases[] = {{"usual", -20, false, false}, {"tails", -33, true, false},
             {"large", 100, true, false},  {"small", -110, true, false},
             {"tiny", -140, false, false}, {"zero", 0, false, true}};

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
        x[i] = cases[number].is_zero
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

static void payloads_are_those_of_numpy(void **state) {
    (void)state;
    static char line[LINE_BYTES], hex[LINE_BYTES];
    static uint8_t want[LINE_BYTES / 2];
    uint32_t codecs_count, seen = 0, lines = 0;
    (void)tw_codecs(&codecs_count);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (; fgets(line, sizeof(line), file) != NULL; lines++) {
        char codec[16], name[16];
        size_t n;
        unsigned long long sum;
        float x[ELEMENTS_MAX];
        assert_int_equal(sscanf(line, "%15s %15s %zu %8191s %llx", codec, name, &n, hex, &sum), 5);
        assert_true(n <= ELEMENTS_MAX);
        elements_of(name, x, n);
        const size_t bytes = bytes_of(hex, want);
        const char *form;
        for (uint32_t f = 0; tw_codecs_form(f, &form) != NULL; f++) {
            uint32_t id = 0;
            while (strcmp(tw_codecs_form(f, &form)[id]->name, codec) != 0) {
                id++;
                assert_true(id < codecs_count);
            }
            print_message("%s, %s, %s\n", codec, name, form);
            check(tw_codecs_form(f, &form)[id], x, n, want, bytes, sum);
            seen |= 1u << id;
        }
    }
    (void)fclose(file);
    for (uint32_t id = 0; id < codecs_count; id++) {
        assert_true(!tw_codec_has_ref((enum tw_codec_id)id) || (seen >> id & 1u) != 0);
    }
    assert_true(lines > 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    path = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(payloads_are_those_of_numpy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
