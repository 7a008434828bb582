/* bench_rans.c - thinwire-rans-bench: symbols per second of every rANS implementation, compared
 * with memcpy of the corresponding floats in the same run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rng.h"
#include "compress/rans.h"

enum { SYMBOLS = 1 << 18, TILE = 4096, FLOATS = 1 << 24, ROUNDS = 15, REPEATS = 4 };

struct work {
    const struct tw_rans_form *form;
    struct tw_rans_model model;
    struct tw_rans_encoder encoder;
    struct tw_rans_decoder decoder;
    uint8_t symbols[SYMBOLS], back[SYMBOLS], words[2 * SYMBOLS + TW_RANS_WORDS_SLACK];
    uint8_t states[TW_RANS_STATES_BYTES];
    float from[FLOATS], to[FLOATS]; /* larger than caches */
    size_t words_bytes;
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

/* Returns the median speed of `run`, which handles `count` items, in 10^9 items per second. */
static double speed_of(void (*run)(struct work *w), struct work *w, double count) {
    double seconds[ROUNDS];
    run(w);
    for (int i = 0; i < ROUNDS; i++) {
        const double start = cpu_s();
        for (int k = 0; k < REPEATS; k++) run(w);
        seconds[i] = (cpu_s() - start) / REPEATS;
    }
    qsort(seconds, ROUNDS, sizeof(seconds[0]), compare);
    return count / seconds[ROUNDS / 2] * 1e-9;
}

static void copy(struct work *w) {
    memcpy(w->to, w->from, sizeof(w->to));
    w->from[0] += w->to[FLOATS - 1];
}

static void encode(struct work *w) {
    uint8_t *end = w->words + sizeof(w->words);
    w->words_bytes = 0;
    tw_rans_encoder_init(&w->encoder, &w->model);
    for (size_t at = SYMBOLS; at > 0; at -= TILE) {
        w->words_bytes +=
            w->form->encode(&w->encoder, w->symbols + at - TILE, TILE, end - w->words_bytes);
    }
    tw_rans_encoder_finish(&w->encoder, w->states);
}

static void decode(struct work *w) {
    const uint8_t *words = w->words + sizeof(w->words) - w->words_bytes;
    TW_ASSERT(tw_rans_decoder_init(&w->decoder, &w->model, w->states, words, w->words_bytes) ==
              TW_OK);
    for (size_t at = 0; at < SYMBOLS; at += TILE) {
        TW_ASSERT(w->form->decode(&w->decoder, w->back + at, TILE) == TW_OK);
    }
    TW_ASSERT(tw_rans_decoder_finish(&w->decoder) == TW_OK);
}

/* Fills in geometrically distributed symbols, like those of quantised numbers: lower symbols are
 * more frequent. */
static void fill(struct work *w, unsigned alphabet, unsigned of_256) {
    struct tw_rng rng;
    uint32_t counts[256] = {0};
    tw_rng_seed(&rng, alphabet);
    for (size_t i = 0; i < SYMBOLS; i++) {
        unsigned s = 0;
        while (s + 1 < alphabet && tw_rng_below(&rng, 256) < of_256) s++;
        w->symbols[i] = (uint8_t)s;
        counts[s]++;
    }
    TW_ASSERT(tw_rans_model_fit(&w->model, counts, SYMBOLS));
}

int main(void) {
    static struct work work;
    const struct {
        unsigned alphabet, of_256;
    } cases[] = {{4, 60}, {16, 128}, {16, 190}, {32, 220}, {64, 240}, {256, 254}};
    const double base = speed_of(copy, &work, FLOATS);
    (void)printf("%d symbols; memcpy of floats %.2f G/s\n", SYMBOLS, base);
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        fill(&work, cases[c].alphabet, cases[c].of_256);
        for (uint32_t i = 0; tw_rans_form(i) != NULL; i++) {
            work.form = tw_rans_form(i);
            const double there = speed_of(encode, &work, SYMBOLS),
                         back = speed_of(decode, &work, SYMBOLS);
            TW_ASSERT(memcmp(work.symbols, work.back, SYMBOLS) == 0);
            (void)printf("%3u symbols %.3f bits  %-6s encode %.3f G/s, %.2f of memcpy  "
                         "decode %.3f G/s, %.2f of memcpy\n",
                         cases[c].alphabet, 8.0 * (double)work.words_bytes / SYMBOLS,
                         work.form->name, there, there / base, back, back / base);
        }
    }
    return 0;
}
