/* outer.h - the outer gradient, the outer step, and the change of the live parameters after it.
 * Host arithmetic in a fixed order, without contraction to FMA: every node gets the same bits.
 * Arrays (n) must not overlap. */
#ifndef TW_KERNELS_OUTER_H
#define TW_KERNELS_OUTER_H

#include <stddef.h>
#include <stdint.h>

/* ---- the outer gradient and the live parameters --------------------------------------------- */

/* How an outer step changes the live parameters, and the outer gradient computed from them.
 * Host arithmetic in a fixed order, without contraction to FMA. Arrays (n) must not overlap. */

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

/* ---- the outer step ------------------------------------------------------------------------- */

/* The outer step. Host arithmetic in a fixed order, without contraction to FMA: every
 * node gets the same bits. */

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

/* ---- the momentum of the inner optimizer ---------------------------------------------------- */

/* Replaces part of the inner optimizer's momentum by the common direction of a
 * merge (sync.lead). It affects one node only, so results need not agree between nodes. */

struct tw_momentum_lead {
    float share;       /* a in [0, 1] */
    float lr;          /* learning rate of the inner steps */
    float steps;       /* number S > 0 of inner steps that the merge covers */
    float correction2; /* 1 - beta2^t, AdamW's bias correction of v */
};

/* AdamW's first moment m is the mean of one node's last small batches. A merge averages the noise
 * of those batches out of theta, but m then brings the node's own noise back. But the merge also
 * gives the direction of all nodes. Each step was lr * m_hat / sqrt(v_hat), so the mean of m_hat /
 * sqrt(v_hat) over S steps and all contributors is delta / (lr * S). With share a:
 *
 *     m = (1 - a) * m + a * sqrt(v / correction2) * delta / (lr * S)
 *
 * Large batches, or averaged momenta (SlowMo, arXiv 1910.00643), would have a similar effect on m;
 * this costs no bytes. FedCM (arXiv 2106.10874) adds the merged step to every local step in the
 * same way. Contributors may claim false steps, so the second term is limited. Before the product
 * with sqrt(v), its norm is at most the norm of the term that it replaces (m where delta is not 0).
 * With sparse codecs the limit matters: they send elements that they accumulated over many rounds.
 *
 * m (n): in/out; v, delta (n): in. Elements with v = 0 do not change: AdamW has not updated them,
 * or Muon trains the matrix. Elements with delta = 0 do not change either: sparse and coarse codecs
 * send most elements as 0, whatever their direction. */
void tw_momentum_lead(float *m, const float *v, const float *delta, size_t n,
                      const struct tw_momentum_lead *cfg);

#endif
