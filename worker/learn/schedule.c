/* schedule.c - inner learning rate on the run clock. */
#include <math.h>

#include "worker/engine/engine.h"

static const double PI = 3.14159265358979323846;

/* How much of the way from the peak to the final rate is left between warm-up and budget: 1 at the
 * peak, 0 at the end.
 *
 *     cosine   (1 + cos(pi s)) / 2,  s = (clock - warmup) / (budget - warmup)
 *     linear   1 - s
 *     wsd      1 while clock <= b = max(warmup, (1 - decay) budget),
 *              then 1 - sqrt((clock - b) / (budget - b))
 *
 * Warm-up, stable, decay: arXiv 2404.06395, section 4; its decay as 1 - sqrt, which ended lower
 * than a straight line: arXiv 2405.18392, section 3. */
static double left_of(const struct tw_run *run, uint64_t clock_tokens) {
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

/* Adam's first steps are a full rate long in every direction, noise or not, and their Delta is so
 * large that guards refuse it. So t steps of an optimizer bear no more than
 *
 *     peak t / min(2 / (1 - beta2), steps of the run's own warm-up)
 *
 * the linear warm-up that needs no tuning (Ma and Yarats, arXiv 1910.04209, section 5), unless the
 * run's is shorter: then, and so in every run from its beginning, this asks for nothing more. */
static double cold_most(const struct tw_run *run, double peak, uint64_t updates) {
    const double step = (double)run->train.batch * run->model.context * run->sync.nodes;
    const double own = (double)run->train.warmup_tokens / step;
    const double steps = fmin(own, 2.0 / (1.0 - run->train.beta2_millionths / 1e6));
    return (double)updates + 1.0 < steps ? peak * ((double)updates + 1.0) / steps : peak;
}

static double warm_lr(const struct tw_run *run, double peak, uint64_t clock_tokens) {
    const double last = peak * (run->train.lr_final_millionths / 1e6);
    const uint64_t warmup = run->train.warmup_tokens, budget = run->train.tokens;
    if (clock_tokens < warmup) {
        /* One batch ahead, so that the first step is not wasted on a rate of zero. */
        const uint64_t step = (uint64_t)run->train.batch * run->model.context;
        const uint64_t reached = clock_tokens + step < warmup ? clock_tokens + step : warmup;
        return peak * ((double)reached / (double)warmup);
    }
    if (clock_tokens >= budget) return last;
    return last + (peak - last) * left_of(run, clock_tokens);
}

float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens, uint64_t updates) {
    const double peak = run->train.lr_millionths / 1e6;
    return (float)fmin(warm_lr(run, peak, clock_tokens), cold_most(run, peak, updates));
}
