/* cross_entropy.c - loss and gradient of a row of logits in three passes: maximum, exponentials and
 * their sum, gradient. */
#include <math.h>

#include "kernels/cpu/exp.h"

enum { CHAINS = 4 };

/* Returns the maximum of a row. A NaN may be missed here, but row_exp then returns NaN. */
static float row_largest(const float *row, size_t n) {
    tw_vec largest[CHAINS];
    size_t i = 0;
    for (size_t j = 0; j < CHAINS; j++) largest[j] = tw_vec_all(row[0]);
    for (; i + CHAINS * TW_VEC <= n; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) {
            largest[j] = tw_vec_max(tw_vec_load(row + i + j * TW_VEC), largest[j]);
        }
    }
    for (; i + TW_VEC <= n; i += TW_VEC) largest[0] = tw_vec_max(tw_vec_load(row + i), largest[0]);
    float max = tw_vec_largest(
        tw_vec_max(tw_vec_max(largest[0], largest[1]), tw_vec_max(largest[2], largest[3])));
    for (; i < n; i++) max = row[i] > max ? row[i] : max;
    return max;
}

/* Returns the sum of e^(row - max). If is_kept, the exponentials replace the row. */
TW_INLINE float row_exp(float *row, size_t n, float max, const bool is_kept) {
    tw_vec sum[CHAINS] = {{0}};
    size_t i = 0;
    for (; i + CHAINS * TW_VEC <= n; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) {
            const tw_vec e = tw_vec_exp(tw_vec_load(row + i + j * TW_VEC) - max);
            if (is_kept) tw_vec_store(row + i + j * TW_VEC, e);
            sum[j] += e;
        }
    }
    for (; i + TW_VEC <= n; i += TW_VEC) {
        const tw_vec e = tw_vec_exp(tw_vec_load(row + i) - max);
        if (is_kept) tw_vec_store(row + i, e);
        sum[0] += e;
    }
    float rest = 0.0f;
    if (i < n) {
        const tw_vec e = tw_vec_exp(tw_vec_load_part(row + i, n - i) - max);
        if (is_kept) tw_vec_store_part(row + i, e, n - i);
        for (size_t j = 0; j < n - i; j++) rest += e[j];
    }
    return tw_vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* Sets `to` to row * factor. `to` may begin where `row` begins, because writing never overtakes
 * reading. */
static void row_scale(tw_act *to, const float *row, size_t n, float factor) {
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(to + i, tw_vec_load(row + i) * factor);
    for (; i < n; i++) tw_act_put(to + i, row[i] * factor);
}

double TW_CPU(cross_entropy)(void *dlogits, float *logits, const uint32_t *targets,
                             const struct tw_cross_entropy *cfg) {
    double loss = 0.0;
    for (size_t r = 0; r < cfg->rows; r++) {
        float *row = logits + r * cfg->logits_stride;
        const float max = row_largest(row, cfg->vocab), target = row[targets[r]];
        const float sum = dlogits != NULL ? row_exp(row, cfg->vocab, max, true)
                                          : row_exp(row, cfg->vocab, max, false);
        const float log_sum = logf(sum);
        loss += (double)log_sum + ((double)max - (double)target);
        if (dlogits == NULL) continue;
        tw_act *to = (tw_act *)dlogits + r * cfg->dlogits_stride;
        const float pull = 1.0f + 2.0f * cfg->z_loss * (max + log_sum);
        const float factor = cfg->scale * pull / sum, at_target = row[targets[r]] * factor;
        row_scale(to, row, cfg->vocab, factor);
        tw_act_put(to + targets[r], at_target - cfg->scale);
    }
    return loss;
}
