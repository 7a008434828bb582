/* fragment_set.h - a set of fragments of a model, one bit each. All zero means empty. */
#ifndef TW_BASE_FRAGMENT_SET_H
#define TW_BASE_FRAGMENT_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

struct tw_fragment_set {
    uint64_t words[TW_FRAGMENTS_MAX / 64];
};

_Static_assert(TW_FRAGMENTS_MAX % 64 == 0, "whole words");

static inline void tw_fragment_set_add(struct tw_fragment_set *set, uint32_t fragment) {
    set->words[fragment / 64] |= UINT64_C(1) << fragment % 64;
}

static inline void tw_fragment_set_remove(struct tw_fragment_set *set, uint32_t fragment) {
    set->words[fragment / 64] &= ~(UINT64_C(1) << fragment % 64);
}

static inline bool tw_fragment_set_has(const struct tw_fragment_set *set, uint32_t fragment) {
    return (set->words[fragment / 64] >> fragment % 64 & 1) != 0;
}

static inline bool tw_fragment_set_is_empty(const struct tw_fragment_set *set) {
    uint64_t all = 0;
    for (uint32_t i = 0; i < TW_FRAGMENTS_MAX / 64; i++) all |= set->words[i];
    return all == 0;
}

#endif
