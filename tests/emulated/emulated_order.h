/* emulated_order.h - the order in which emulated threads and blocks run (C++, tests only). */
#ifndef TW_TESTS_EMULATED_EMULATED_ORDER_H
#define TW_TESTS_EMULATED_EMULATED_ORDER_H

#include <cstdint>
#include <vector>

#include "tests/emulated/emulation.h"

struct tw_emulation_state {
    tw_emulation_order order;
    uint64_t seed;
};

/* Returns the order in use: normally the process's. A CPU thread that runs a kernel twice overrides
 * it for itself with tw_emulation_state_here. */
tw_emulation_state tw_emulation_state_now();
void tw_emulation_state_here(const tw_emulation_state *state);

/* Returns which of `count` elements has turn i. Over all i, this is a permutation. */
uint64_t tw_emulated_place(uint64_t i, uint64_t count, const tw_emulation_state &state);
void tw_emulated_order(std::vector<unsigned> &order, unsigned count,
                       const tw_emulation_state &state);

#endif
