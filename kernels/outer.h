/* outer.h - the outer step. Host, fixed order, no contraction: every node gets the same bits. */
#ifndef TW_KERNELS_OUTER_H
#define TW_KERNELS_OUTER_H

#include <stddef.h>
#include <stdint.h>

struct tw_outer {
    float lr;       /* eta > 0 */
    float momentum; /* mu in [0, 1) */
};

/* The rule at outer step `version` of a fragment (0 for its first): mu grows linearly from 0 and
 * reaches momentum at version = ramp; ramp 0 means at once. Short runs need it: with few outer
 * steps the published (.7, .9) overshoots. Integers until one IEEE division: same bits everywhere.
 */
struct tw_outer tw_outer_at(uint32_t lr_millionths, uint32_t momentum_millionths, uint32_t ramp,
                            uint64_t version);

/* Outer step with Nesterov momentum: DiLoCo, arXiv 2311.08105, Algorithm 1.
 *
 *     delta_i = anchor - theta_i                (same sign as a gradient: subtract it)
 *     delta   = sum_i w_i delta_i,  sum_i w_i = 1
 *     u       = mu u + delta
 *     anchor  = anchor - eta (delta + mu u)
 *
 * anchor (n), momentum (n): in/out; delta (n): in. float32, host, must not overlap.
 * Same inputs, same bits. Cannot fail. */
void tw_outer_nesterov(float *anchor, float *momentum, const float *delta, size_t n,
                       struct tw_outer cfg);
void tw_outer_nesterov_ref(float *anchor, float *momentum, const float *delta, size_t n,
                           struct tw_outer cfg);

#endif
