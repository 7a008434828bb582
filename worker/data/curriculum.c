#include "worker/data/curriculum.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"

enum { FRACTION_BITS = 16, BLOCK_TOKENS = 1 << 14 };

struct rated {
    uint64_t surprisal; /* total over the window's tokens, which are equally many in all windows */
    uint32_t window;
};

/* log2(x) for x >= 1, in units of 1/65536, rounded down. Squaring y yields one fraction bit at a
 * time. */
static uint32_t log2_fixed(uint64_t x) {
    uint32_t whole = 63;
    while (x >> whole == 0) whole--;
    uint64_t y = whole >= 31 ? x >> (whole - 31) : x << (31 - whole); /* in [2^31, 2^32) */
    uint32_t value = whole;
    for (unsigned i = 0; i < FRACTION_BITS; i++) {
        y = y * y >> 31;
        const bool is_set = y >> 32 != 0;
        value = value << 1 | (is_set ? 1 : 0);
        if (is_set) y >>= 1;
    }
    return value;
}

struct work {
    struct tw_token_reader *reader;
    struct tw_token_file *file;
    uint64_t first, count; /* range of the tokens of all windows */
    uint32_t context;
    uint32_t tokens[BLOCK_TOKENS];
    uint32_t *bits; /* (vocab): count of each token, later its surprisal */
    struct rated *rated;
};

static enum tw_status count_tokens(struct work *work, struct tw_error *err) {
    for (uint64_t at = 0; at < work->count; at += BLOCK_TOKENS) {
        const uint64_t left = work->count - at;
        const uint32_t n = left < BLOCK_TOKENS ? (uint32_t)left : BLOCK_TOKENS;
        TW_TRY(tw_token_read(work->reader, work->file, work->first + at, n, work->tokens, err));
        for (uint32_t i = 0; i < n; i++) work->bits[work->tokens[i]]++;
    }
    return TW_OK;
}

static enum tw_status rate_windows(struct work *work, struct tw_error *err) {
    for (uint64_t at = 0; at < work->count; at += BLOCK_TOKENS) {
        const uint64_t left = work->count - at;
        const uint32_t n = left < BLOCK_TOKENS ? (uint32_t)left : BLOCK_TOKENS;
        TW_TRY(tw_token_read(work->reader, work->file, work->first + at, n, work->tokens, err));
        for (uint32_t i = 0; i < n; i++) {
            work->rated[(at + i) / work->context].surprisal += work->bits[work->tokens[i]];
        }
    }
    return TW_OK;
}

static int by_surprisal(const void *a, const void *b) {
    const struct rated *const x = a, *const y = b;
    if (x->surprisal != y->surprisal) return x->surprisal < y->surprisal ? -1 : 1;
    return x->window < y->window ? -1 : x->window > y->window;
}

enum tw_status tw_curriculum_sort(struct tw_token_reader *reader, struct tw_token_file *file,
                                  uint64_t first, uint32_t context, uint32_t windows,
                                  uint32_t *easiest, struct tw_error *err) {
    TW_ASSERT(reader->vocab <= UINT32_MAX);
    struct work *const work = calloc(1, sizeof(*work));
    uint32_t *const bits = calloc((size_t)reader->vocab, sizeof(*bits));
    struct rated *const rated = calloc(windows, sizeof(*rated));
    enum tw_status status = TW_OK;
    if (work == NULL || bits == NULL || rated == NULL) {
        status =
            tw_fail(err, TW_NOMEM, "no memory to sort %u windows for data.curriculum", windows);
    } else {
        work->reader = reader;
        work->file = file;
        work->first = first;
        work->count = (uint64_t)windows * context;
        work->context = context;
        work->bits = bits;
        work->rated = rated;
        for (uint32_t i = 0; i < windows; i++) rated[i].window = i;
        status = count_tokens(work, err);
    }
    if (status == TW_OK) {
        const uint32_t all = log2_fixed(work->count);
        for (uint64_t i = 0; i < reader->vocab; i++) {
            if (bits[i] > 0) bits[i] = all - log2_fixed(bits[i]);
        }
        status = rate_windows(work, err);
    }
    if (status == TW_OK) {
        qsort(rated, windows, sizeof(*rated), by_surprisal);
        for (uint32_t i = 0; i < windows; i++) easiest[i] = rated[i].window;
    }
    free(work);
    free(bits);
    free(rated);
    return status;
}
