/* bench_codec.c - thinwire-codec-bench: speeds of codecs and outer arithmetic, compared with memcpy
 * in the same run.
 *
 *   thinwire-codec-bench [ELEMENTS [FORM [CODEC]]]
 *
 * Speeds are in GB of float32 per CPU second. Ratios to memcpy are robust on a noisy machine. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "kernels/outer.h"

enum { ROUNDS = 9, ELEMENTS_DEFAULT = 16 << 20 };

struct arrays {
    size_t n;
    float *x, *y, *z;
    float *residual, *lost; /* residual of error feedback; the part of x that coding lost */
    uint8_t *coded;
    size_t coded_bytes, capacity;
    const struct tw_codec *codec;
};

static double cpu_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median speed of `work` over some rounds, in GB/s of float32. */
static double speed_of(void (*work)(struct arrays *a), struct arrays *a) {
    double seconds[ROUNDS];
    work(a);
    for (int i = 0; i < ROUNDS; i++) {
        const double start = cpu_s();
        work(a);
        seconds[i] = cpu_s() - start;
    }
    qsort(seconds, ROUNDS, sizeof(seconds[0]), compare);
    return (double)(a->n * sizeof(float)) / seconds[ROUNDS / 2] * 1e-9;
}

static void copy(struct arrays *a) {
    memcpy(a->y, a->x, a->n * sizeof(float));
}

static void encode(struct arrays *a) {
    TW_ASSERT(a->codec->encode(a->x, a->n, a->coded, a->capacity, &a->coded_bytes) == TW_OK);
}

static void decode(struct arrays *a) {
    TW_ASSERT(a->codec->decode(a->coded, a->coded_bytes, a->y, a->n) == TW_OK);
}

static void decode_add(struct arrays *a) {
    TW_ASSERT(a->codec->decode_add(a->coded, a->coded_bytes, 0.25f, a->z, a->n) == TW_OK);
}

static void check(struct arrays *a) {
    TW_ASSERT(a->codec->check(a->coded, a->coded_bytes, a->n) == TW_OK);
}

static void delta(struct arrays *a) {
    tw_delta(a->y, a->x, a->z, a->n);
}

/* Sends like worker/merge/inflight.h: encodes Delta plus feedback, and replaces the residual. */
static void send(struct arrays *a) {
    const struct tw_delta delta = {.v = a->lost,
                                   .anchor = a->x,
                                   .theta = a->z,
                                   .residual = a->residual,
                                   .beta = 0.95f,
                                   .n = a->n};
    const struct tw_codec_source source = {.x = a->lost, .n = a->n, .lost = a->lost};
    tw_delta_feedback(&delta);
    TW_ASSERT(tw_codec_encode(a->codec, source, a->coded, a->capacity, &a->coded_bytes) == TW_OK);
}

static void outer(struct arrays *a) {
    tw_outer_nesterov(a->y, a->z, a->x, a->n, (struct tw_outer){.lr = 0.7f, .momentum = 0.9f});
}

static void print_speed(const char *codec, const char *what, double speed, double base) {
    (void)printf("%-8s %-10s %7.2f GB/s  %5.2f of memcpy\n", codec, what, speed, speed / base);
    (void)fflush(stdout);
}

/* The row "feedback" is the cost of sending without the Delta: encoding, and reading and writing
 * the residual. */
static void bench_feedback(struct arrays *a, double base) {
    for (size_t i = 0; i < a->n; i++) {
        a->z[i] = 0.25f * a->x[i];
        a->residual[i] = 0.5f * a->x[i];
    }
    const double alone = speed_of(delta, a), all = speed_of(send, a);
    print_speed(a->codec->name, "send", all, base);
    print_speed(a->codec->name, "feedback", 1.0 / (1.0 / all - 1.0 / alone), base);
}

static void bench_codec(struct arrays *a, const struct tw_codec *codec) {
    double error = 0.0, size = 0.0;
    const double base = speed_of(copy, a); /* measured next to the codec, under the same load */
    a->codec = codec;
    print_speed(codec->name, "encode", speed_of(encode, a), base);
    print_speed(codec->name, "decode", speed_of(decode, a), base);
    print_speed(codec->name, "decode_add", speed_of(decode_add, a), base);
    print_speed(codec->name, "check", speed_of(check, a), base);
    if (codec->encode_lost != NULL) bench_feedback(a, base);
    encode(a);
    decode(a);
    for (size_t i = 0; i < a->n; i++) {
        const double d = (double)a->x[i] - (double)a->y[i];
        error += d * d;
        size += (double)a->x[i] * (double)a->x[i];
    }
    (void)printf("%-8s %.4f bits per element, squared error %.2e of the signal\n", codec->name,
                 8.0 * (double)a->coded_bytes / (double)a->n, error / size);
}

/* Fills x with roughly normal values, each the sum of four uniform ones. */
static void fill(struct arrays *a) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    for (size_t i = 0; i < a->n; i++) {
        const uint64_t bits = tw_rng_next(&rng);
        double sum = -2.0;
        for (unsigned j = 0; j < 4; j++) sum += (double)(bits >> 16 * j & 0xFFFF) / 65536.0;
        a->x[i] = (float)(sum * sqrt(3.0) * 1e-3);
        a->y[i] = a->z[i] = 0.0f;
    }
}

/* Allocates the arrays, and room for the largest payload of n elements. */
static bool arrays_init(struct arrays *a, size_t n) {
    uint32_t count;
    const struct tw_codec *const *codecs = tw_codecs(&count);
    *a = (struct arrays){.n = n};
    for (uint32_t c = 0; c < count; c++) {
        if (codecs[c]->bound(n) > a->capacity) a->capacity = codecs[c]->bound(n);
    }
    a->x = malloc(n * sizeof(float));
    a->y = malloc(n * sizeof(float));
    a->z = malloc(n * sizeof(float));
    a->residual = malloc(n * sizeof(float));
    a->lost = malloc(n * sizeof(float));
    a->coded = malloc(a->capacity);
    return a->x != NULL && a->y != NULL && a->z != NULL && a->residual != NULL && a->lost != NULL &&
           a->coded != NULL;
}

static void arrays_deinit(struct arrays *a) {
    free(a->x);
    free(a->y);
    free(a->z);
    free(a->residual);
    free(a->lost);
    free(a->coded);
}

int main(int argc, char **argv) {
    struct arrays a;
    const char *name = "";
    const size_t n = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : ELEMENTS_DEFAULT;
    const uint32_t form = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    const struct tw_codec *const *codecs = tw_codecs_form(form, &name);
    if (argc > 4 || n == 0 || n > (size_t)1 << 30 || codecs == NULL) {
        (void)fprintf(stderr,
                      "usage: thinwire-codec-bench [elements, at most 2^30 [form [codec]]]\n"
                      "form: 0 is the fastest that this processor runs, the next is slower\n"
                      "codec: its name alone; otherwise all of them\n");
        return 2;
    }
    if (!arrays_init(&a, n)) {
        (void)fprintf(stderr, "thinwire-codec-bench: no memory for %zu elements\n", n);
        arrays_deinit(&a);
        return 1;
    }
    fill(&a);
    (void)printf("%zu elements, %s, memcpy %.2f GB/s\n", n, name, speed_of(copy, &a));
    uint32_t codecs_count;
    (void)tw_codecs(&codecs_count);
    for (uint32_t c = 0; c < codecs_count; c++) {
        if (argc < 4 || strcmp(codecs[c]->name, argv[3]) == 0) bench_codec(&a, codecs[c]);
    }
    const double base = speed_of(copy, &a);
    print_speed("", "delta", speed_of(delta, &a), base);
    print_speed("", "outer", speed_of(outer, &a), base);
    arrays_deinit(&a);
    return 0;
}
