/* outer_ref.c - the outer steps, with each rounding explicit. */
#include "kernels/outer.h"

void tw_outer_nesterov_ref(float *anchor, float *momentum, const float *delta, size_t n,
                           struct tw_outer cfg) {
    for (size_t i = 0; i < n; i++) {
        const volatile float carried = cfg.momentum * momentum[i];
        const volatile float u = carried + delta[i];
        const volatile float ahead = cfg.momentum * u;
        const volatile float direction = delta[i] + ahead;
        const volatile float step = cfg.lr * direction;
        momentum[i] = u;
        anchor[i] = anchor[i] - step;
    }
}

void tw_outer_heavyball_ref(float *anchor, float *momentum, const float *delta, size_t n,
                            struct tw_outer cfg) {
    for (size_t i = 0; i < n; i++) {
        const volatile float carried = cfg.momentum * momentum[i];
        const volatile float counted = cfg.gain * delta[i];
        const volatile float step = cfg.lr * counted;
        float u = carried + step;
        if (u > cfg.limit) u = cfg.limit;
        if (u < -cfg.limit) u = -cfg.limit;
        momentum[i] = u;
        anchor[i] = anchor[i] - u;
    }
}

void tw_outer_pull_ref(float *anchor, float *momentum, const float *own, const float *theirs,
                       float half, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const volatile float apart = theirs[i] - own[i];
        const volatile float d = half * apart;
        momentum[i] = momentum[i] - d;
        anchor[i] = anchor[i] + d;
    }
}
