#include "worker/engine/generate.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"

enum { TW_REPEAT_WINDOW = 64 }; /* recent tokens that the repetition penalty covers */

/* ---- sampling -------------------------------------------------------------------------------- */

void tw_sample_penalise(float *logits, uint32_t vocab, const uint32_t *recent, size_t count,
                        float penalty) {
    if (!(penalty > 0.0f) || penalty == 1.0f) return;
    for (size_t i = 0; i < count; i++) {
        bool is_again = recent[i] >= vocab;
        for (size_t k = 0; k < i && !is_again; k++) is_again = recent[k] == recent[i];
        if (is_again) continue;
        float *const logit = &logits[recent[i]];
        *logit = *logit > 0.0f ? *logit / penalty : *logit * penalty;
    }
}

static bool is_likelier(const struct tw_candidate *a, const struct tw_candidate *b) {
    return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

static int compare(const void *a, const void *b) {
    return is_likelier(a, b) ? -1 : 1; /* never 0: two candidates never have the same token */
}

/* Restores the heap order below heap[at]; the root is the least likely candidate. */
static void sift_down(struct tw_candidate *heap, uint32_t count, uint32_t at) {
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            if (is_likelier(&heap[least], &heap[child])) least = child;
        }
        if (least == at) return;
        const struct tw_candidate moved = heap[at];
        heap[at] = heap[least];
        heap[least] = moved;
        at = least;
    }
}

/* Selects the k likeliest tokens into `candidates`, unsorted. */
static void choose_top(const float *logits, uint32_t vocab, uint32_t k,
                       struct tw_candidate *candidates) {
    for (uint32_t i = 0; i < k; i++) candidates[i] = (struct tw_candidate){logits[i], i, 0.0};
    if (k == vocab) return;
    for (uint32_t i = k / 2; i-- > 0;) sift_down(candidates, k, i);
    for (uint32_t i = k; i < vocab; i++) {
        const struct tw_candidate next = {logits[i], i, 0.0};
        if (!is_likelier(&next, &candidates[0])) continue;
        candidates[0] = next;
        sift_down(candidates, k, 0);
    }
}

/* Reduces `candidates` to the nucleus and sets *sum to its weight. Returns the number of candidates
 * kept. Candidates lighter than (1 - p) * sum / count together weigh less than (1 - p) * sum, so
 * the nucleus needs none of them. Only the others are sorted. */
static uint32_t cut_nucleus(struct tw_candidate *candidates, uint32_t count, double p,
                            double *sum) {
    const double least = (1.0 - p) * *sum / (double)count;
    uint32_t heavy = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (candidates[i].weight >= least) candidates[heavy++] = candidates[i];
    }
    qsort(candidates, heavy, sizeof(*candidates), compare);
    double inside = 0.0;
    uint32_t kept = 0;
    while (kept < heavy && inside < p * *sum) inside += candidates[kept++].weight;
    *sum = inside;
    return kept;
}

uint32_t tw_sample(const float *logits, uint32_t vocab, const struct tw_sample_config *config,
                   struct tw_candidate *candidates, struct tw_rng *rng) {
    TW_ASSERT(vocab > 0);
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    if (!(config->temperature > 0.0f) || config->top_k == 1) return best;
    const uint32_t k = config->top_k == 0 || config->top_k > vocab ? vocab : config->top_k;
    choose_top(logits, vocab, k, candidates);
    const double heat = (double)config->temperature, max = (double)logits[best];
    double sum = 0.0;
    for (uint32_t i = 0; i < k; i++) {
        candidates[i].weight = exp(((double)candidates[i].logit - max) / heat);
        sum += candidates[i].weight;
    }
    uint32_t count = k;
    if (config->top_p > 0.0f && config->top_p < 1.0f) {
        count = cut_nucleus(candidates, k, (double)config->top_p, &sum);
    }
    double left = tw_rng_unit(rng) * sum;
    for (uint32_t i = 0; i < count; i++) {
        left -= candidates[i].weight;
        if (left < 0.0) return candidates[i].token;
    }
    return best; /* reached only through rounding */
}

/* ---- generation ------------------------------------------------------------------------------ */

enum tw_status tw_generator_open(struct tw_generator *generator, struct tw_engine *engine,
                                 const struct tw_sample_config *config, struct tw_error *err) {
    const uint32_t vocab = engine->run->model.vocab, context = engine->run->model.context;
    *generator = (struct tw_generator){
        .engine = engine,
        .config = *config,
        .logits = calloc(vocab, sizeof(float)),
        .candidates = calloc(vocab, sizeof(struct tw_candidate)),
        .seen = calloc(context, sizeof(uint32_t)),
    };
    enum tw_status status = TW_OK;
    if (generator->logits == NULL || generator->candidates == NULL || generator->seen == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory to sample from %u tokens", vocab);
    }
    if (status == TW_OK) {
        status = tw_engine_cache_create(&generator->cache, engine, engine->theta, err);
    }
    if (status != TW_OK) tw_generator_close(generator);
    return status;
}

void tw_generator_close(struct tw_generator *generator) {
    tw_engine_cache_destroy(generator->cache);
    free(generator->seen);
    free(generator->candidates);
    free(generator->logits);
    memset(generator, 0, sizeof(*generator));
}

static enum tw_status extend_cache(struct tw_generator *generator, const uint32_t *tokens,
                                   uint32_t count, struct tw_error *err) {
    TW_TRY(tw_engine_cache_extend(generator->cache, tokens, count, generator->logits, err));
    if (tw_is_finite(generator->logits, generator->engine->run->model.vocab)) return TW_OK;
    return tw_fail(err, TW_CORRUPT,
                   "the model's output is not finite: its parameters are damaged, load another "
                   "checkpoint");
}

enum tw_status tw_generator_begin(struct tw_generator *generator, uint64_t seed,
                                  const uint32_t *prompt, size_t count, struct tw_error *err) {
    const uint32_t most = generator->engine->run->model.context - 1;
    TW_ASSERT(count > 0);
    generator->seen_count = count < most ? (uint32_t)count : most;
    memcpy(generator->seen, prompt + count - generator->seen_count,
           generator->seen_count * sizeof(*prompt));
    tw_rng_seed(&generator->rng, seed);
    tw_engine_cache_clear(generator->cache);
    return extend_cache(generator, generator->seen, generator->seen_count, err);
}

/* Restarts the sequence from the newer half of its tokens, when it fills the context. */
static enum tw_status start_over(struct tw_generator *generator, struct tw_error *err) {
    const uint32_t kept = (generator->seen_count + 1) / 2;
    memmove(generator->seen, generator->seen + generator->seen_count - kept,
            kept * sizeof(*generator->seen));
    generator->seen_count = kept;
    tw_engine_cache_clear(generator->cache);
    return extend_cache(generator, generator->seen, kept, err);
}

enum tw_status tw_generator_next(struct tw_generator *generator, uint32_t *token_out,
                                 struct tw_error *err) {
    const struct tw_run *const run = generator->engine->run;
    const uint32_t used = tw_engine_cache_used(generator->cache);
    /* The newest token is added to the cache only now: if no further token were generated, the work
     * would be wasted. */
    if (used < generator->seen_count) {
        if (generator->seen_count == run->model.context) {
            TW_TRY(start_over(generator, err));
        } else {
            TW_TRY(
                extend_cache(generator, generator->seen + used, generator->seen_count - used, err));
        }
    }
    const uint32_t back =
        generator->seen_count < TW_REPEAT_WINDOW ? generator->seen_count : TW_REPEAT_WINDOW;
    tw_sample_penalise(generator->logits, run->model.vocab,
                       generator->seen + generator->seen_count - back, back,
                       generator->config.repeat_penalty);
    *token_out = tw_sample(generator->logits, run->model.vocab, &generator->config,
                           generator->candidates, &generator->rng);
    generator->seen[generator->seen_count++] = *token_out;
    return TW_OK;
}
