/* test_codec_quality.c - rate and loss of each codec: bits per element and squared error. Inputs
 * are normally distributed, or have Student's t distribution with 4 degrees of freedom, whose tails
 * resemble those of outer gradients. The expected values come from other programs. A new codec
 * needs a row. */
#include "compress/codec.h"

#include "tests/kernels/fill.h"

enum { SEED = 5152, TENSORS = 12, ELEMENTS = 1 << 16 };

/* Relative squared errors must be 0.98 to 1.02 times the table's. With tails, whose samples vary
 * more, 0.9 to 1.1 times. Bits include all overhead. */
static const struct {
    const char *name;
    double bits, error, tails_bits, tails_error;
} expected[] = {
    {"bf16", 16.0, 2.75e-6, 16.0, 2.75e-6},   {"int8", 8.0625, 4.9e-5, 8.0625, 1.7e-4},
    {"int4", 4.25, 1.17e-2, 4.25, 2.6e-2},    {"e3m0", 4.25, 3.5e-2, 4.25, 2.9e-2},
    {"sign", 1.0625, 0.363, 1.0625, 0.51},    {"ecsq4", 4.0, 5.89e-3, 4.0, 4.99e-3},
    {"ecsq3", 3.0, 2.34e-2, 3.0, 2.00e-2},    {"ecsq2", 2.0, 9.29e-2, 2.0, 7.94e-2},
    {"ecsq1", 1.0, 0.364, 1.0, 0.278},        {"topk256", 0.409, 0.683, 0.409, 0.566},
    {"topk64", 0.137, 0.882, 0.137, 0.756},   {"sparse8", 8.008, 7.6e-5, 8.008, 7e-4},
    {"topk32", 0.0784, 0.931, 0.0784, 0.821}, {"ecsq05", 0.5, 0.638, 0.5, 0.486},
    {"auto", 4.25, 1.17e-2, 4.25, 2.6e-2},
};

static double unit(struct tw_rng *rng) {
    return (double)(tw_rng_next(rng) >> 11) * 0x1p-53 + 0x1p-54; /* in (0, 1) */
}

static double normal(struct tw_rng *rng) {
    const double radius = sqrt(-2.0 * log(unit(rng)));
    return radius * cos(6.283185307179586 * unit(rng));
}

/* Returns a normal number. With tails, it is divided by the root of the mean of 4 squares
 * (Student's t). */
static double sample(struct tw_rng *rng, bool has_tails) {
    const double x = normal(rng);
    return has_tails ? x / sqrt(-2.0 * log(unit(rng) * unit(rng)) / 4.0) : x;
}

struct cost {
    double bits, error; /* means over tensors with scales from 1e-4 to 0.1 */
};

static struct cost cost_of(const struct tw_codec *codec, bool has_tails) {
    struct tw_rng rng;
    struct cost cost = {0.0, 0.0};
    tw_rng_seed(&rng, SEED);
    float *x = malloc(ELEMENTS * sizeof(*x)), *y = malloc(ELEMENTS * sizeof(*y));
    uint8_t *coded = malloc(codec->bound(ELEMENTS));
    for (unsigned t = 0; t < TENSORS; t++) {
        const double scale = pow(10.0, -4.0 + 3.0 * unit(&rng));
        double error = 0.0, size = 0.0;
        size_t bytes;
        for (size_t i = 0; i < ELEMENTS; i++) x[i] = (float)(scale * sample(&rng, has_tails));
        assert_int_equal(codec->encode(x, ELEMENTS, coded, codec->bound(ELEMENTS), &bytes), TW_OK);
        assert_int_equal(codec->decode(coded, bytes, y, ELEMENTS), TW_OK);
        for (size_t i = 0; i < ELEMENTS; i++) {
            const double d = (double)x[i] - (double)y[i];
            error += d * d;
            size += (double)x[i] * (double)x[i];
        }
        cost.bits += 8.0 * (double)bytes / ELEMENTS / TENSORS;
        cost.error += error / size / TENSORS;
    }
    free(x), free(y), free(coded);
    return cost;
}

static void assert_within(const char *what, double value, double want, double share) {
    if (fabs(value / want - 1.0) <= share) return;
    fail_msg("%s is %.4g, expected %.4g within %.1f %%", what, value, want, 100.0 * share);
}

TEST(every_codec_has_its_known_rate_and_loss) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    for (uint32_t c = 0; c < count; c++) {
        size_t row = 0;
        while (row < sizeof(expected) / sizeof(expected[0]) &&
               strcmp(expected[row].name, codecs[c]->name) != 0) {
            row++;
        }
        if (row == sizeof(expected) / sizeof(expected[0])) {
            fail_msg("%s has no row of expected cost", codecs[c]->name);
        }
        const struct cost plain = cost_of(codecs[c], false), tails = cost_of(codecs[c], true);
        print_message("%-8s %7.4f bits, error %.3e; tails %7.4f bits, error %.3e\n",
                      codecs[c]->name, plain.bits, plain.error, tails.bits, tails.error);
        assert_within("bits", plain.bits, expected[row].bits, 0.02);
        assert_within("bits of the row", codecs[c]->bits, plain.bits, 0.02);
        assert_within("error", plain.error, expected[row].error, 0.02);
        assert_within("bits of tails", tails.bits, expected[row].tails_bits, 0.03);
        assert_within("error of tails", tails.error, expected[row].tails_error, 0.1);
    }
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
