/* order.h - the order in which windows are drawn, as pure functions of a seed and a number. A
 * resumed run needs only the cursor, any window is found in constant time, and nodes with different
 * seeds need no coordination. */
#ifndef TW_WORKER_DATA_ORDER_H
#define TW_WORKER_DATA_ORDER_H

#include <stdint.h>

#include "proto/dataset.h"

/* Pseudorandom number that depends on (seed, a, b) alone. */
uint64_t tw_order_key(uint64_t seed, uint64_t a, uint64_t b);

/* Pseudorandom bijection of [0, count) chosen by `key`, with i < count <= 2^62. A Feistel network
 * (Luby & Rackoff 1988) over the least even number of bits that holds count is iterated until the
 * result is below count (cycle walking, Black & Rogaway 2002). That takes at most four iterations
 * on average. */
uint64_t tw_order_permute(uint64_t key, uint64_t count, uint64_t i);

/* Mixes the windows of several sources by weight. Every block of TW_ORDER_BLOCK windows contains
 * each source's exact share, in a pseudorandom order. */
enum { TW_ORDER_BLOCK = 10000 };

struct tw_order_mixture {
    uint32_t sources_count;
    uint32_t ends[TW_DATASET_SOURCES_MAX]; /* end of each source's range in a block; the last end is
                                              TW_ORDER_BLOCK */
};

/* Computes each source's windows per block by largest remainder, at least 1 each. weights
 * (sources_count >= 1) must not be zero. */
void tw_order_mix(struct tw_order_mixture *mixture, const uint32_t *weights,
                  uint32_t sources_count);

/* Window number n of the mixture is window `rank` of `source`. Every rank occurs exactly once. */
struct tw_order_place {
    uint32_t source;
    uint64_t rank;
};
struct tw_order_place tw_order_place(const struct tw_order_mixture *mixture, uint64_t seed,
                                     uint64_t n);

/* Competence c: the share of windows, the easiest ones, from which the curriculum draws. Returned
 * in millionths, after `done` of `planned` curriculum tokens, done < planned; c0 = 0.1:
 *
 *     c = sqrt(done / planned * (1 - c0^2) + c0^2)
 *
 * Platanios et al. 2019, arXiv 1903.09848, equation 7. Integer arithmetic gives the same result on
 * every machine. */
uint32_t tw_order_competence(uint64_t done, uint64_t planned);

#endif
