/* mix.c - changes the live parameters after an outer step, and computes the outer gradient. */
#include "kernels/mix.h"

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
