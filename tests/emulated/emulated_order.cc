#include "tests/emulated/emulated_order.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

extern "C" {
#include "base/rng.h"
}

static tw_emulation_state from_environment() {
    const char *text = getenv("TW_EMULATED_ORDER");
    if (text == nullptr || strcmp(text, "up") == 0) return {TW_EMULATION_UP, 0};
    if (strcmp(text, "down") == 0) return {TW_EMULATION_DOWN, 0};
    if (strcmp(text, "both") == 0) return {TW_EMULATION_BOTH, 0};
    return {TW_EMULATION_SHUFFLED, strtoull(text, nullptr, 10)};
}

static std::mutex lock;

static tw_emulation_state &of_process() {
    static tw_emulation_state state = from_environment();
    return state;
}

static thread_local const tw_emulation_state *of_thread;

extern "C" void tw_emulation_set_order(enum tw_emulation_order order, uint64_t seed) {
    const std::lock_guard<std::mutex> guard(lock);
    of_process() = {order, seed};
}

tw_emulation_state tw_emulation_state_now() {
    if (of_thread != nullptr) return *of_thread;
    const std::lock_guard<std::mutex> guard(lock);
    return of_process();
}

void tw_emulation_state_here(const tw_emulation_state *state) {
    of_thread = state;
}

static uint64_t divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

uint64_t tw_emulated_place(uint64_t i, uint64_t count, const tw_emulation_state &state) {
    if (state.order == TW_EMULATION_DOWN) return count - 1 - i;
    if (state.order != TW_EMULATION_SHUFFLED || count < 2) return i;
    /* Steps whose width is coprime to the count visit every element once. */
    uint64_t random = state.seed;
    uint64_t step = tw_splitmix64(&random) % count, first = tw_splitmix64(&random) % count;
    while (divisor(step, count) != 1) step++;
    return (uint64_t)(((unsigned __int128)i * step + first) % count);
}

void tw_emulated_order(std::vector<unsigned> &order, unsigned count,
                       const tw_emulation_state &state) {
    order.resize(count);
    for (unsigned i = 0; i < count; i++) order[i] = (unsigned)tw_emulated_place(i, count, state);
}
