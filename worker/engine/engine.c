/* engine.c - a node's model with its optimizer: the inner step. */
#include "worker/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "worker/engine/engine_memory.h"

enum { PAGE_BYTES = 64 * 1024 }; /* a multiple of every machine's page size */

static float *take_array(float **rest, float *given, uint64_t elements) {
    if (given != NULL) return given;
    float *taken = *rest;
    *rest += elements;
    return taken;
}

static enum tw_status allocate_arrays(struct tw_engine *engine,
                                      const struct tw_engine_config *config, struct tw_error *err) {
    const uint64_t elements = config->layout->elements, array = elements * sizeof(float);
    const uint64_t moments =
        config->is_inference ? 0 : (uint64_t)((config->m == NULL) + (config->v == NULL));
    /* The gradient starts on its own page. The arrays before it are host mirrors of device arrays
     * and may be page-locked: no copy to or from the device may cross the end of the page-locked
     * range. */
    const uint64_t first = ((config->theta == NULL) + moments) * array;
    const uint64_t state = (first + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    const uint64_t bytes = config->is_inference ? first : state + array;
    float *owned = NULL;
    if (bytes > 0) {
        owned = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (owned == MAP_FAILED)
            return tw_fail(err, TW_NOMEM,
                           "parameters, gradient and optimizer state need %.0f MiB and the system "
                           "refused: choose a smaller model",
                           (double)bytes / 1048576.0);
        (void)madvise(owned, bytes, MADV_HUGEPAGE);
    }
    engine->memory->owned = owned;
    engine->memory->owned_bytes = bytes;
    engine->theta = take_array(&owned, config->theta, elements);
    if (config->is_inference) return TW_OK;
    engine->m = take_array(&owned, config->m, elements);
    engine->v = take_array(&owned, config->v, elements);
    engine->gradient = engine->memory->owned + state / sizeof(float);
    return TW_OK;
}

static enum tw_status init_engine(struct tw_engine *engine, const struct tw_engine_config *config,
                                  struct tw_error *err) {
    struct tw_engine_memory *memory = engine->memory;
    const struct tw_ops *ops;
    const struct tw_matmul_library *library;
    engine->run = config->run;
    engine->layout = config->layout;
    TW_TRY(tw_engine_plan_make(&engine->plan, config, err));
    TW_TRY(allocate_arrays(engine, config, err));
    if (engine->plan.is_on_gpu) return tw_gpu_create(&memory->gpu, config, engine, err);
    TW_TRY(tw_engine_choose(config, &ops, &library, err));
    TW_TRY(tw_thread_pool_create(&memory->team, engine->plan.threads, err));
    const struct tw_model_config model =
        tw_engine_model_config(config, &engine->plan, ops, library);
    TW_TRY(tw_model_init(&memory->model, &model, memory->team, err));
    return config->is_inference ? TW_OK : tw_engine_optimizer_init(engine, err);
}

enum tw_status tw_engine_create(struct tw_engine **engine_out,
                                const struct tw_engine_config *config, struct tw_error *err) {
    struct tw_engine *engine = calloc(1, sizeof(*engine));
    struct tw_engine_memory *memory = calloc(1, sizeof(*memory));
    if (engine == NULL || memory == NULL) {
        free(engine);
        free(memory);
        return tw_fail(err, TW_NOMEM, "no memory for an engine: the system refused %zu bytes",
                       sizeof(*engine) + sizeof(*memory));
    }
    engine->memory = memory;
    const enum tw_status status = init_engine(engine, config, err);
    if (status != TW_OK) {
        tw_engine_destroy(engine);
        return status;
    }
    *engine_out = engine;
    return TW_OK;
}

void tw_engine_destroy(struct tw_engine *engine) {
    if (engine == NULL) return;
    struct tw_engine_memory *memory = engine->memory;
    tw_gpu_destroy(memory->gpu);
    tw_engine_optimizer_deinit(engine);
    if (memory->model.memory != NULL) tw_model_deinit(&memory->model);
    tw_thread_pool_destroy(memory->team);
    if (memory->owned != NULL) (void)munmap(memory->owned, memory->owned_bytes);
    free(memory);
    free(engine);
}

void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size) {
    tw_engine_plan_describe(&engine->plan, text, size);
}

enum tw_status tw_engine_check_tokens(const struct tw_engine *engine, const uint32_t *tokens,
                                      uint64_t count, struct tw_error *err) {
    const uint32_t vocab = engine->run->model.vocab;
    for (uint64_t i = 0; i < count; i++) {
        if (tokens[i] >= vocab) {
            return tw_fail(err, TW_DATA,
                           "token %u is outside the vocabulary of %u: the data was not made with "
                           "this run's tokenizer",
                           tokens[i], vocab);
        }
    }
    return TW_OK;
}

enum tw_status tw_engine_pull(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err) {
    TW_ASSERT(begin <= engine->layout->elements && n <= engine->layout->elements - begin);
    TW_ASSERT(engine->gradient != NULL || arrays == TW_ENGINE_THETA);
    if (engine->memory->gpu == NULL) return TW_OK;
    return tw_gpu_pull(engine->memory->gpu, arrays, begin, n, err);
}

enum tw_status tw_engine_push(struct tw_engine *engine, uint32_t arrays, uint64_t begin, uint64_t n,
                              struct tw_error *err) {
    TW_ASSERT(begin <= engine->layout->elements && n <= engine->layout->elements - begin);
    TW_ASSERT(engine->gradient != NULL || arrays == TW_ENGINE_THETA);
    TW_ASSERT((arrays & TW_ENGINE_GRADIENT) == 0);
    if (engine->memory->gpu == NULL) return TW_OK;
    return tw_gpu_push(engine->memory->gpu, arrays, begin, n, err);
}

enum tw_status tw_engine_vectors(struct tw_engine *engine, struct tw_vectors *vectors,
                                 struct tw_error *err) {
    TW_ASSERT(engine->memory->gpu != NULL);
    return tw_gpu_vectors_open(engine->memory->gpu, vectors, err);
}

void tw_engine_use(struct tw_engine *engine, const float *params) {
    struct tw_engine_memory *memory = engine->memory;
    if (memory->has_held && params == memory->held) return;
    tw_model_use(&memory->model, params);
    memory->has_held = params == memory->held;
    memory->uses++;
}

void tw_engine_hold(struct tw_engine *engine, const float *params) {
    engine->memory->held = params;
    engine->memory->has_held = false;
    if (engine->memory->gpu != NULL) tw_gpu_hold(engine->memory->gpu, params);
}

void tw_engine_watch(struct tw_engine *engine, const _Atomic bool *stop) {
    engine->stop = stop;
    engine->memory->model.stop = stop;
}

void tw_engine_look_ahead(struct tw_engine *engine, tw_engine_next *next, void *self) {
    engine->memory->next = next;
    engine->memory->next_self = self;
}

bool tw_engine_is_stopped(const struct tw_engine *engine) {
    return engine->stop != NULL && atomic_load_explicit(engine->stop, memory_order_relaxed);
}

enum tw_status tw_engine_check_stop(const struct tw_engine *engine, struct tw_error *err) {
    if (!tw_engine_is_stopped(engine)) return TW_OK;
    return tw_fail(err, TW_AGAIN, "the pass was given up, because a pause begins");
}

/* ---- passes -------------------------------------------------------------------------------- */

/* Runs sequences_count sequences of context + 1 tokens in micro-batches. Returns the mean loss. If
 * is_learning, leaves the gradient of the mean loss in engine->gradient. */
static double run_passes(struct tw_engine *engine, bool is_learning, const uint32_t *tokens,
                         uint32_t sequences_count) {
    const struct tw_run *run = engine->run;
    struct tw_model *model = &engine->memory->model;
    const uint32_t context = model->shape.context, stride = context + 1;
    const uint32_t most = model->config.sequences;
    struct tw_model_learn learn = {
        .gradient = engine->gradient,
        .scale = 1.0f / ((float)sequences_count * (float)context),
        .z_loss = (float)(run->train.z_loss_millionths / 1e6),
        .is_first = true,
    };
    double loss = 0.0;
    if (is_learning) tw_model_clear(model, engine->gradient);
    for (uint32_t done = 0; done < sequences_count && !tw_engine_is_stopped(engine); done += most) {
        const uint32_t left = sequences_count - done;
        const struct tw_model_batch batch = {.tokens = tokens + (size_t)done * stride,
                                             .stride = stride,
                                             .sequences = left < most ? left : most,
                                             .context = context,
                                             .is_masked =
                                                 run->data.documents == TW_DOCUMENTS_MASKED,
                                             .separator = run->data.separator};
        tw_model_forward(model, &batch);
        loss +=
            is_learning ? tw_model_backward(model, &batch, &learn) : tw_model_loss(model, &batch);
        learn.is_first = false;
    }
    return loss / ((double)sequences_count * context);
}

enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err) {
    const struct tw_run *run = engine->run;
    const uint64_t count = (uint64_t)run->train.batch * (run->model.context + 1);
    TW_ASSERT(engine->gradient != NULL);
    TW_ASSERT(engine->memory->held != engine->theta);
    TW_TRY(tw_engine_check_tokens(engine, tokens, count, err));
    if (engine->memory->gpu != NULL)
        return tw_gpu_step(engine->memory->gpu, tokens, lr, result, err);
    tw_engine_use(engine, engine->theta);
    const double loss = run_passes(engine, true, tokens, run->train.batch);
    TW_TRY(tw_engine_check_stop(engine, err));
    const double norm = tw_engine_gradient_norm(engine);
    result->loss = (float)loss;
    result->grad_norm = (float)norm;
    result->is_skipped = !isfinite(loss) || !isfinite(result->grad_norm);
    if (result->is_skipped) {
        engine->skipped++;
        return TW_OK;
    }
    tw_engine_update(engine, lr, norm);
    return TW_OK;
}

enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err) {
    TW_ASSERT(sequences_count > 0);
    TW_TRY(tw_engine_check_tokens(
        engine, tokens, (uint64_t)sequences_count * (engine->run->model.context + 1), err));
    if (engine->memory->gpu != NULL) {
        TW_TRY(tw_gpu_loss(engine->memory->gpu, params, tokens, sequences_count, loss_out, err));
        *loss_out /= (double)sequences_count * engine->run->model.context;
        return TW_OK;
    }
    tw_engine_use(engine, params);
    *loss_out = run_passes(engine, false, tokens, sequences_count);
    return tw_engine_check_stop(engine, err);
}

/* Computes the logits of the rows [first, count) of one sequence. */
static enum tw_status sequence_logits(struct tw_engine *engine, const float *params,
                                      const struct tw_model_batch *batch, uint32_t first,
                                      float *logits, struct tw_error *err) {
    struct tw_model *model = &engine->memory->model;
    TW_ASSERT(batch->context > 0 && batch->context <= engine->run->model.context);
    TW_TRY(tw_engine_check_tokens(engine, batch->tokens, batch->context, err));
    if (engine->memory->gpu != NULL)
        return tw_gpu_logits(engine->memory->gpu, params, batch->tokens, first, batch->context,
                             logits, err);
    tw_engine_use(engine, params);
    tw_model_forward(model, batch);
    tw_model_logits(model, first, batch->context - first, logits);
    return TW_OK;
}

enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err) {
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count};
    return sequence_logits(engine, params, &batch, count - 1, logits, err);
}

enum tw_status tw_engine_logits_all(struct tw_engine *engine, const float *params,
                                    const uint32_t *tokens, uint32_t count, float *logits,
                                    struct tw_error *err) {
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count};
    return sequence_logits(engine, params, &batch, 0, logits, err);
}
