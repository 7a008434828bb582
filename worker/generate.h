/* generate.h - text from a model: temperature and top-k sampling, one token at a time. */
#ifndef TW_WORKER_GENERATE_H
#define TW_WORKER_GENERATE_H

#include "base/rng.h"
#include "worker/engine.h"

struct tw_generate_config {
    float temperature; /* 0 = always the likeliest token */
    uint32_t top_k;    /* sample among the k likeliest; 0 = all */
};

/* The token that follows tokens (count), count >= 1; only the last `context` of them are seen.
 * The caller appends it and calls again. TW_CORRUPT when the logits are not finite, TW_DATA when a
 * token is outside the vocabulary. */
enum tw_status tw_generate_next(struct tw_engine *engine, const float *params,
                                struct tw_generate_config config, struct tw_rng *rng,
                                const uint32_t *tokens, size_t count, uint32_t *next_out,
                                struct tw_error *err);

#endif
