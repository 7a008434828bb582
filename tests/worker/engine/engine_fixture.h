/* engine_fixture.h - small models of every kind for tests of the engine. */
#ifndef TW_TESTS_WORKER_ENGINE_ENGINE_FIXTURE_H
#define TW_TESTS_WORKER_ENGINE_ENGINE_FIXTURE_H

#include "base/rng.h"
#include "worker/engine/engine.h"

enum {
    ENGINE_SEED = 4711,
    ENGINE_BATCH = 7,
    ENGINE_CONTEXT = 10,
    ENGINE_VOCAB = 256,
    ENGINE_TOKENS = ENGINE_BATCH * (ENGINE_CONTEXT + 1),
    ENGINE_LONG_BATCH = 4, /* so long that blocks of rows hold parts of several sequences */
    ENGINE_LONG_CONTEXT = 90,
    ENGINE_LONG_TOKENS = ENGINE_LONG_BATCH * (ENGINE_LONG_CONTEXT + 1),
};

/* Odd sizes; llama_full has everything the family can have. */
enum engine_variant {
    ENGINE_GPT2,
    ENGINE_GPT2_UNTIED,
    ENGINE_LLAMA,
    ENGINE_LLAMA_FULL,
    ENGINE_VARIANTS,
};

struct engine_fixture {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine; /* on the CPU, fp32, one thread, micro-batches of 3 */
    uint32_t tokens[ENGINE_LONG_TOKENS];
    struct tw_rng rng;
};

int engine_set_up(void **state, enum engine_variant variant);
int engine_set_up_long(void **state, enum engine_variant variant);
int engine_tear_down(void **state);

/* A new engine like the fixture's, with initial weights. */
struct tw_engine *engine_make(const struct engine_fixture *f);

/* An engine with the weights of the fixture's. */
struct tw_engine *engine_with(const struct engine_fixture *f,
                              const struct tw_compute_config *compute,
                              enum tw_matmul_backend matmul);

/* Masked documents, about one in `length` tokens begins one. */
void engine_mask(struct engine_fixture *f, uint32_t length);

/* Every tensor random, biases too, and large enough that no gradient hides in rounding. */
void engine_shake(struct engine_fixture *f);

#endif
