/* momentum_lead.h - what a merge tells the inner optimizer of a node about where the others go. Of
 * this node alone: nobody has to get the same bits. */
#ifndef TW_KERNELS_MOMENTUM_LEAD_H
#define TW_KERNELS_MOMENTUM_LEAD_H

#include <stddef.h>

struct tw_momentum_lead {
    float share;       /* a in [0, 1] */
    float lr;          /* of the inner steps */
    float steps;       /* S > 0: inner steps behind the merge */
    float correction2; /* AdamW: 1 - beta2^t */
};

/* AdamW's first moment m is the mean of the last small batches of one node: after a merge, which
 * takes the noise of theirs out of theta, it brings the node's own back in. But the merge also says
 * where all of them went: each step was lr m_hat / sqrt(v_hat), so the mean over S steps and all
 * contributors of m_hat / sqrt(v_hat) is delta / (lr S), and
 *
 *     m = (1 - a) m + a sqrt(v / correction2) delta / (lr S)
 *
 * What big batches, or momenta that are averaged too (SlowMo, arXiv 1910.00643), would do for m, at
 * no byte; FedCM (arXiv 2106.10874) has the merged step lead every local step in the same way. The
 * second term is never larger, as a norm before the product with sqrt(v), than what it takes the
 * place of, which is m where delta is not 0: contributors may have been much faster than said, or
 * lie. Of a sparse merge that is much: what a codec sends it has saved up for many rounds.
 *
 * m (n): in/out; v, delta (n): in. Where v is 0 nothing changes: there AdamW has not been, or the
 * matrix is Muon's. Nor where delta is 0: sparse and coarse codecs send most elements as that,
 * which says nothing of them. */
void tw_momentum_lead(float *m, const float *v, const float *delta, size_t n,
                      const struct tw_momentum_lead *cfg);

#endif
