/* generate.c - the next token, sampled from a softened and cut distribution. */
#include "worker/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"

static uint32_t likeliest(const float *logits, uint32_t vocab) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

static int compare_descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest logit: what falls below it is not sampled. */
static float threshold_of(const float *logits, float *sorted, uint32_t vocab, uint32_t k) {
    if (k == 0 || k >= vocab) return -INFINITY;
    memcpy(sorted, logits, vocab * sizeof(*sorted));
    qsort(sorted, vocab, sizeof(*sorted), compare_descending);
    return sorted[k - 1];
}

static uint32_t sample(const float *logits, float *scratch, uint32_t vocab,
                       struct tw_generate_config config, struct tw_rng *rng) {
    const uint32_t best = likeliest(logits, vocab);
    if (!(config.temperature > 0.0f)) return best;
    const float threshold = threshold_of(logits, scratch, vocab, config.top_k);
    const double heat = (double)config.temperature, max = (double)logits[best];
    double sum = 0.0;
    for (uint32_t i = 0; i < vocab; i++) {
        const bool is_in = logits[i] >= threshold;
        scratch[i] = is_in ? (float)exp(((double)logits[i] - max) / heat) : 0.0f;
        sum += (double)scratch[i];
    }
    double left = tw_rng_unit(rng) * sum;
    for (uint32_t i = 0; i < vocab; i++) {
        left -= (double)scratch[i];
        if (left < 0.0) return i;
    }
    return best; /* rounding ate the last share */
}

enum tw_status tw_generate_next(struct tw_engine *engine, const float *params,
                                struct tw_generate_config config, struct tw_rng *rng,
                                const uint32_t *tokens, size_t count, uint32_t *next_out,
                                struct tw_error *err) {
    TW_ASSERT(count > 0);
    const uint32_t vocab = engine->run->model.vocab, context = engine->run->model.context;
    const uint32_t seen = count < context ? (uint32_t)count : context;
    float *logits = malloc(2 * (size_t)vocab * sizeof(*logits));
    if (logits == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u logits", vocab);
    enum tw_status status =
        tw_engine_logits(engine, params, tokens + count - seen, seen, logits, err);
    if (status == TW_OK && !tw_is_finite(logits, vocab)) {
        status = tw_fail(err, TW_CORRUPT,
                         "the model's output is not finite: its parameters are "
                         "damaged, load another checkpoint");
    }
    if (status == TW_OK) *next_out = sample(logits, logits + vocab, vocab, config, rng);
    free(logits);
    return status;
}
