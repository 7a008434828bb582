/* schedule.c - inner learning rate on the run clock. */
#include <math.h>

#include "worker/engine.h"

float tw_schedule_lr(const struct tw_run *run, uint64_t clock_tokens) {
    const double peak = run->train.lr_millionths / 1e6;
    const double last = peak * (run->train.lr_final_millionths / 1e6);
    const uint64_t warmup = run->train.warmup_tokens, budget = run->train.tokens;
    if (clock_tokens < warmup) {
        /* One batch ahead, so that the first step is not wasted on a rate of zero. */
        const uint64_t step = (uint64_t)run->train.batch * run->model.context;
        const uint64_t reached = clock_tokens + step < warmup ? clock_tokens + step : warmup;
        return (float)(peak * ((double)reached / (double)warmup));
    }
    if (clock_tokens >= budget) return (float)last;
    const double share = (double)(clock_tokens - warmup) / (double)(budget - warmup);
    return (float)(last + (peak - last) * 0.5 * (1.0 + cos(3.14159265358979323846 * share)));
}
