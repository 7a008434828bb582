/* bench_gradients.c - thinwire-gradient-bench: bits and errors of every codec on outer gradients of
 * a real run.
 *
 *   thinwire-gradient-bench PARTS FILE...
 *
 * The files hold the Deltas of one fragment in the order of its rounds, as raw float32, as written
 * by thinwire-quality-bench --dump. Each Delta is encoded in PARTS pieces, one per owner. Printed
 * per codec, from squared norms, with D the decoded payload:
 *
 *     error    |Delta - D(Delta)|^2 / |Delta|^2, over all rounds
 *     way      |sum of D - sum of Delta|^2 / |sum of Delta|^2: the missing part of the total move,
 *              without feedback, and with v = 0.95 * e + Delta, D = D(v), e = v - D
 *     held     |e|^2 / |Delta|^2 with feedback, over the second half of the rounds */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/codec.h"

enum { PARTS_MAX = 64 };
#define FEEDBACK 0.95f

struct bench {
    float **rounds;
    unsigned count, parts;
    size_t n;
    float *v, *y, *residual;
    double *sent, *meant; /* sums over rounds */
    uint8_t *coded;
    size_t capacity;
};

static float *read_floats(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    long bytes = -1;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (bytes = ftell(file)) < 4) {
        (void)fprintf(stderr, "thinwire-gradient-bench: %s could not be read\n", path);
        exit(1);
    }
    rewind(file);
    *n = (size_t)bytes / sizeof(float);
    float *x = malloc(*n * sizeof(float));
    if (x == NULL || fread(x, sizeof(float), *n, file) != *n) {
        (void)fprintf(stderr, "thinwire-gradient-bench: %s could not be read\n", path);
        exit(1);
    }
    (void)fclose(file);
    return x;
}

static double squares(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* Computes y = D(x) by encoding and decoding x. Returns the encoded bytes. */
static size_t through(struct bench *b, const struct tw_codec *codec, const float *x) {
    size_t total = 0;
    for (unsigned k = 0; k < b->parts; k++) {
        const size_t begin = b->n * k / b->parts, n = b->n * (k + 1) / b->parts - begin;
        size_t bytes = 0;
        if (codec->encode(x + begin, n, b->coded, b->capacity, &bytes) != TW_OK ||
            codec->decode(b->coded, bytes, b->y + begin, n) != TW_OK) {
            (void)fprintf(stderr, "thinwire-gradient-bench: %s does not code these numbers\n",
                          codec->name);
            exit(1);
        }
        total += bytes;
    }
    return total;
}

struct figures {
    double bits, error, way, held;
};

static struct figures measure(struct bench *b, const struct tw_codec *codec, float feedback) {
    struct figures figures = {0};
    double off = 0, whole = 0, bytes = 0, all = 0, late = 0;
    memset(b->residual, 0, b->n * sizeof(float));
    for (size_t i = 0; i < b->n; i++) b->sent[i] = b->meant[i] = 0;
    for (unsigned r = 0; r < b->count; r++) {
        const float *delta = b->rounds[r];
        for (size_t i = 0; i < b->n; i++) b->v[i] = delta[i] + feedback * b->residual[i];
        bytes += (double)through(b, codec, b->v);
        for (size_t i = 0; i < b->n; i++) {
            b->residual[i] = b->v[i] - b->y[i];
            b->sent[i] += (double)b->y[i];
            b->meant[i] += (double)delta[i];
        }
        const double lost = squares(b->residual, b->n), size = squares(delta, b->n);
        figures.error += lost;
        all += size;
        figures.held += r >= b->count / 2 ? lost : 0;
        late += r >= b->count / 2 ? size : 0;
    }
    for (size_t i = 0; i < b->n; i++) {
        const double d = b->sent[i] - b->meant[i];
        off += d * d;
        whole += b->meant[i] * b->meant[i];
    }
    figures.bits = 8 * bytes / ((double)b->n * b->count);
    figures.way = off / whole;
    figures.error /= all;
    figures.held /= late;
    return figures;
}

/* Prints statistics of the Deltas. Normally distributed numbers have a kurtosis of 3. */
static void describe(const struct bench *b) {
    double two = 0, four = 0, along = 0;
    size_t zeros = 0;
    for (unsigned r = 0; r < b->count; r++) {
        for (size_t i = 0; i < b->n; i++) {
            const double x = (double)b->rounds[r][i], square = x * x;
            two += square;
            four += square * square;
            zeros += x == 0.0;
            if (r > 0) along += x * (double)b->rounds[r - 1][i];
        }
    }
    const double total = (double)b->n * b->count;
    (void)printf("%u rounds of %zu elements in %u parts: rms %.2e, kurtosis %.1f, %.1f %% zeros, "
                 "cosine with the one before %.2f\n",
                 b->count, b->n, b->parts, sqrt(two / total), four * total / (two * two),
                 100.0 * (double)zeros / total, along / two);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        (void)fprintf(stderr, "thinwire-gradient-bench: no memory\n");
        exit(1);
    }
    return memory;
}

static void bench_init(struct bench *b, unsigned parts, char **paths, int count) {
    uint32_t codecs_count;
    const struct tw_codec *const *codecs = tw_codecs(&codecs_count);
    *b = (struct bench){.count = (unsigned)count, .parts = parts};
    b->rounds = allocate(b->count, sizeof(*b->rounds));
    for (unsigned r = 0; r < b->count; r++) {
        size_t n;
        b->rounds[r] = read_floats(paths[r], &n);
        if (r > 0 && n != b->n) {
            (void)fprintf(stderr, "thinwire-gradient-bench: %s is of another size\n", paths[r]);
            exit(1);
        }
        b->n = n;
    }
    for (uint32_t c = 0; c < codecs_count; c++) {
        const size_t bound = codecs[c]->bound(b->n / parts + 1);
        if (bound > b->capacity) b->capacity = bound;
    }
    b->coded = allocate(b->capacity, 1);
    b->v = allocate(b->n, sizeof(float));
    b->y = allocate(b->n, sizeof(float));
    b->residual = allocate(b->n, sizeof(float));
    b->sent = allocate(b->n, sizeof(double));
    b->meant = allocate(b->n, sizeof(double));
}

static void bench_deinit(struct bench *b) {
    for (unsigned r = 0; r < b->count; r++) free(b->rounds[r]);
    free(b->rounds);
    free(b->coded);
    free(b->v);
    free(b->y);
    free(b->residual);
    free(b->sent);
    free(b->meant);
}

int main(int argc, char **argv) {
    struct bench b;
    uint32_t count;
    const unsigned long parts = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    if (parts == 0 || parts > PARTS_MAX) {
        (void)fprintf(stderr, "usage: thinwire-gradient-bench PARTS FILE...\n"
                              "files: raw float32, outer gradients of one fragment, by round\n");
        return 2;
    }
    bench_init(&b, (unsigned)parts, argv + 2, argc - 2);
    describe(&b);
    (void)printf("codec      bits   error     way | with feedback: bits     way    held\n");
    for (uint32_t c = 0; c < count; c++) {
        const struct figures alone = measure(&b, codecs[c], 0.0f),
                             with = measure(&b, codecs[c], FEEDBACK);
        (void)printf("%-8s %6.3f %7.1e %7.1e |              %7.3f %7.1e %7.2f\n", codecs[c]->name,
                     alone.bits, alone.error, alone.way, with.bits, with.way, with.held);
        (void)fflush(stdout);
    }
    bench_deinit(&b);
    return 0;
}
