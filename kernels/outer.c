/* outer.c - outer step with Nesterov momentum, and its momentum ramp. */
#include "kernels/outer.h"

#include "base/assert.h"

struct tw_outer tw_outer_at(uint32_t lr_millionths, uint32_t momentum_millionths, uint32_t ramp,
                            uint64_t version) {
    TW_ASSERT(lr_millionths > 0);
    TW_ASSERT(momentum_millionths < 1000000);
    const uint64_t whole = ramp == 0 ? 1 : ramp;
    const uint64_t reached = ramp == 0 || version >= ramp ? whole : version;
    return (struct tw_outer){
        .lr = (float)((double)lr_millionths / 1e6),
        .momentum = (float)((double)(momentum_millionths * reached) / (1e6 * (double)whole)),
    };
}

void tw_outer_nesterov(float *restrict anchor, float *restrict momentum,
                       const float *restrict delta, size_t n, struct tw_outer cfg) {
    for (size_t i = 0; i < n; i++) {
        const float u = cfg.momentum * momentum[i] + delta[i];
        momentum[i] = u;
        anchor[i] = anchor[i] - cfg.lr * (delta[i] + cfg.momentum * u);
    }
}
