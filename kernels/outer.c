/* outer.c - outer gradients, outer steps and mixing. The references at the end have each rounding
 * explicit. */
#include "kernels/outer.h"

#include <math.h>

#include "base/assert.h"

/* ---- the outer gradient and the live parameters --------------------------------------------- */

void tw_mix(float *restrict theta, const float *restrict anchor_new, float alpha, size_t n) {
    const float rest = 1.0f - alpha;
    for (size_t i = 0; i < n; i++) theta[i] = alpha * theta[i] + rest * anchor_new[i];
}

void tw_shift(float *restrict theta, const float *restrict anchor_new,
              const float *restrict anchor_old, size_t n) {
    for (size_t i = 0; i < n; i++) theta[i] = theta[i] + (anchor_new[i] - anchor_old[i]);
}

void tw_delta(float *restrict delta, const float *restrict anchor, const float *restrict theta,
              size_t n) {
    for (size_t i = 0; i < n; i++) delta[i] = anchor[i] - theta[i];
}

void tw_regain(const struct tw_regain *r) {
    float *restrict next = r->next;
    const float *restrict merged = r->merged, *restrict delta = r->delta;
    const float *restrict residual = r->residual;
    const float beta = r->beta;
    for (size_t i = 0; i < r->n; i++) {
        const float v = delta[i] + beta * residual[i];
        next[i] = merged[i] == 0.0f ? v : next[i];
    }
}

void tw_delta_feedback(const struct tw_delta *d) {
    float *restrict v = d->v, *restrict delta = d->delta;
    const float *restrict anchor = d->anchor, *restrict theta = d->theta;
    const float *restrict residual = d->residual;
    const float beta = d->beta;
    const size_t n = d->n;
    for (size_t i = 0; delta == NULL && i < n; i++) {
        v[i] = anchor[i] - theta[i] + beta * residual[i];
    }
    for (size_t i = 0; delta != NULL && i < n; i++) {
        const float difference = anchor[i] - theta[i];
        delta[i] = difference;
        v[i] = difference + beta * residual[i];
    }
}

/* ---- the outer step ------------------------------------------------------------------------- */

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

/* ---- the momentum of the inner optimizer ---------------------------------------------------- */

/* Returns ||m / sqrt(v_hat)|| / ||delta||, over the elements where m changes. */
static float largest_scale(const float *m, const float *v, const float *delta, size_t n,
                           const struct tw_momentum_lead *cfg) {
    double own = 0.0, merged = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(v[i] > 0.0f) || delta[i] == 0.0f) continue;
        const double step = (double)m[i] / sqrt((double)(v[i] / cfg->correction2));
        own += step * step;
        merged += (double)delta[i] * (double)delta[i];
    }
    return merged > 0.0 ? (float)sqrt(own / merged) : 0.0f;
}

void tw_momentum_lead(float *m, const float *v, const float *delta, size_t n,
                      const struct tw_momentum_lead *cfg) {
    const float largest = largest_scale(m, v, delta, n, cfg),
                wanted = 1.0f / (cfg->lr * cfg->steps);
    const float scale = wanted < largest ? wanted : largest;
    if (!isfinite(scale) || scale == 0.0f) return;
    for (size_t i = 0; i < n; i++) {
        if (!(v[i] > 0.0f) || delta[i] == 0.0f) continue;
        const float led = sqrtf(v[i] / cfg->correction2) * delta[i] * scale;
        m[i] += cfg->share * (led - m[i]);
    }
}

/* ---- references ----------------------------------------------------------------------------- */

void tw_mix_ref(float *theta, const float *anchor_new, float alpha, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const volatile float mine = alpha * theta[i];
        const volatile float others = (1.0f - alpha) * anchor_new[i];
        theta[i] = mine + others;
    }
}

void tw_shift_ref(float *theta, const float *anchor_new, const float *anchor_old, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const volatile float step = anchor_new[i] - anchor_old[i];
        theta[i] = theta[i] + step;
    }
}

void tw_delta_ref(float *delta, const float *anchor, const float *theta, size_t n) {
    for (size_t i = 0; i < n; i++) delta[i] = anchor[i] - theta[i];
}

void tw_delta_feedback_ref(const struct tw_delta *d) {
    tw_delta_ref(d->v, d->anchor, d->theta, d->n);
    for (size_t i = 0; d->delta != NULL && i < d->n; i++) d->delta[i] = d->v[i];
    for (size_t i = 0; i < d->n; i++) d->v[i] = d->v[i] + d->beta * d->residual[i];
}

void tw_regain_ref(const struct tw_regain *r) {
    for (size_t i = 0; i < r->n; i++) {
        const volatile float waiting = r->beta * r->residual[i];
        if (r->merged[i] == 0.0f) r->next[i] = r->delta[i] + waiting;
    }
}

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
