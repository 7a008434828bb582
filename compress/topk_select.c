/* topk_select.c - finds the k largest elements of a chunk. It first searches a bound with slightly
 * more than k elements above it, by counting, which vectorises well; usually the last chunk's bound
 * is good enough. Then it lists these elements and finds the k-th largest of them by bisection. */
#include <string.h>

#include "base/bytes.h"
#include "compress/codec_topk.h"

#ifdef __AVX2__
#include "compress/topk_avx2.h"
#endif

enum {
    CHUNK = TW_TOPK_CHUNK,
    FIRST_STEP = 20,  /* log2 of the first search step: 2^20 in the bits of a float is 6 to 12 % of
                         its value */
    MARGIN = 1 << 19, /* a chunk's k-th largest minus the first bound tried for the next chunk */
    WORD = 64,
    SOME = 8, /* positions extracted from a word at a time */
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

#define NONE UINT32_MAX /* removed element: as a signed number -1, below all magnitudes */

struct search {
    const uint32_t *magnitudes;
    uint32_t count, k;
    uint32_t low, high; /* range that contains the k-th largest */
    uint32_t least;     /* number of elements >= low; at least k */
};

/* Narrows [low, high] by testing low <= at < high. Returns true if the k-th largest is above `at`.
 */
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

/* Narrows until at most `enough` elements are >= low, or low = high. */
static void narrow(struct search *s, uint32_t enough) {
    while (!is_done(s, enough)) (void)probe(s, s->low + (s->high - s->low) / 2);
}

/* Like narrow(), but starts from a guess and searches with growing steps. */
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

/* Returns a bit mask of the elements of magnitudes[count], count <= 64, that are above `bound`. */
static uint64_t above(const uint32_t *magnitudes, uint32_t count, int32_t bound) {
    uint8_t flags[WORD] = {0};
    uint64_t word = 0;
#ifdef __AVX2__
    if (count == WORD) return tw_topk_above_avx2(magnitudes, bound);
#endif
    for (uint32_t i = 0; i < count; i++) flags[i] = (int32_t)magnitudes[i] > bound;
    for (uint32_t i = 0; i < WORD; i += 8) { /* packs eight byte flags into one byte */
        word |= tw_get_u64(flags + i) * UINT64_C(0x0102040810204080) >> 56 << i;
    }
    return word;
}

/* Lists the positions in [begin, end) of elements above `bound`, in ascending order. Up to SOME
 * meaningless entries follow: extracting a fixed number from each word avoids branches on its
 * count. */
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

/* Lists the elements above low, but only as many of those equal to low as could be needed: a chunk
 * may be nearly all zeros. */
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
    /* If more than k elements are >= low, removes the last ones that equal low. */
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
