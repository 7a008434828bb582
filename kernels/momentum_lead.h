/* momentum_lead.h - replaces part of the inner optimizer's momentum by the common direction of a
 * merge (sync.lead). It affects one node only, so results need not agree between nodes. */
#ifndef TW_KERNELS_MOMENTUM_LEAD_H
#define TW_KERNELS_MOMENTUM_LEAD_H

#include <stddef.h>

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
