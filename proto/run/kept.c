#include "proto/run/kept.h"

#include "base/limits.h"

static uint64_t at_least(uint64_t value, uint64_t least) {
    return value > least ? value : least;
}

static uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

struct tw_kept tw_kept(uint64_t elements, uint64_t largest, uint64_t result_bytes,
                       uint64_t rounds_most) {
    enum { SMALL_ELEMENTS = 32 << 20, SMALL_BYTES = 64 << 20, ROUNDS_LEAST = 4 };
    const uint64_t states = at_least(elements / 8, SMALL_ELEMENTS);
    const uint64_t bytes = at_least(elements / 2, SMALL_BYTES);
    struct tw_kept kept = {
        .states = at_least(at_most(states, TW_STATES_KEPT * largest), largest),
        .rounds = at_most(rounds_most, TW_RESULT_ROUNDS_MAX),
    };
    if (result_bytes > 0)
        kept.rounds = at_most(kept.rounds, at_least(bytes / result_bytes, ROUNDS_LEAST));
    return kept;
}

uint64_t tw_kept_anchor_bytes(const struct tw_layout *layout) {
    return (layout->elements + tw_layout_largest(layout)) *
           (sizeof(float) + tw_momentum_bytes(layout->momentum));
}

uint64_t tw_kept_transit_bytes(const struct tw_run *run, const struct tw_layout *layout,
                               uint64_t sent_bytes, uint64_t result_bytes) {
    /* gaps between payloads count as a contribution of each round; the pages of small payloads are
     * never given back */
    enum { CONTRIBUTIONS = 6, FLOOR_BYTES = 4 << 20 };
    if (run->sync.topology == TW_TOPOLOGY_SOLO) return 0;
    const struct tw_kept kept = tw_kept(layout->elements, tw_layout_largest(layout), result_bytes,
                                        UINT64_C(4) * layout->fragments_count);
    const uint64_t state_bytes = sizeof(float) + tw_momentum_bytes(layout->momentum);
    return FLOOR_BYTES + kept.states * state_bytes + kept.rounds * result_bytes +
           CONTRIBUTIONS * sent_bytes;
}
