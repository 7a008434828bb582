/* generate.h - text from a model, one token at a time: keys and values are kept, logits sampled.
 *
 * When a sequence reaches the model's context its older half is let go and the newer half read
 * again: from there on the model sees between half a context and a whole one. */
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
    uint32_t *seen;                  /* (context): what the cache holds, and the newest token */
    uint32_t seen_count;
};

enum { TW_REPEAT_WINDOW = 64 }; /* tokens the repetition penalty looks back at */

/* For the engine's theta, which must not change while the generator is used. Borrows the engine.
 * TW_NOMEM. */
enum tw_status tw_generator_open(struct tw_generator *generator, struct tw_engine *engine,
                                 const struct tw_sample_config *config, struct tw_error *err);
void tw_generator_close(struct tw_generator *generator); /* zeroed is fine */

/* A new sequence that begins with prompt (count), count >= 1, of which the last context - 1 tokens
 * are seen. TW_DATA when a token is outside the vocabulary, TW_CORRUPT as below. */
enum tw_status tw_generator_begin(struct tw_generator *generator, uint64_t seed,
                                  const uint32_t *prompt, size_t count, struct tw_error *err);

/* The next token. TW_CORRUPT when the model's output is not finite. */
enum tw_status tw_generator_next(struct tw_generator *generator, uint32_t *token_out,
                                 struct tw_error *err);

#endif
