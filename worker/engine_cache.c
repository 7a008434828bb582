/* engine_cache.c - a sequence that grows: keys and values of the tokens so far are kept. */
#include <stdlib.h>

#include "base/assert.h"
#include "worker/engine_memory.h"

struct tw_engine_cache {
    struct tw_engine *engine;
    const float *params;
    uint64_t uses; /* the engine's count when it last used params */
    struct tw_model_cache kv;
};

enum tw_status tw_engine_cache_create(struct tw_engine_cache **cache_out, struct tw_engine *engine,
                                      const float *params, struct tw_error *err) {
    const uint64_t bytes = tw_model_cache_bytes(engine->run, engine->plan.type);
    struct tw_engine_cache *cache = calloc(1, sizeof(*cache));
    void *kv = malloc(bytes);
    if (cache == NULL || kv == NULL) {
        free(cache);
        free(kv);
        return tw_fail(err, TW_NOMEM,
                       "the keys and values of %u tokens need %.0f MiB and the system refused: "
                       "choose a smaller model",
                       engine->run->model.context, (double)bytes / 1048576.0);
    }
    *cache = (struct tw_engine_cache){
        .engine = engine, .params = params, .uses = UINT64_MAX, .kv = {.kv = kv}};
    *cache_out = cache;
    return TW_OK;
}

void tw_engine_cache_destroy(struct tw_engine_cache *cache) {
    if (cache == NULL) return;
    free(cache->kv.kv);
    free(cache);
}

enum tw_status tw_engine_cache_extend(struct tw_engine_cache *cache, const uint32_t *tokens,
                                      uint32_t count, float *logits, struct tw_error *err) {
    struct tw_engine *engine = cache->engine;
    struct tw_model *model = &engine->memory->model;
    const uint32_t context = model->shape.context;
    TW_ASSERT(count > 0);
    if (count > context - cache->kv.used)
        return tw_fail(err, TW_LIMIT,
                       "%u tokens more than %u are too many for a context of %u: start again with "
                       "the last ones",
                       count, cache->kv.used, context);
    TW_TRY(tw_engine_check_tokens(engine, tokens, count, err));
    if (cache->uses != engine->memory->uses) tw_engine_use(engine, cache->params);
    cache->uses = engine->memory->uses;
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count, .cache = &cache->kv};
    tw_model_forward(model, &batch);
    tw_model_logits(model, count - 1, 1, logits);
    return TW_OK;
}

uint32_t tw_engine_cache_used(const struct tw_engine_cache *cache) {
    return cache->kv.used;
}

void tw_engine_cache_clear(struct tw_engine_cache *cache) {
    cache->kv.used = 0;
}
