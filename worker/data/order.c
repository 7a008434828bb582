#include "worker/data/order.h"

#include "base/assert.h"
#include "base/rng.h"

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
