/* emulated_order.h - in which order emulated threads and blocks have their turns (C++, tests only).
 */
#ifndef TW_KERNELS_CUDA_EMULATED_ORDER_H
#define TW_KERNELS_CUDA_EMULATED_ORDER_H

#include <cstdint>
#include <vector>

#include "kernels/cuda/emulation.h"

struct tw_emulation_state {
    tw_emulation_order order;
    uint64_t seed;
};

/* Of the process now; for the running thread of the CPU alone: instead of it, while it runs a
 * kernel twice. */
tw_emulation_state tw_emulation_state_now();
void tw_emulation_state_here(const tw_emulation_state *state);

/* Which of `count` has turn i: each exactly one. */
uint64_t tw_emulated_place(uint64_t i, uint64_t count, const tw_emulation_state &state);
void tw_emulated_order(std::vector<unsigned> &order, unsigned count,
                       const tw_emulation_state &state);

#endif
