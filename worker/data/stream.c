#include "worker/data/stream.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/rng.h"

/* ---- order ----------------------------------------------------------------------------------- */

enum { ROUNDS = 6 };

uint64_t tw_order_key(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t state = seed;
    state = tw_splitmix64(&state) ^ a;
    state = tw_splitmix64(&state) ^ b;
    return tw_splitmix64(&state);
}

/* ---- permutation ----------------------------------------------------------------------------- */

static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t i) {
    const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = i >> half_bits, right = i & mask;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t state = key + round * 0xD1B54A32D192ED03u;
        state = tw_splitmix64(&state) ^ right;
        const uint64_t next = left ^ (tw_splitmix64(&state) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t tw_order_permute(uint64_t key, uint64_t count, uint64_t i) {
    TW_ASSERT(i < count);
    TW_ASSERT(count <= (uint64_t)1 << 62);
    unsigned half_bits = 1;
    while ((uint64_t)1 << 2 * half_bits < count) half_bits++;
    do {
        i = feistel(key, half_bits, i);
    } while (i >= count);
    return i;
}

/* ---- mixture --------------------------------------------------------------------------------- */

static uint32_t largest(const uint64_t *values, uint32_t count) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (values[i] > values[most]) most = i;
    }
    return most;
}

void tw_order_mix(struct tw_order_mixture *mixture, const uint32_t *weights,
                  uint32_t sources_count) {
    uint64_t total = 0, given = 0, counts[TW_DATASET_SOURCES_MAX], rest[TW_DATASET_SOURCES_MAX];
    TW_ASSERT(sources_count >= 1 && sources_count <= TW_DATASET_SOURCES_MAX);
    for (uint32_t i = 0; i < sources_count; i++) total += weights[i];
    for (uint32_t i = 0; i < sources_count; i++) {
        TW_ASSERT(weights[i] > 0);
        const uint64_t exact = (uint64_t)TW_ORDER_BLOCK * weights[i];
        counts[i] = exact < total ? 1 : exact / total;
        rest[i] = exact < total ? 0 : exact % total;
        given += counts[i];
    }
    for (; given < TW_ORDER_BLOCK; given++) {
        const uint32_t i = largest(rest, sources_count);
        counts[i]++;
        rest[i] = 0;
    }
    /* Sources whose share was below one place of the block were rounded up to 1. To make up for
     * that, the largest sources lose as many places. */
    for (; given > TW_ORDER_BLOCK; given--) counts[largest(counts, sources_count)]--;
    *mixture = (struct tw_order_mixture){.sources_count = sources_count};
    uint64_t end = 0;
    for (uint32_t i = 0; i < sources_count; i++) {
        end += counts[i];
        mixture->ends[i] = (uint32_t)end;
    }
}

struct tw_order_place tw_order_place(const struct tw_order_mixture *mixture, uint64_t seed,
                                     uint64_t n) {
    const uint64_t block = n / TW_ORDER_BLOCK;
    const uint64_t key = tw_order_key(seed, UINT64_MAX, block);
    const uint32_t place = (uint32_t)tw_order_permute(key, TW_ORDER_BLOCK, n % TW_ORDER_BLOCK);
    uint32_t source = 0;
    while (place >= mixture->ends[source]) source++;
    const uint32_t begin = source == 0 ? 0 : mixture->ends[source - 1];
    const uint32_t count = mixture->ends[source] - begin;
    return (struct tw_order_place){source, block * count + (place - begin)};
}

/* ---- curriculum ------------------------------------------------------------------------------ */

/* floor(sqrt(x)), computed bit by bit. */
static uint64_t square_root(uint64_t x) {
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit > 0; bit >>= 1) {
        const uint64_t tried = root | bit;
        if (tried * tried <= x) root = tried;
    }
    return root;
}

uint32_t tw_order_competence(uint64_t done, uint64_t planned) {
    enum { PART_BITS = 20 };
    /* c0^2 and 1 - c0^2, in units of 10^-12 */
    const uint64_t first = 10000000000u, rest = 990000000000u;
    TW_ASSERT(done < planned);
    while (planned >= (uint64_t)1 << (63 - PART_BITS)) {
        planned >>= 1;
        done >>= 1;
    }
    const uint64_t part = (done << PART_BITS) / planned;
    return (uint32_t)square_root(first + (part * rest >> PART_BITS));
}

/* ---- stretches ------------------------------------------------------------------------------- */

/* Domain separators: tags that make the keys derived from one seed independent. */
enum { FOR_EPOCH = 1, FOR_OFFSET, FOR_MISSING, FOR_EASY };

static uint64_t windows_of(uint64_t tokens, uint32_t context) {
    if (tokens <= context) return 0;
    const uint64_t whole = tokens / context;
    return whole > 2 ? whole - 1 : 1;
}

static enum tw_status add_stretch(struct tw_stream *stream, const struct tw_stretch *stretch,
                                  struct tw_error *err) {
    if (stream->stretches_count == stream->room) {
        const uint32_t room = stream->room == 0 ? 64 : 2 * stream->room;
        struct tw_stretch *const grown =
            realloc(stream->stretches, room * sizeof(*stream->stretches));
        if (grown == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of token files");
        stream->stretches = grown;
        stream->room = room;
    }
    stream->stretches[stream->stretches_count++] = *stretch;
    return TW_OK;
}

enum tw_status tw_stream_add(struct tw_stream *stream, uint32_t source, uint32_t file,
                             uint64_t first, uint64_t count, struct tw_error *err) {
    TW_ASSERT(source < TW_DATASET_SOURCES_MAX);
    TW_ASSERT(source + 1 >= stream->sources_count);
    while (stream->sources_count <= source) {
        stream->sources[stream->sources_count++] = (struct tw_stream_source){
            .begin = stream->stretches_count, .end = stream->stretches_count};
    }
    struct tw_stream_source *const to = &stream->sources[source];
    while (count > 0) {
        const uint64_t taken = count < TW_STRETCH_TOKENS_MAX ? count : TW_STRETCH_TOKENS_MAX;
        const struct tw_stretch stretch = {.file = file,
                                           .first = first,
                                           .count = taken,
                                           .windows = windows_of(taken, stream->context),
                                           .before = to->windows};
        TW_TRY(add_stretch(stream, &stretch, err));
        to->end = stream->stretches_count;
        to->windows += stretch.windows;
        first += taken;
        count -= taken;
    }
    return TW_OK;
}

enum tw_status tw_stream_finish(struct tw_stream *stream, const uint32_t *weights,
                                struct tw_error *err) {
    stream->here = calloc(stream->stretches_count + 1, sizeof(*stream->here));
    stream->here_before = calloc(stream->stretches_count + 1, sizeof(*stream->here_before));
    if (stream->here == NULL || stream->here_before == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for a list of token files");
    }
    stream->has_mixture = weights != NULL;
    if (weights != NULL) tw_order_mix(&stream->mixture, weights, stream->sources_count);
    tw_stream_update(stream);
    return TW_OK;
}

void tw_stream_update(struct tw_stream *stream) {
    stream->here_count = 0;
    for (uint32_t s = 0; s < stream->sources_count; s++) {
        struct tw_stream_source *const source = &stream->sources[s];
        source->here_begin = stream->here_count;
        for (uint32_t i = source->begin; i < source->end; i++) {
            if (!stream->stretches[i].is_here || stream->stretches[i].windows == 0) continue;
            const uint64_t before = stream->here_before[stream->here_count];
            stream->here[stream->here_count++] = i;
            stream->here_before[stream->here_count] = before + stream->stretches[i].windows;
        }
        source->here_end = stream->here_count;
    }
}

void tw_stream_deinit(struct tw_stream *stream) {
    for (uint32_t i = 0; i < stream->stretches_count; i++) free(stream->stretches[i].easiest);
    free(stream->stretches);
    free(stream->here);
    free(stream->here_before);
    *stream = (struct tw_stream){.stretches = NULL};
}

/* ---- which window ---------------------------------------------------------------------------- */

/* Returns the stretch and index of window i of a source. */
static struct tw_window find_window(const struct tw_stream *stream,
                                    const struct tw_stream_source *source, uint64_t i) {
    /* binary search for the last stretch with before <= i */
    uint32_t low = source->begin, high = source->end - 1;
    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        if (stream->stretches[middle].before <= i) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return (struct tw_window){.stretch = low, .index = i - stream->stretches[low].before};
}

/* Uses the key to choose a window that is present: one of this source if it has any, else one of
 * any source. */
static struct tw_window replace_missing(const struct tw_stream *stream,
                                        const struct tw_stream_source *source, uint64_t key) {
    const bool has_own = source->here_end > source->here_begin;
    uint32_t low = has_own ? source->here_begin : 0;
    uint32_t high = has_own ? source->here_end : stream->here_count;
    TW_ASSERT(high > low);
    const uint64_t begin = stream->here_before[low], end = stream->here_before[high];
    const uint64_t i = begin + key % (end - begin);
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (stream->here_before[middle] <= i) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (struct tw_window){.stretch = stream->here[low], .index = i - stream->here_before[low]};
}

static struct tw_window find_here(const struct tw_stream *stream,
                                  const struct tw_stream_source *source, uint64_t i, uint64_t key) {
    const struct tw_window window = find_window(stream, source, i);
    return stream->stretches[window.stretch].is_here ? window
                                                     : replace_missing(stream, source, key);
}

static struct tw_order_place place_of(const struct tw_stream *stream, uint64_t seed, uint64_t n) {
    if (stream->has_mixture) return tw_order_place(&stream->mixture, seed, n);
    return (struct tw_order_place){0, n};
}

struct tw_window tw_stream_window(const struct tw_stream *stream, uint64_t seed, uint64_t n) {
    const struct tw_order_place place = place_of(stream, seed, n);
    const struct tw_stream_source *const source = &stream->sources[place.source];
    const uint64_t epoch = place.rank / source->windows;
    const uint64_t own = tw_order_key(seed, FOR_EPOCH, place.source);
    const uint64_t key = tw_order_key(own, FOR_EPOCH, epoch);
    const uint64_t i = tw_order_permute(key, source->windows, place.rank % source->windows);
    struct tw_window window = find_here(stream, source, i, tw_order_key(seed, FOR_MISSING, n));
    window.epoch_key = key;
    return window;
}

struct tw_window tw_stream_easy_window(const struct tw_stream *stream, uint64_t seed, uint64_t n,
                                       uint32_t share_millionths) {
    const struct tw_order_place place = place_of(stream, seed, n);
    const struct tw_stream_source *const source = &stream->sources[place.source];
    const uint64_t i = tw_order_key(seed, FOR_EASY, n) % source->windows;
    struct tw_window window = find_here(stream, source, i, tw_order_key(seed, FOR_MISSING, n));
    /* A stretch has at most 2^24 windows, so the products stay below 2^48. */
    const uint64_t windows = stream->stretches[window.stretch].windows;
    const uint64_t easy = windows * share_millionths / 1000000;
    window.index = window.index * (easy > 0 ? easy : 1) / windows;
    return window;
}

uint64_t tw_stream_first(const struct tw_stream *stream, const struct tw_window *window) {
    const struct tw_stretch *const stretch = &stream->stretches[window->stretch];
    const uint64_t slack = stretch->count - stretch->windows * stream->context;
    const uint64_t key = tw_order_key(window->epoch_key, FOR_OFFSET, window->stretch);
    return stretch->first + key % slack + window->index * stream->context;
}
