/* mix.h - how an outer step changes the live parameters, and the outer gradient computed from them.
 * Host arithmetic in a fixed order, without contraction to FMA. Arrays (n) must not overlap. */
#ifndef TW_KERNELS_MIX_H
#define TW_KERNELS_MIX_H

#include <stddef.h>

/* For contributors: theta = alpha * theta + (1 - alpha) * anchor_new. Streaming DiLoCo, arXiv
 * 2501.18512, Algorithm 2. alpha = 0 copies the anchor. */
void tw_mix(float *theta, const float *anchor_new, float alpha, size_t n);
void tw_mix_ref(float *theta, const float *anchor_new, float alpha, size_t n);

/* For other nodes: theta = theta + (anchor_new - anchor_old). Their own work stays in the next
 * Delta. */
void tw_shift(float *theta, const float *anchor_new, const float *anchor_old, size_t n);
void tw_shift_ref(float *theta, const float *anchor_new, const float *anchor_old, size_t n);

/* The outer gradient: delta = anchor - theta. */
void tw_delta(float *delta, const float *anchor, const float *theta, size_t n);
void tw_delta_ref(float *delta, const float *anchor, const float *theta, size_t n);

/* The outer gradient with error feedback, in one pass over memory, each operation rounded
 * separately:
 *
 *     delta = anchor - theta;  v = delta + beta * residual */
struct tw_delta {
    float *v;
    float *delta; /* NULL: skipped */
    const float *anchor, *theta, *residual;
    float beta;
    size_t n;
};
void tw_delta_feedback(const struct tw_delta *d);
void tw_delta_feedback_ref(const struct tw_delta *d);

/* Takes back the elements that a sparse result left out. Where merged is 0, nothing of the node's v
 * = delta + beta * residual was merged, and next becomes all of v; elsewhere next does not change.
 * gTop-k, arXiv 1901.04359, does the same. */
struct tw_regain {
    float *next; /* residual after the merge: in/out */
    const float *merged, *delta, *residual;
    float beta;
    size_t n;
};
void tw_regain(const struct tw_regain *r);
void tw_regain_ref(const struct tw_regain *r);

#endif
