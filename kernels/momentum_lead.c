/* momentum_lead.c - changes AdamW's first moment after a merge. */
#include "kernels/momentum_lead.h"

#include <math.h>

/* Returns ||m / sqrt(v_hat)|| / ||delta||, over the elements where m changes. */
static float largest_scale(const float *m, const float *v, const float *delta, size_t n,
                           const struct tw_momentum_lead *cfg) {
    double own = 0.0, merged = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(v[i] > 0.0f) || delta[i] == 0.0f) continue;
        const double step = (double)m[i] / sqrt((double)(v[i] / cfg->correction2));
        own += step * step;
        merged += (double)delta[i] * (double)delta[i];
    }
    return merged > 0.0 ? (float)sqrt(own / merged) : 0.0f;
}

void tw_momentum_lead(float *m, const float *v, const float *delta, size_t n,
                      const struct tw_momentum_lead *cfg) {
    const float largest = largest_scale(m, v, delta, n, cfg),
                wanted = 1.0f / (cfg->lr * cfg->steps);
    const float scale = wanted < largest ? wanted : largest;
    if (!isfinite(scale) || scale == 0.0f) return;
    for (size_t i = 0; i < n; i++) {
        if (!(v[i] > 0.0f) || delta[i] == 0.0f) continue;
        const float led = sqrtf(v[i] / cfg->correction2) * delta[i] * scale;
        m[i] += cfg->share * (led - m[i]);
    }
}
