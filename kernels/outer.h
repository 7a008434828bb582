/* outer.h - the outer step. Host arithmetic in a fixed order, without contraction to FMA: every
 * node gets the same bits. */
#ifndef TW_KERNELS_OUTER_H
#define TW_KERNELS_OUTER_H

#include <stddef.h>
#include <stdint.h>

struct tw_outer {
    float lr;       /* eta > 0 */
    float momentum; /* mu in [0, 1) */
    /* The next fields are for the heavy ball. tw_outer_at sets neutral values, tw_outer_temper the
     * actual ones. */
    float gain;  /* 1 / Lambda in (0, 1]: factor of delta */
    float limit; /* largest |u_i|; INFINITY: no limit */
};

/* Returns the rule at outer step `version` of a fragment (0 for its first). mu grows linearly from
 * 0 and reaches `momentum` at version = ramp; ramp 0 means at once. Short runs need the ramp: with
 * few outer steps, the published settings (lr .7, momentum .9) overshoot. Integer arithmetic and
 * one IEEE division: same bits everywhere. */
struct tw_outer tw_outer_at(uint32_t lr_millionths, uint32_t momentum_millionths, uint32_t ramp,
                            uint64_t version);

/* Sizes of a fragment's u (before the step) and delta, over the parts that have a result. */
struct tw_outer_sizes {
    double u_squared, delta_squared; /* sums of squares by tw_norm_squared, part after part */
    uint64_t count;                  /* elements */
};

/* Returns the heavy ball's rule for a delta that arrives late, as in CO2 (arXiv 2401.16265). The
 * rule keeps no state, so that a joining node needs only (phi, u).
 *
 * Gap penalty, kappa = gap_millionths / 1e6 (0: none):
 *
 *     Lambda = 1 + kappa * (1 - mu) * ||u|| / ||eta * delta||
 *
 * The form is that of Gap-Aware (Barkai, Hakimi, Schuster, ICLR 2020), 1 + gap / C. It is not
 * verified against either paper; CO2's released code has Lambda = 1. The gap is the last move of
 * phi, ||u|| with the heavy ball, made while this delta was in flight. C is the usual move of phi,
 * estimated by the u of a steady delta: ||eta * delta|| / (1 - mu). At kappa = 1, a delta is thus
 * halved if the anchor has moved by one usual step since the delta began. A delta of zero has no
 * gap.
 *
 * Momentum clip, k = clip_millionths / 1e6 (0: none): |u_i| <= k * rms(eta * delta) / (1 - mu),
 * which is k times the momentum that a steady delta builds up. (In CO2's released code the clip has
 * no effect.) Why it helps: let delta be one outer step late, and equal to c times the distance of
 * the anchor x from a minimum. Then
 *
 *     x'' = x' - (mu * (x - x') + eta * c * x),  z^2 - (1 + mu) * z + mu + eta * c = 0
 *
 * x oscillates with growing amplitude as soon as mu + eta * c > 1. A clip with k well below 1 stops
 * this, because it limits the momentum to a size that the late delta justifies. With k of 2 or
 * more, only single extreme parameters are clipped. */
struct tw_outer tw_outer_temper(struct tw_outer cfg, uint32_t gap_millionths,
                                uint32_t clip_millionths, const struct tw_outer_sizes *sizes);

/* Outer step with Nesterov momentum: DiLoCo, arXiv 2311.08105, Algorithm 1.
 *
 *     delta_i = anchor - theta_i                (same sign as a gradient: subtract it)
 *     delta   = sum_i w_i * delta_i,  sum_i w_i = 1
 *     u       = mu * u + delta
 *     anchor  = anchor - eta * (delta + mu * u)
 *
 * anchor (n), momentum (n): in/out; delta (n): in. float32 host arrays, must not overlap. Same
 * inputs, same bits. Cannot fail. */
void tw_outer_nesterov(float *anchor, float *momentum, const float *delta, size_t n,
                       struct tw_outer cfg);
void tw_outer_nesterov_ref(float *anchor, float *momentum, const float *delta, size_t n,
                           struct tw_outer cfg);

/* Outer step with heavy-ball momentum: NoLoCo, arXiv 2506.10911, and CO2.
 *
 *     u      = clip(mu * u + eta * (gain * delta), limit)
 *     anchor = anchor - u
 *
 * u has the size of a step of the anchor, while Nesterov's u has the size of a delta. The two rules
 * therefore need different eta. Otherwise like tw_outer_nesterov. */
void tw_outer_heavyball(float *anchor, float *momentum, const float *delta, size_t n,
                        struct tw_outer cfg);
void tw_outer_heavyball_ref(float *anchor, float *momentum, const float *delta, size_t n,
                            struct tw_outer cfg);

/* The pull between the anchors of a pair, applied after the heavy ball: NoLoCo, arXiv 2506.10911,
 * equation 2, n = 2. The paper's delta has the opposite sign, and the printed sign of beta is a
 * typo, absent from its proof and code. gamma * (phi_i - mean phi) = gamma / 2 * (phi_i - phi_j) is
 * part of the step that is subtracted:
 *
 *     d      = half * (theirs - own),  half = gamma / 2
 *     u      = u - d
 *     anchor = anchor + d
 *
 * own, theirs (n): both anchors, decoded identically by both nodes. The changes of the two nodes
 * are thus exactly opposite. Otherwise like tw_outer_nesterov. */
void tw_outer_pull(float *anchor, float *momentum, const float *own, const float *theirs,
                   float half, size_t n);
void tw_outer_pull_ref(float *anchor, float *momentum, const float *own, const float *theirs,
                       float half, size_t n);

#endif
