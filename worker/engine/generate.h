/* generate.h - generates text one token at a time, with a key/value cache and a sampler.
 *
 * When a sequence fills the model's context, its older half is dropped and the newer half is
 * processed again. From then on the model sees between half a context and a whole one. */
#ifndef TW_WORKER_ENGINE_GENERATE_H
#define TW_WORKER_ENGINE_GENERATE_H

#include "base/rng.h"
#include "worker/engine/engine.h"
#include "worker/engine/sample.h"

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

enum { TW_REPEAT_WINDOW = 64 }; /* recent tokens that the repetition penalty covers */

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
