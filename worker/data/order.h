/* order.h - the order of windows, as pure functions of a seed and a number. A resume needs only the
 * cursor, any window is found in constant time, and nodes with different seeds need no
 * coordination. */
#ifndef TW_WORKER_DATA_ORDER_H
#define TW_WORKER_DATA_ORDER_H

#include <stdint.h>

#include "proto/dataset.h"

/* Pseudorandom number of (seed, a, b). */
uint64_t tw_order_key(uint64_t seed, uint64_t a, uint64_t b);

/* Pseudorandom bijection of [0, count), keyed: i < count <= 2^62. A Feistel network (Luby & Rackoff
 * 1988) over the least even number of bits that holds count is iterated until the result is below
 * count (cycle walking, Black & Rogaway 2002). That takes at most four iterations on average. */
uint64_t tw_order_permute(uint64_t key, uint64_t count, uint64_t i);

/* Mixes the windows of several sources by weight. Every TW_ORDER_BLOCK windows contain exactly each
 * source's count, in a pseudorandom order. */
enum { TW_ORDER_BLOCK = 10000 };

struct tw_order_mixture {
    uint32_t sources_count;
    uint32_t
        ends[TW_DATASET_SOURCES_MAX]; /* end of each source's range in a block; the last is BLOCK */
};

/* Computes the counts by largest remainder, at least 1 each. weights (sources_count >= 1), none
 * zero. */
void tw_order_mix(struct tw_order_mixture *mixture, const uint32_t *weights,
                  uint32_t sources_count);

/* Window n overall is window `rank` of `source`. Every rank occurs exactly once. */
struct tw_order_place {
    uint32_t source;
    uint64_t rank;
};
struct tw_order_place tw_order_place(const struct tw_order_mixture *mixture, uint64_t seed,
                                     uint64_t n);

/* Fraction of the windows, the easiest ones, to draw from: in millionths, after `done` of `planned`
 * curriculum tokens, done < planned; c0 = 0.1:
 *
 *     c = sqrt(done / planned (1 - c0^2) + c0^2)
 *
 * Platanios et al. 2019, arXiv 1903.09848, equation 7. Integers only: the same on every machine. */
uint32_t tw_order_competence(uint64_t done, uint64_t planned);

#endif
