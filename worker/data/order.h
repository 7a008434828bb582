/* order.h - which window comes when: pure functions of a seed and a number, so that a cursor is all
 * there is to save, any window is found at once, and nodes with other seeds need not be asked. */
#ifndef TW_WORKER_DATA_ORDER_H
#define TW_WORKER_DATA_ORDER_H

#include <stdint.h>

#include "proto/dataset.h"

/* A number of its own for each (seed, a, b). */
uint64_t tw_order_key(uint64_t seed, uint64_t a, uint64_t b);

/* Pseudorandom bijection of [0, count), keyed: i < count <= 2^62. A Feistel network (Luby & Rackoff
 * 1988) over the least even number of bits that holds count, walked along its cycle until it is
 * back below count (Black & Rogaway 2002): at most four rounds of it on average. */
uint64_t tw_order_permute(uint64_t key, uint64_t count, uint64_t i);

/* Windows of several sources by their weights. In every TW_ORDER_BLOCK windows each source has
 * exactly its count, in a pseudorandom order. */
enum { TW_ORDER_BLOCK = 10000 };

struct tw_order_mixture {
    uint32_t sources_count;
    uint32_t ends[TW_DATASET_SOURCES_MAX]; /* of a source's places in a block; the last is BLOCK */
};

/* Counts by the largest remainder, at least 1 each; weights (sources_count >= 1), none zero. */
void tw_order_mix(struct tw_order_mixture *mixture, const uint32_t *weights,
                  uint32_t sources_count);

/* Window n of all is window `rank` of its source: every rank comes exactly once. */
struct tw_order_place {
    uint32_t source;
    uint64_t rank;
};
struct tw_order_place tw_order_place(const struct tw_order_mixture *mixture, uint64_t seed,
                                     uint64_t n);

/* Share of the easiest windows, in millionths, that are drawn from when `done` of `planned` tokens
 * of a curriculum are over, done < planned; c0 = 0.1:
 *
 *     c = sqrt(done / planned (1 - c0^2) + c0^2)
 *
 * Platanios et al. 2019, arXiv 1903.09848, equation 7. Whole numbers only: the same everywhere. */
uint32_t tw_order_competence(uint64_t done, uint64_t planned);

#endif
