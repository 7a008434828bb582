#include "worker/engine/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/norm.h"

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
