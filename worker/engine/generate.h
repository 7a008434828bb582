/* generate.h - generates text one token at a time, with a key/value cache and a sampler.
 *
 * When a sequence fills the model's context, its older half is dropped and the newer half is
 * processed again. From then on the model sees between half a context and a whole one. */
#ifndef TW_WORKER_ENGINE_GENERATE_H
#define TW_WORKER_ENGINE_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "worker/engine/engine.h"

/* Samples the next token from logits: repetition penalty, temperature, top-k, top-p (nucleus).
 *
 *     l_i  = logits, those of recent tokens made less likely (Keskar et al., arXiv 1909.05858, 4.1:
 *            l / penalty when positive, l * penalty when not)
 *     p_i  = softmax(l / temperature) over the top_k largest
 *     next = drawn from the fewest likeliest tokens whose p sum to top_p (Holtzman et al., arXiv
 *            1904.09751)
 *
 * Ties go to the smaller token, so the same logits and generator state give the same token. */

struct tw_sample_config {
    float temperature;    /* 0: always the likeliest token */
    uint32_t top_k;       /* sample among the k likeliest; 0: all */
    float top_p;          /* probability mass of the nucleus; 0 or >= 1: all */
    float repeat_penalty; /* > 1 makes recent tokens less likely; 0 or 1: off */
};

/* Scratch for one token; tw_sample needs `vocab` of these. */
struct tw_candidate {
    float logit;
    uint32_t token;
    double weight;
};

/* Makes each distinct token of recent (count) less likely in logits (vocab). Tokens of `recent`
 * outside the vocabulary are ignored. */
void tw_sample_penalise(float *logits, uint32_t vocab, const uint32_t *recent, size_t count,
                        float penalty);

/* Samples a token from logits (vocab), which must be finite; apply any penalty first. candidates
 * (vocab) is scratch. Draws from rng at most once, and not at all if the choice is forced. */
uint32_t tw_sample(const float *logits, uint32_t vocab, const struct tw_sample_config *config,
                   struct tw_candidate *candidates, struct tw_rng *rng);

/* ---- generate -------------------------------------------------------------------------------- */

struct tw_generator {
    struct tw_engine *engine;
    struct tw_engine_cache *cache;
    struct tw_sample_config config;
    struct tw_rng rng;
    float *logits;                   /* (vocab) */
    struct tw_candidate *candidates; /* (vocab) */
    uint32_t *seen; /* up to `context` tokens: those in the cache, then the newest */
    uint32_t seen_count;
};

/* Opens a generator that uses the engine's theta, which must not change while the generator is
 * used. Borrows the engine. Errors: TW_NOMEM. */
enum tw_status tw_generator_open(struct tw_generator *generator, struct tw_engine *engine,
                                 const struct tw_sample_config *config, struct tw_error *err);
void tw_generator_close(struct tw_generator *generator); /* accepts a zeroed generator */

/* Starts a new sequence with prompt (count), count >= 1. Only its last context - 1 tokens are used.
 * Returns TW_DATA if a token is outside the vocabulary, or TW_CORRUPT as tw_generator_next does. */
enum tw_status tw_generator_begin(struct tw_generator *generator, uint64_t seed,
                                  const uint32_t *prompt, size_t count, struct tw_error *err);

/* Generates the next token. Returns TW_CORRUPT if the model's output is not finite. */
enum tw_status tw_generator_next(struct tw_generator *generator, uint32_t *token_out,
                                 struct tw_error *err);

#endif
