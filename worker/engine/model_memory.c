/* model_memory.c - lays out a model's activations and packed weights in one block: a first run of
 * the same code only counts bytes, a second one hands out addresses. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"
#include "worker/engine/model_shape.h"

enum {
    ALIGN = 64,
    HUGE_PAGE_BYTES = 2 << 20,
    /* most bytes of logits and their gradient in memory at a time; at least one block of rows fits
     */
    LOGITS_BYTES = 160 << 20,
};

/* Hands out aligned pieces of a block. Without a block it only counts bytes. */
struct carver {
    uint8_t *block;
    uint64_t used;
};

static void *carve(struct carver *carver, uint64_t count, uint64_t size) {
    void *piece = carver->block == NULL ? NULL : carver->block + carver->used;
    carver->used += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

static float *carve_floats(struct carver *carver, uint64_t count) {
    return carve(carver, count, sizeof(float));
}

static uint64_t rows_max(const struct tw_model *model) {
    return (uint64_t)model->config.sequences * model->shape.context;
}

static void carve_slot(struct carver *carver, struct tw_model_slot *slot,
                       const struct tw_model *model) {
    const struct tw_model_shape *shape = &model->shape;
    const uint64_t rows = rows_max(model), size = model->ops->type_bytes;
    const uint64_t heads = shape->heads + shape->kv_heads;
    struct tw_model_slot unused;
    if (carver->block == NULL) slot = &unused;
    slot->qkv = carve(carver, rows * shape->qkv_width, size);
    slot->qk = NULL;
    slot->qk_stats = NULL;
    if (shape->has_qk_norm) {
        slot->qk = carve(carver, rows * (shape->q_width + shape->kv_width), size);
        slot->qk_stats = carve_floats(carver, rows * 2 * heads);
    }
    slot->attention = carve(carver, rows * shape->q_width, size);
    slot->middle = carve(carver, rows * shape->width, size);
    slot->up = carve(carver, rows * shape->up_width, size);
    slot->stats1 = carve_floats(carver, rows * 2);
    slot->stats2 = carve_floats(carver, rows * 2);
    slot->lse = carve_floats(carver, rows * shape->heads);
}

/* Returns the scratch bytes of one thread: for attention, or for a block of rows of the widest
 * intermediate array. */
static size_t scratch_bytes(const struct tw_model *model) {
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_attention cfg = {.queries = shape->context,
                                     .keys = shape->context,
                                     .group = shape->group,
                                     .head_size = shape->head_size,
                                     .q_stride = shape->qkv_width,
                                     .kv_stride = shape->qkv_width,
                                     .out_stride = shape->q_width};
    const size_t attention = tw_attention_scratch(&cfg) * sizeof(float);
    const size_t widest = shape->ffn > shape->width ? shape->ffn : shape->width;
    const size_t block = (size_t)TW_MATMUL_ROWS * widest * model->ops->type_bytes;
    return ((attention > block ? attention : block) + ALIGN - 1) / ALIGN * ALIGN;
}

static void carve_backward(struct carver *carver, struct tw_model *model) {
    const struct tw_model_shape *shape = &model->shape;
    const uint64_t rows = rows_max(model), size = model->ops->type_bytes;
    const uint64_t blocks = (rows + TW_MATMUL_ROWS - 1) / TW_MATMUL_ROWS;
    for (unsigned i = 0; i < 2; i++) {
        model->dx[i] = carve(carver, rows * shape->width, size);
        model->dqkv[i] = carve(carver, rows * shape->qkv_width, size);
        model->partial[i] =
            carve_floats(carver, blocks * 2 * ((uint64_t)shape->width + shape->head_size));
    }
    if (shape->has_qk_norm)
        model->dqk = carve(carver, rows * (shape->q_width + shape->kv_width), size);
    model->dnorm = carve(carver, rows * shape->width, size);
    model->norm1 = carve(carver, rows * shape->width, size);
    model->norm2 = carve(carver, rows * shape->width, size);
    model->act = carve(carver, rows * shape->ffn, size);
    model->dup = carve(carver, rows * shape->up_width, size);
    model->dattention = carve(carver, rows * shape->q_width, size);
}

static void carve_activations(struct carver *carver, struct tw_model *model) {
    const struct tw_model_shape *shape = &model->shape;
    const bool is_there = carver->block != NULL;
    const uint64_t rows = rows_max(model), size = model->ops->type_bytes;
    const uint64_t positions = (uint64_t)shape->context * (shape->head_size / 2);
    model->slots = carve(carver, model->slots_count, sizeof(*model->slots));
    for (uint32_t i = 0; i < model->slots_count; i++)
        carve_slot(carver, is_there ? &model->slots[i] : NULL, model);
    model->x = carve(carver, shape->layers + 1, sizeof(*model->x));
    for (uint32_t i = 0; i <= shape->layers; i++) {
        /* Without backward passes, the residual stream is updated in place. */
        const bool is_own = i == 0 || model->config.is_learning;
        void *x = is_own ? carve(carver, rows * shape->width, size) : NULL;
        if (is_there) model->x[i] = is_own ? x : model->x[0];
    }
    model->norm = carve(carver, rows * shape->width, size);
    model->stats_f = carve_floats(carver, rows * 2);
    model->targets = carve(carver, rows, sizeof(*model->targets));
    if (shape->has_rope) {
        model->cos = carve_floats(carver, positions);
        model->sin = carve_floats(carver, positions);
    }
    model->scratch_bytes = scratch_bytes(model);
    model->scratch = carve(carver, model->config.threads, model->scratch_bytes);
    if (model->config.is_learning) carve_backward(carver, model);
}

static void carve_logits(struct carver *carver, struct tw_model *model) {
    const uint64_t rows = rows_max(model);
    const uint64_t size = model->ops->type_bytes, pad = TW_MATMUL_PAD_K;
    const uint64_t stride = (model->shape.vocab + pad - 1) / pad * pad;
    const bool is_own = model->config.is_learning && model->config.type != TW_F32;
    const uint64_t row_bytes = stride * (sizeof(float) + (is_own ? size : 0));
    uint64_t fit = LOGITS_BYTES / row_bytes / TW_MATMUL_ROWS * TW_MATMUL_ROWS;
    if (fit == 0) fit = TW_MATMUL_ROWS;
    /* The rows are split into chunks of equal size, rounded up to whole blocks. */
    const uint64_t chunks = (rows + fit - 1) / fit;
    const uint64_t even = (rows + chunks - 1) / chunks;
    const uint64_t blocks = (even + TW_MATMUL_ROWS - 1) / TW_MATMUL_ROWS;
    const uint64_t most = blocks * TW_MATMUL_ROWS;
    model->logits_stride = (uint32_t)stride;
    model->head_rows = (uint32_t)(most < rows ? most : rows);
    model->logits = carve_floats(carver, model->head_rows * stride);
    model->dlogits = is_own ? carve(carver, model->head_rows * stride, size) : model->logits;
    model->losses = carve(carver, model->head_rows, sizeof(*model->losses));
}

static void carve_weight(struct carver *carver, const struct tw_model *model,
                         struct tw_weight *weight) {
    const size_t bytes = tw_weight_bytes(model->config.library, weight);
    weight->packed = bytes == 0 ? NULL : carve(carver, bytes, 1);
}

static void carve_linear(struct carver *carver, const struct tw_model *model,
                         struct tw_model_linear *linear) {
    carve_weight(carver, model, &linear->forward);
    if (model->config.is_learning) carve_weight(carver, model, &linear->backward);
}

static void carve_weights(struct carver *carver, struct tw_model *model) {
    for (uint32_t l = 0; l < model->shape.layers; l++) {
        struct tw_model_layer *layer = &model->layers[l];
        carve_linear(carver, model, &layer->qkv);
        carve_linear(carver, model, &layer->out);
        carve_linear(carver, model, &layer->up);
        carve_linear(carver, model, &layer->down);
    }
    carve_linear(carver, model, &model->head);
}

static void set_up(struct tw_model *model, const struct tw_model_config *config) {
    *model = (struct tw_model){
        .config = *config, .shape = tw_model_shape_of(config->run), .ops = config->ops};
    const bool is_one = config->is_recomputed || !config->is_learning;
    model->slots_count = is_one ? 1 : model->shape.layers;
}

static struct tw_model_bytes carve_model(struct carver *carver, struct tw_model *model) {
    struct tw_model_bytes bytes = {0};
    carve_activations(carver, model);
    bytes.activations = carver->used;
    carve_logits(carver, model);
    bytes.logits = carver->used - bytes.activations;
    carve_weights(carver, model);
    bytes.weights = carver->used - bytes.activations - bytes.logits;
    return bytes;
}

enum tw_status tw_model_measure(struct tw_model_bytes *bytes, const struct tw_model_config *config,
                                struct tw_error *err) {
    struct tw_model model;
    struct carver carver = {.block = NULL, .used = 0};
    set_up(&model, config);
    model.layers = calloc(model.shape.layers, sizeof(*model.layers));
    if (model.layers == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of layers");
    tw_model_find(&model);
    *bytes = carve_model(&carver, &model);
    free(model.layers);
    return TW_OK;
}

static enum tw_status create_multipliers(struct tw_model *model, struct tw_error *err) {
    const uint32_t threads = model->config.threads;
    model->multipliers = calloc(threads, sizeof(struct tw_multiplier *));
    if (model->multipliers == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for %u threads", threads);
    for (uint32_t i = 0; i < threads; i++)
        TW_TRY(tw_multiplier_create(&model->multipliers[i], model->config.library, err));
    return TW_OK;
}

static enum tw_status allocate(struct tw_model *model, struct tw_error *err) {
    const uint32_t layers = model->shape.layers;
    struct carver carver = {.block = NULL, .used = 0};
    TW_TRY(create_multipliers(model, err));
    model->layers = calloc(layers, sizeof(*model->layers));
    model->weights = calloc(8 * (size_t)layers + 2, sizeof(struct tw_weight *));
    if (model->layers == NULL || model->weights == NULL)
        return tw_fail(err, TW_NOMEM, "no memory for a list of %u layers", layers);
    tw_model_find(model);
    (void)carve_model(&carver, model);
    const uint64_t bytes = (carver.used + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        return tw_fail(err, TW_NOMEM,
                       "activations and working weights need %.0f MiB of memory and the system "
                       "refused: choose a smaller batch, context or model",
                       (double)bytes / 1048576.0);
    }
    (void)madvise(block, bytes, MADV_HUGEPAGE); /* only a hint: huge pages mean fewer page walks */
    model->memory = block;
    model->memory_bytes = bytes;
    carver = (struct carver){.block = block, .used = 0};
    (void)carve_model(&carver, model);
    TW_ASSERT(carver.used <= bytes);
    tw_model_fill_rotation(model);
    return TW_OK;
}

enum tw_status tw_model_init(struct tw_model *model, const struct tw_model_config *config,
                             struct tw_thread_pool *team, struct tw_error *err) {
    set_up(model, config);
    model->team = team;
    const enum tw_status status = allocate(model, err);
    if (status != TW_OK) tw_model_deinit(model);
    return status;
}

void tw_model_deinit(struct tw_model *model) {
    if (model->memory != NULL) (void)munmap(model->memory, model->memory_bytes);
    for (uint32_t i = 0; model->multipliers != NULL && i < model->config.threads; i++)
        tw_multiplier_destroy(model->multipliers[i]);
    free(model->multipliers);
    free(model->weights);
    free(model->layers);
    *model = (struct tw_model){0};
}

uint64_t tw_model_cache_bytes(const struct tw_run *run, enum tw_type type) {
    const struct tw_model_shape shape = tw_model_shape_of(run);
    return (uint64_t)shape.layers * shape.context * 2 * shape.kv_width * tw_type_bytes(type);
}
