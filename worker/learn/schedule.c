/* schedule.c - the inner learning rate as a function of the run clock. */
#include <math.h>

#include "worker/engine/engine.h"

static const double PI = 3.14159265358979323846;

/* Returns the decay factor between warm-up and budget: 1 at the peak rate, 0 at the final rate.
 *
 *     cosine   (1 + cos(pi * s)) / 2,  s = (clock - warmup) / (budget - warmup)
 *     linear   1 - s
 *     wsd      1 while clock <= b = max(warmup, (1 - decay) * budget),
 *              then 1 - sqrt((clock - b) / (budget - b))
 *
 * Warm-up, stable, decay (wsd): arXiv 2404.06395, section 4. The 1 - sqrt decay reached a lower
 * loss than a linear decay: arXiv 2405.18392, section 3. */
static double decay_factor(const struct tw_run *run, uint64_t clock_tokens) {
    const double budget = (double)run->train.tokens, warmup = (double)run->train.warmup_tokens;
    const double clock = (double)clock_tokens;
    const double share = (clock - warmup) / (budget - warmup);
    switch (run->train.schedule) {
    case TW_SCHEDULE_COSINE: return 0.5 * (1.0 + cos(PI * share));
    case TW_SCHEDULE_LINEAR: return 1.0 - share;
    case TW_SCHEDULE_WSD: break;
    }
    const double decay = run->train.wsd_decay_millionths / 1e6;
    const double begin = fmax(warmup, budget * (1.0 - decay));
    return clock <= begin ? 1.0 : 1.0 - sqrt((clock - begin) / (budget - begin));
}

/* Returns the rate limit for an optimizer that starts with zero moments. Adam's first steps have
 * full length in every direction, even where the gradient is mere noise. The resulting Delta is so
 * large that guards refuse it. After t steps the rate is at most
 *
 *     peak * t / min(2 / (1 - beta2), steps of the run's own warm-up)
 *
 * This is the untuned linear warm-up (Ma and Yarats, arXiv 1910.04209, section 5), or the run's own
 * if shorter. At the beginning of a run, this limit is thus never below the run's own warm-up. */
static double cold_start_limit(const struct tw_run *run, double peak, uint64_t updates) {
    const double step = (double)run->train.batch * run->model.context * run->sync.nodes;
    const double own = (double)run->train.warmup_tokens / step;
    const double steps = fmin(own, 2.0 / (1.0 - run->train.beta2_millionths / 1e6));
    return (double)updates + 1.0 < steps ? peak * ((double)updates + 1.0) / steps : peak;
}

static double warm_lr(const struct tw_run *run, double peak, uint64_t clock_tokens) {
    const double last = peak * (run->train.lr_final_millionths / 1e6);
    const uint64_t warmup = run->train.warmup_tokens, budget = run->train.tokens;
    if (clock_tokens < warmup) {
        /* The clock counts one batch ahead, so that the first step's rate is not zero. */
        const uint64_t step = (uint64_t)run->train.batch * run->model.context;
        const uint64_t reached = clock_tokens + step < warmup ? clock_tokens + step : warmup;
        return peak * ((double)reached / (double)warmup);
    }
    if (clock_tokens >= budget) return last;
    return last + (peak - last) * decay_factor(run, clock_tokens);
}

float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens, uint64_t updates) {
    const double peak = run->train.lr_millionths / 1e6;
    return (float)fmin(warm_lr(run, peak, clock_tokens), cold_start_limit(run, peak, updates));
}
