/* topk_select.c - the k largest of a chunk: a bisection for the k-th largest magnitude, as
 * integers, by counting how many are above, then one pass that collects. Counts are what vectors do
 * fast; a chunk lies in the first cache. */
#include <string.h>

#include "compress/codec_topk.h"

enum { FIRST_STEP = 1 << 20 /* 6 to 12 % of a float */ };

static uint32_t count_above(const uint32_t *magnitudes, uint32_t count, uint32_t bound) {
    int32_t above = 0;
    for (uint32_t i = 0; i < count; i++) above += (int32_t)magnitudes[i] > (int32_t)bound;
    return (uint32_t)above;
}

struct search {
    const uint32_t *magnitudes;
    uint32_t count, k;
    uint32_t low, high; /* the k-th largest is in [low, high], unless k are above high */
    uint32_t above;     /* how many are above high: k at most */
};

/* Narrows [low, high]; true where exactly k are above `at`. */
static bool probe(struct search *s, uint32_t at) {
    const uint32_t above = count_above(s->magnitudes, s->count, at);
    if (above > s->k) {
        s->low = at + 1;
    } else {
        s->high = at;
        s->above = above;
    }
    return above == s->k;
}

/* Until k are above high, or high is the k-th largest. */
static void narrow(struct search *s, uint32_t guess) {
    uint32_t step = FIRST_STEP;
    if (guess >= s->high) guess = s->high - (s->high > 0);
    if (probe(s, guess)) return;
    const bool is_down = s->high == guess;
    while (s->low < s->high) { /* away from the guess in growing steps */
        const uint32_t room = s->high - s->low;
        const uint32_t move = step < room ? step : room / 2;
        const uint32_t high_before = s->high;
        if (probe(s, is_down ? s->high - move : s->low + move)) return;
        if (is_down ? s->high == high_before : s->high < high_before) break;
        if (step < 1u << 28) step *= 4;
    }
    while (s->low < s->high) {
        if (probe(s, s->low + (s->high - s->low) / 2)) return;
    }
}

static uint32_t largest(const uint32_t *magnitudes, uint32_t count) {
    int32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t value = (int32_t)magnitudes[i];
        max = value > max ? value : max;
    }
    return (uint32_t)max;
}

void TW_FORM(topk_select)(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept,
                          uint32_t *guess) {
    uint16_t found[TW_TOPK_CHUNK + 1];
    struct search s = {
        .magnitudes = magnitudes, .count = count, .k = k, .high = largest(magnitudes, count)};
    narrow(&s, *guess);
    *guess = s.high;
    /* All above high, and where these are too few, the first that equal it. */
    const bool has_ties = s.above < k;
    const int32_t bound = (int32_t)s.high - has_ties;
    uint32_t found_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        found[found_count] = (uint16_t)i;
        found_count += (int32_t)magnitudes[i] > bound;
    }
    uint32_t ties = k - s.above, n = 0;
    for (uint32_t i = 0; i < found_count && n < k; i++) {
        const bool is_tie = magnitudes[found[i]] == s.high;
        if (is_tie && has_ties && ties == 0) continue;
        ties -= is_tie && has_ties;
        kept[n++] = found[i];
    }
}
