/* mix_ref.c - the rules of mix.h, with each rounding explicit. */
#include "kernels/mix.h"

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
