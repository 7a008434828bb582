/* engine_cache.c - the key/value cache of a growing sequence. */
#include <stdlib.h>

#include "base/assert.h"
#include "worker/engine/engine_memory.h"

struct tw_engine_cache {
    struct tw_engine *engine;
    const float *params;
    uint64_t uses; /* value of memory->uses when the model last used params */
    struct tw_model_cache kv;
    struct tw_gpu_cache *gpu; /* cache on a device, or NULL; if set, only kv.used is valid */
};

uint64_t tw_engine_cache_bytes(const struct tw_engine *engine) {
    return tw_model_cache_bytes(engine->run, engine->plan.type);
}

enum tw_status tw_engine_cache_create(struct tw_engine_cache **cache_out, struct tw_engine *engine,
                                      const float *params, struct tw_error *err) {
    const bool is_on_gpu = engine->memory->gpu != NULL;
    const uint64_t bytes = tw_engine_cache_bytes(engine);
    struct tw_engine_cache *cache = calloc(1, sizeof(*cache));
    void *kv = is_on_gpu ? NULL : malloc(bytes);
    if (cache == NULL || (kv == NULL && !is_on_gpu)) {
        free(cache);
        free(kv);
        return tw_fail(err, TW_NOMEM,
                       "the keys and values of %u tokens need %.0f MiB and the system refused: "
                       "choose a smaller model",
                       engine->run->model.context, (double)bytes / 1048576.0);
    }
    *cache = (struct tw_engine_cache){
        .engine = engine, .params = params, .uses = UINT64_MAX, .kv = {.kv = kv}};
    const enum tw_status status =
        is_on_gpu ? tw_gpu_cache_create(&cache->gpu, engine->memory->gpu, err) : TW_OK;
    if (status != TW_OK) {
        free(cache);
        return status;
    }
    *cache_out = cache;
    return TW_OK;
}

void tw_engine_cache_destroy(struct tw_engine_cache *cache) {
    if (cache == NULL) return;
    tw_gpu_cache_destroy(cache->gpu);
    free(cache->kv.kv);
    free(cache);
}

enum tw_status tw_engine_cache_extend(struct tw_engine_cache *cache, const uint32_t *tokens,
                                      uint32_t count, float *logits, struct tw_error *err) {
    struct tw_engine *engine = cache->engine;
    struct tw_model *model = &engine->memory->model;
    const uint32_t context = engine->run->model.context;
    TW_ASSERT(count > 0);
    if (count > context - cache->kv.used)
        return tw_fail(err, TW_LIMIT,
                       "%u tokens more than %u are too many for a context of %u: start again with "
                       "the last ones",
                       count, cache->kv.used, context);
    TW_TRY(tw_engine_check_tokens(engine, tokens, count, err));
    if (cache->gpu != NULL) {
        TW_TRY(tw_gpu_cache_extend(cache->gpu, cache->params, tokens, cache->kv.used, count, logits,
                                   err));
        cache->kv.used += count;
        return TW_OK;
    }
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
