/* engine_fixture.h - small models of every kind, for tests of the engine. */
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
    ENGINE_LONG_BATCH = 4, /* long enough that a block of rows spans several sequences */
    ENGINE_LONG_CONTEXT = 90,
    ENGINE_MANY_BATCH = 6, /* of long sequences: a pass copies its weights (TW_MATMUL_COPY_ROWS) */
    ENGINE_FAST_BATCH = 2,
    ENGINE_FAST_CONTEXT = 139,
    ENGINE_LONG_TOKENS = ENGINE_LONG_BATCH * (ENGINE_LONG_CONTEXT + 1),
    ENGINE_MANY_TOKENS = ENGINE_MANY_BATCH * (ENGINE_LONG_CONTEXT + 1),
};

/* All sizes are odd; ENGINE_LLAMA_FULL uses every feature of the llama family. */
enum engine_variant {
    ENGINE_GPT2,
    ENGINE_GPT2_UNTIED,
    ENGINE_LLAMA,
    ENGINE_LLAMA_FULL,
    ENGINE_VARIANTS,
    /* Heads of 64 and of 128, for which devices have fast kernels. The second model has grouped
     * heads. */
    ENGINE_GPT2_64 = ENGINE_VARIANTS,
    ENGINE_LLAMA_128,
};

struct engine_fixture {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine; /* on the CPU, fp32, one thread, micro-batches of 3 */
    uint32_t tokens[ENGINE_MANY_TOKENS];
    struct tw_rng rng;
};

int engine_set_up(void **state, enum engine_variant variant);
int engine_set_up_long(void **state, enum engine_variant variant);
int engine_set_up_many(void **state, enum engine_variant variant);
/* Makes sequences longer than two tiles of the device's fast kernels. */
int engine_set_up_fast(void **state, enum engine_variant variant);
int engine_tear_down(void **state);

/* Returns a new engine with the fixture's settings and initial weights. */
struct tw_engine *engine_make(const struct engine_fixture *f);

/* Returns a new engine with the fixture's weights and the given compute settings. */
struct tw_engine *engine_with(const struct engine_fixture *f,
                              const struct tw_compute_config *compute,
                              enum tw_matmul_backend matmul);

/* Turns on the masking of documents; about one token in `length` begins a document. */
void engine_mask(struct engine_fixture *f, uint32_t length);

/* Stops steps and losses of `engine` at `count` moments. A stopped call must leave theta, m and v
 * unchanged. The steps completed in between must equal those of `twin`, an engine in the same
 * state. */
void engine_stop_often(const struct engine_fixture *f, struct tw_engine *engine,
                       struct tw_engine *twin, uint32_t count);

/* Makes every tensor random, biases included, with values large enough that no gradient is lost in
 * rounding. */
void engine_shake(struct engine_fixture *f);

#endif
