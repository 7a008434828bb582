/* topk_select.c - the k largest of a chunk. A bound that leaves a few more than k is found by
 * counting how many are above, which is what vectors do fast; mostly that of the chunk before will
 * do. The few are listed, and the k-th largest of them is found by bisection. */
#include <string.h>

#include "base/bytes.h"
#include "compress/codec_topk.h"

#ifdef __AVX2__
#include "compress/topk_avx2.h"
#endif

enum {
    CHUNK = TW_TOPK_CHUNK,
    FIRST_STEP = 20,  /* 2^20 is 6 to 12 % of a float */
    MARGIN = 1 << 19, /* from the k-th largest of a chunk to the bound for the next */
    WORD = 64,
    SOME = 8, /* positions taken from a word at a time */
};
#define LAST (UINT64_C(1) << (WORD - 1))

static uint32_t count_above(const uint32_t *magnitudes, uint32_t count, uint32_t bound) {
    int32_t above = 0;
    for (uint32_t i = 0; i < count; i++) above += (int32_t)magnitudes[i] > (int32_t)bound;
    return (uint32_t)above;
}

static uint32_t largest(const uint32_t *magnitudes, uint32_t count) {
    int32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t value = (int32_t)magnitudes[i];
        max = value > max ? value : max;
    }
    return (uint32_t)max;
}

#define NONE UINT32_MAX /* -1: below all magnitudes */

struct search {
    const uint32_t *magnitudes;
    uint32_t count, k;
    uint32_t low, high; /* the k-th largest is in [low, high] */
    uint32_t least;     /* as many are low or more: k at least */
};

/* Narrows [low, high] at low <= at < high; true where the k-th largest is above. */
static bool probe(struct search *s, uint32_t at) {
    const uint32_t above = count_above(s->magnitudes, s->count, at);
    if (above >= s->k) {
        s->low = at + 1;
        s->least = above;
    } else {
        s->high = at;
    }
    return above >= s->k;
}

static bool is_done(const struct search *s, uint32_t enough) {
    return s->least <= enough || s->low == s->high;
}

/* Until no more than `enough` are low or more, or all that are equal it. */
static void narrow(struct search *s, uint32_t enough) {
    while (!is_done(s, enough)) (void)probe(s, s->low + (s->high - s->low) / 2);
}

/* The same from a guess on, in growing steps. */
static void narrow_from(struct search *s, uint32_t enough, uint32_t guess) {
    if (guess >= s->high) guess = s->high - 1;
    const bool is_up = probe(s, guess);
    for (unsigned log = FIRST_STEP; log < 31 && !is_done(s, enough); log += 2) {
        const uint32_t step = 1u << log;
        if (step >= s->high - s->low) break;
        if (probe(s, is_up ? s->low + step : s->high - step) != is_up) break;
    }
    narrow(s, enough);
}

/* A bit for each of magnitudes (count <= 64) above the bound. */
static uint64_t above(const uint32_t *magnitudes, uint32_t count, int32_t bound) {
    uint8_t flags[WORD] = {0};
    uint64_t word = 0;
#ifdef __AVX2__
    if (count == WORD) return tw_topk_above_avx2(magnitudes, bound);
#endif
    for (uint32_t i = 0; i < count; i++) flags[i] = (int32_t)magnitudes[i] > bound;
    for (uint32_t i = 0; i < WORD; i += 8) { /* eight flags, which are bytes, into a byte */
        word |= tw_get_u64(flags + i) * UINT64_C(0x0102040810204080) >> 56 << i;
    }
    return word;
}

/* The positions in [begin, end) of those above the bound, in order; behind them a few are written
 * that mean nothing: how many there are in a word nobody foresees, so some are taken in any case.
 */
static uint32_t list(const uint32_t *magnitudes, uint32_t begin, uint32_t end, int32_t bound,
                     uint16_t *found) {
    uint32_t found_count = 0;
    for (uint32_t i = begin; i < end; i += WORD) {
        uint64_t word = above(magnitudes + i, end - i < WORD ? end - i : WORD, bound);
        const uint32_t all = found_count + (uint32_t)__builtin_popcountll(word);
        do {
            for (uint32_t j = 0; j < SOME; j++, word &= word - 1) {
                found[found_count + j] = (uint16_t)(i + (uint32_t)__builtin_ctzll(word | LAST));
            }
            found_count += SOME;
        } while (found_count < all);
        found_count = all;
    }
    return found_count;
}

/* Of those that are low or more, but of those that equal it no more than k, the first: a chunk may
 * be nearly all zeros. */
static uint32_t list_ties(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint32_t low,
                          uint16_t *found) {
    uint32_t end = 0;
    for (uint32_t ties = 0; end < count && ties < k; end++) ties += magnitudes[end] == low;
    const uint32_t found_count = list(magnitudes, 0, end, (int32_t)low - 1, found);
    return found_count + list(magnitudes, end, count, (int32_t)low, found + found_count);
}

void TW_COMPRESS_ISA(topk_select)(const uint32_t *magnitudes, uint32_t count, uint32_t k,
                                  uint16_t *kept, uint32_t *guess) {
    uint16_t found[CHUNK + SOME];
    uint32_t listed[CHUNK];
    struct search s = {
        .magnitudes = magnitudes, .count = count, .k = k, .high = INT32_MAX, .least = count};
    narrow_from(&s, 2 * k, *guess);
    const uint32_t found_count = s.low < s.high
                                     ? list(magnitudes, 0, count, (int32_t)s.low - 1, found)
                                     : list_ties(magnitudes, count, k, s.low, found);
    for (uint32_t i = 0; i < found_count; i++) listed[i] = magnitudes[found[i]];
    s.magnitudes = listed;
    s.count = s.least = found_count;
    const uint32_t max = largest(listed, found_count);
    s.high = max < s.high ? max : s.high;
    narrow(&s, k);
    *guess = s.low > MARGIN ? s.low - MARGIN : 0;
    /* Where more than k are low or more, the last of those that equal it are too many. */
    for (uint32_t i = found_count, extra = s.least - k; extra > 0; i--) {
        if (listed[i - 1] != s.low) continue;
        listed[i - 1] = NONE;
        extra--;
    }
    for (uint32_t i = 0, n = 0; n < k; i++) {
        kept[n] = found[i];
        n += (int32_t)listed[i] >= (int32_t)s.low;
    }
}
