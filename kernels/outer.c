/* outer.c - outer steps with Nesterov and heavy-ball momentum, and the settings of each step. */
#include "kernels/outer.h"

#include <math.h>

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
        .gain = 1.0f,
        .limit = INFINITY,
    };
}

struct tw_outer tw_outer_temper(struct tw_outer cfg, uint32_t gap_millionths,
                                uint32_t clip_millionths, const struct tw_outer_sizes *sizes) {
    const double rest = 1.0 - (double)cfg.momentum;
    const double step = (double)cfg.lr * sqrt(sizes->delta_squared);
    if (gap_millionths > 0 && step > 0.0) {
        const double kappa = (double)gap_millionths / 1e6;
        cfg.gain = (float)(1.0 / (1.0 + kappa * rest * sqrt(sizes->u_squared) / step));
    }
    if (clip_millionths > 0 && sizes->count > 0) {
        const double k = (double)clip_millionths / 1e6;
        cfg.limit = (float)(k * step / (sqrt((double)sizes->count) * rest));
    }
    return cfg;
}

void tw_outer_nesterov(float *restrict anchor, float *restrict momentum,
                       const float *restrict delta, size_t n, struct tw_outer cfg) {
    for (size_t i = 0; i < n; i++) {
        const float u = cfg.momentum * momentum[i] + delta[i];
        momentum[i] = u;
        anchor[i] = anchor[i] - cfg.lr * (delta[i] + cfg.momentum * u);
    }
}

void tw_outer_heavyball(float *restrict anchor, float *restrict momentum,
                        const float *restrict delta, size_t n, struct tw_outer cfg) {
    for (size_t i = 0; i < n; i++) {
        float u = cfg.momentum * momentum[i] + cfg.lr * (cfg.gain * delta[i]);
        u = u > cfg.limit ? cfg.limit : u;
        u = u < -cfg.limit ? -cfg.limit : u;
        momentum[i] = u;
        anchor[i] = anchor[i] - u;
    }
}

void tw_outer_pull(float *restrict anchor, float *restrict momentum, const float *restrict own,
                   const float *restrict theirs, float half, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float d = half * (theirs[i] - own[i]);
        momentum[i] = momentum[i] - d;
        anchor[i] = anchor[i] + d;
    }
}
