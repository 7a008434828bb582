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
    uint32_t *seen;                  /* (context): the tokens in the cache, then the newest token */
    uint32_t seen_count;
};

enum { TW_REPEAT_WINDOW = 64 }; /* recent tokens that the repetition penalty covers */

/* Generates with the engine's theta, which must not change while the generator is used. Borrows the
 * engine. TW_NOMEM. */
enum tw_status tw_generator_open(struct tw_generator *generator, struct tw_engine *engine,
                                 const struct tw_sample_config *config, struct tw_error *err);
void tw_generator_close(struct tw_generator *generator); /* a zeroed generator is allowed */

/* Starts a new sequence with prompt (count), count >= 1. Only its last context - 1 tokens are used.
 * TW_DATA if a token is outside the vocabulary; TW_CORRUPT as below. */
enum tw_status tw_generator_begin(struct tw_generator *generator, uint64_t seed,
                                  const uint32_t *prompt, size_t count, struct tw_error *err);

/* The next token. TW_CORRUPT if the model's output is not finite. */
enum tw_status tw_generator_next(struct tw_generator *generator, uint32_t *token_out,
                                 struct tw_error *err);

#endif
