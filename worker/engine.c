/* engine.c - a node's model with its optimizer: the inner step. */
#include "worker/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "kernels/norm.h"
#include "kernels/ops.h"
#include "worker/model.h"

#define ADAMW_EPS 1e-8f

struct tw_engine_memory {
    struct tw_model model;
    float *owned; /* gradient, and those of theta, m, v that the caller did not give */
};

static uint64_t owned_arrays(const struct tw_engine_config *config) {
    return 1u + (config->theta == NULL) + (config->m == NULL) + (config->v == NULL);
}

/* 0 means all cores, but no more than one per million parameters: a small model gains little from
 * more, and its barriers would disturb whatever else runs. */
static uint32_t count_threads(const struct tw_engine_config *config) {
    if (config->threads > 0) return config->threads;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const uint64_t useful = 1 + config->layout->params / 1000000;
    if (cores <= 1) return 1;
    return useful < (uint64_t)cores ? (uint32_t)useful : (uint32_t)cores;
}

uint64_t tw_engine_bytes(const struct tw_engine_config *config) {
    return owned_arrays(config) * config->layout->elements * sizeof(float) +
           tw_model_bytes(config->run, count_threads(config));
}

/* TW_MATMUL=onednn, openblas or reference in the environment overrules the default. */
static enum tw_status choose_multiply(tw_matmul_fn **multiply, struct tw_error *err) {
    static const char *const names[] = {[TW_MATMUL_AUTO] = "auto",
                                        [TW_MATMUL_ONEDNN] = "onednn",
                                        [TW_MATMUL_OPENBLAS] = "openblas",
                                        [TW_MATMUL_REF] = "reference"};
    const char *wanted = getenv("TW_MATMUL");
    enum tw_matmul_backend backend = TW_MATMUL_AUTO;
    if (wanted != NULL) {
        unsigned i = 0;
        while (i < 4 && strcmp(wanted, names[i]) != 0) i++;
        if (i == 4) {
            return tw_fail(err, TW_CONFIG,
                           "TW_MATMUL=%.32s is not known: use auto, onednn, openblas or reference",
                           wanted);
        }
        backend = (enum tw_matmul_backend)i;
    }
    *multiply = tw_matmul_get(backend);
    if (*multiply == NULL) {
        return tw_fail(err, TW_CONFIG, "TW_MATMUL=%s was not built in: unset it or rebuild with it",
                       names[backend]);
    }
    return TW_OK;
}

static float *take(float **rest, float *given, uint64_t elements) {
    if (given != NULL) return given;
    float *taken = *rest;
    *rest += elements;
    return taken;
}

static enum tw_status allocate_arrays(struct tw_engine *engine,
                                      const struct tw_engine_config *config, struct tw_error *err) {
    const uint64_t elements = config->layout->elements;
    const uint64_t bytes = owned_arrays(config) * elements * sizeof(float);
    float *owned = aligned_alloc(64, bytes); /* elements are a multiple of TW_PART_ALIGN */
    if (owned == NULL) {
        return tw_fail(err, TW_NOMEM,
                       "parameters and optimizer need %.0f MiB of memory and the system refused: "
                       "choose a smaller model",
                       (double)bytes / 1048576.0);
    }
    memset(owned, 0, bytes);
    engine->memory->owned = owned;
    float *rest = owned;
    engine->gradient = take(&rest, NULL, elements);
    engine->theta = take(&rest, config->theta, elements);
    engine->m = take(&rest, config->m, elements);
    engine->v = take(&rest, config->v, elements);
    return TW_OK;
}

static enum tw_status init_engine(struct tw_engine *engine, const struct tw_engine_config *config,
                                  struct tw_error *err) {
    const struct tw_run *run = config->run;
    tw_matmul_fn *multiply;
    engine->run = run;
    engine->layout = config->layout;
    engine->threads = count_threads(config);
    if (run->model.family != TW_FAMILY_GPT2) {
        return tw_fail(err, TW_CONFIG, "model.family is not built into this worker: use gpt2");
    }
    TW_TRY(choose_multiply(&multiply, err));
    tw_matmul_set_threads(engine->threads);
    TW_TRY(allocate_arrays(engine, config, err));
    TW_TRY(tw_model_init(&engine->memory->model, run, config->layout, engine->threads, err));
    engine->memory->model.ops = tw_ops_cpu(0);
    engine->memory->model.multiply = multiply;
    return TW_OK;
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
    tw_model_deinit(&engine->memory->model);
    free(engine->memory->owned);
    free(engine->memory);
    free(engine);
}

void tw_engine_use(struct tw_engine *engine, const struct tw_ops *ops, tw_matmul_fn *multiply) {
    engine->memory->model.ops = ops;
    engine->memory->model.multiply = multiply;
}

void tw_engine_describe(const struct tw_engine *engine, char *text, size_t size) {
    const struct tw_model *model = &engine->memory->model;
    (void)snprintf(text, size, "cpu, %u thread%s, %s, %s", engine->threads,
                   engine->threads == 1 ? "" : "s", model->ops->name,
                   tw_matmul_name(model->multiply));
}

static enum tw_status check_tokens(const struct tw_engine *engine, const uint32_t *tokens,
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

/* Passes over `sequences_count` sequences of context + 1 tokens. Returns the sum of losses;
 * gradient NULL: losses only. */
static double run_passes(struct tw_engine *engine, const float *params, float *gradient,
                         const uint32_t *tokens, uint32_t sequences_count) {
    struct tw_model *model = &engine->memory->model;
    const uint32_t stride = model->context + 1;
    const float scale = 1.0f / ((float)sequences_count * (float)model->context);
    double loss = 0.0;
    for (uint32_t done = 0; done < sequences_count; done += model->sequences_max) {
        const uint32_t left = sequences_count - done;
        const struct tw_model_batch batch = {
            .tokens = tokens + (size_t)done * stride,
            .stride = stride,
            .sequences = left < model->sequences_max ? left : model->sequences_max,
            .context = model->context};
        tw_model_forward(model, params, &batch);
        loss += gradient == NULL ? tw_model_loss(model, params, &batch)
                                 : tw_model_backward(model, params, gradient, &batch, scale);
    }
    return loss / ((double)sequences_count * model->context);
}

static void update(struct tw_engine *engine, float lr, double norm) {
    const struct tw_run *run = engine->run;
    const double clip = run->train.clip_millionths / 1e6;
    const double beta1 = run->train.beta1_millionths / 1e6;
    const double beta2 = run->train.beta2_millionths / 1e6;
    const double updates = (double)++engine->updates;
    struct tw_adamw cfg = {
        .lr = lr,
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .eps = ADAMW_EPS,
        .correction1 = (float)(1.0 - pow(beta1, updates)),
        .correction2 = (float)(1.0 - pow(beta2, updates)),
        .gradient_scale = clip > 0.0 && norm > clip ? (float)(clip / norm) : 1.0f,
    };
    const float decay = (float)(run->train.decay_millionths / 1e6);
    for (uint32_t i = 0; i < engine->layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &engine->layout->tensors[i];
        const uint64_t at = tensor->offset;
        cfg.decay = tensor->has_decay ? decay : 0.0f;
        engine->memory->model.ops->adamw(engine->theta + at, engine->m + at, engine->v + at,
                                         engine->gradient + at, (size_t)tensor->rows * tensor->cols,
                                         &cfg);
    }
}

enum tw_status tw_engine_step(struct tw_engine *engine, const uint32_t *tokens, float lr,
                              struct tw_step_result *result, struct tw_error *err) {
    const struct tw_run *run = engine->run;
    TW_TRY(
        check_tokens(engine, tokens, (uint64_t)run->train.batch * (run->model.context + 1), err));
    memset(engine->gradient, 0, engine->layout->elements * sizeof(float));
    const double loss =
        run_passes(engine, engine->theta, engine->gradient, tokens, run->train.batch);
    const double norm = sqrt(tw_norm_squared(engine->gradient, engine->layout->elements));
    result->loss = (float)loss;
    result->grad_norm = (float)norm;
    result->is_skipped = !isfinite(loss) || !isfinite(result->grad_norm);
    if (result->is_skipped) {
        engine->skipped++;
        return TW_OK;
    }
    update(engine, lr, norm);
    return TW_OK;
}

enum tw_status tw_engine_loss(struct tw_engine *engine, const float *params, const uint32_t *tokens,
                              uint32_t sequences_count, double *loss_out, struct tw_error *err) {
    TW_ASSERT(sequences_count > 0);
    TW_TRY(check_tokens(engine, tokens,
                        (uint64_t)sequences_count * (engine->run->model.context + 1), err));
    *loss_out = run_passes(engine, params, NULL, tokens, sequences_count);
    return TW_OK;
}

enum tw_status tw_engine_logits(struct tw_engine *engine, const float *params,
                                const uint32_t *tokens, uint32_t count, float *logits,
                                struct tw_error *err) {
    struct tw_model *model = &engine->memory->model;
    TW_ASSERT(count > 0 && count <= model->context);
    TW_TRY(check_tokens(engine, tokens, count, err));
    const struct tw_model_batch batch = {
        .tokens = tokens, .stride = count, .sequences = 1, .context = count};
    tw_model_forward(model, params, &batch);
    tw_model_last_logits(model, params, &batch, logits);
    return TW_OK;
}
