/* rng.h - xoshiro256** (Blackman & Vigna 2018) seeded by splitmix64. Not for secrets. */
#ifndef TW_BASE_RNG_H
#define TW_BASE_RNG_H

#include <stdint.h>

struct tw_rng {
    uint64_t s[4];
};

static inline uint64_t tw_splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline void tw_rng_seed(struct tw_rng *rng, uint64_t seed) {
    for (unsigned i = 0; i < 4; i++) rng->s[i] = tw_splitmix64(&seed);
}

static inline uint64_t tw_rng_next(struct tw_rng *rng) {
    uint64_t *s = rng->s;
    const uint64_t x = s[1] * 5, result = ((x << 7) | (x >> 57)) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* Uniform in [0, bound) for bound > 0, with a bias of at most bound / 2^64. Not for secrets. */
static inline uint64_t tw_rng_below(struct tw_rng *rng, uint64_t bound) {
    return tw_rng_next(rng) % bound;
}

/* Uniform in [0, 1), with 53 random bits. */
static inline double tw_rng_unit(struct tw_rng *rng) {
    return (double)(tw_rng_next(rng) >> 11) * 0x1p-53;
}

#endif
