/* cross_entropy_ref.c - softmax, loss and gradient of one row at a time. */
#include <math.h>

#include "kernels/ref/ref.h"

double TW_REF(cross_entropy)(void *dlogits, float *logits, const uint32_t *targets,
                             const struct tw_cross_entropy *cfg) {
    double loss = 0.0;
    for (size_t r = 0; r < cfg->rows; r++) {
        const float *row = logits + r * cfg->logits_stride;
        double max = -INFINITY, sum = 0.0;
        for (size_t i = 0; i < cfg->vocab; i++) {
            if (!((double)row[i] <= max)) max = (double)row[i];
        }
        for (size_t i = 0; i < cfg->vocab; i++) sum += exp((double)row[i] - max);
        const double lse = max + log(sum);
        loss += lse - (double)row[targets[r]];
        for (size_t i = 0; i < cfg->vocab && dlogits != NULL; i++) {
            const double p = (1.0 + 2.0 * (double)cfg->z_loss * lse) * exp((double)row[i] - lse);
            tw_ref_put(dlogits, r * cfg->dlogits_stride + i,
                       (double)cfg->scale * (p - (i == targets[r] ? 1.0 : 0.0)));
        }
    }
    return loss;
}
