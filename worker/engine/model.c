#include "worker/engine/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/rng.h"
#include "worker/engine/engine.h"

/* ---- shape ----------------------------------------------------------------------------------- */

/* The only table of differences between the families, with the tensor names of layout.c. If several
 * tensors form one matrix in this engine, the first one names it. An empty prefix means that the
 * family has no such tensor. */
struct family {
    bool is_rms, has_rope, is_gated;
    enum tw_matmul_form form;
    const char *layer, *norm1, *qkv, *out, *norm2, *up, *down; /* layer: prefix before the layer's
                                                                  number */
    const char *tokens, *positions, *norm_f;
};

static const struct family families[] = {
    [TW_FAMILY_GPT2] = {.form = TW_MATMUL_NN,
                        .layer = "h.",
                        .norm1 = "ln_1",
                        .qkv = "attn.c_attn",
                        .out = "attn.c_proj",
                        .norm2 = "ln_2",
                        .up = "mlp.c_fc",
                        .down = "mlp.c_proj",
                        .tokens = "wte",
                        .positions = "wpe",
                        .norm_f = "ln_f"},
    [TW_FAMILY_LLAMA] = {.is_rms = true,
                         .has_rope = true,
                         .is_gated = true,
                         .form = TW_MATMUL_NT,
                         .layer = "model.layers.",
                         .norm1 = "input_layernorm",
                         .qkv = "self_attn.q_proj",
                         .out = "self_attn.o_proj",
                         .norm2 = "post_attention_layernorm",
                         .up = "mlp.gate_proj",
                         .down = "mlp.down_proj",
                         .tokens = "model.embed_tokens",
                         .positions = "",
                         .norm_f = "model.norm"},
};

struct tw_model_shape tw_model_shape_of(const struct tw_run *run) {
    const struct tw_run_shape sizes = tw_run_shape(run);
    const struct family *family = &families[run->model.family];
    return (struct tw_model_shape){
        .layers = run->model.layers,
        .width = run->model.width,
        .context = run->model.context,
        .vocab = run->model.vocab,
        .heads = sizes.heads,
        .kv_heads = sizes.kv_heads,
        .group = sizes.heads / sizes.kv_heads,
        .head_size = sizes.head_size,
        .q_width = sizes.q_width,
        .kv_width = sizes.kv_width,
        .qkv_width = sizes.q_width + 2 * sizes.kv_width,
        .ffn = sizes.ffn,
        .up_width = family->is_gated ? 2 * sizes.ffn : sizes.ffn,
        .eps = (float)(run->model.norm_eps_millionths / 1e6),
        .is_rms = family->is_rms,
        .has_rope = family->has_rope,
        .is_gated = family->is_gated,
        .has_qk_norm = run->model.qk_norm == TW_YES,
        .is_tied = run->model.is_tied == TW_YES,
        .form = family->form,
    };
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Returns the offset of the layer's tensor `prefix`.`end`, or TW_MODEL_NONE. layer = UINT32_MAX:
 * the tensor belongs to no layer. */
static uint64_t offset_of(const struct tw_layout *layout, const struct family *family,
                          uint32_t layer, const char *prefix, const char *end) {
    char name[sizeof(layout->tensors[0].name)];
    if (layer == UINT32_MAX) {
        (void)snprintf(name, sizeof(name), "%s.%s", prefix, end);
    } else {
        (void)snprintf(name, sizeof(name), "%s%u.%s.%s", family->layer, layer, prefix, end);
    }
    const struct tw_tensor *tensor = tw_layout_find(layout, name);
    return tensor == NULL ? TW_MODEL_NONE : tensor->offset;
}

static struct tw_model_norm norm_of(const struct tw_layout *layout, const struct family *family,
                                    uint32_t layer, const char *prefix) {
    return (struct tw_model_norm){.weight = offset_of(layout, family, layer, prefix, "weight"),
                                  .bias = offset_of(layout, family, layer, prefix, "bias")};
}

static struct tw_weight weight_of(uint32_t k, uint32_t n, enum tw_matmul_form form,
                                  enum tw_type type) {
    return (struct tw_weight){.k = k, .n = n, .form = form, .type = type};
}

static void set_linear(struct tw_model_linear *linear, uint32_t in, uint32_t out,
                       enum tw_matmul_form form, enum tw_type type) {
    linear->in = in;
    linear->out = out;
    linear->form = form;
    linear->forward = weight_of(in, out, form, type);
    linear->backward = weight_of(out, in, form == TW_MATMUL_NN ? TW_MATMUL_NT : TW_MATMUL_NN, type);
}

static void find_layer(struct tw_model_layer *layer, const struct tw_model *model, uint32_t l) {
    const struct tw_layout *layout = model->config.layout;
    const struct family *family = &families[model->config.run->model.family];
    const struct tw_model_shape *shape = &model->shape;
    const struct {
        const char *name;
        struct tw_model_linear *linear;
        uint32_t in, out;
    } rows[] = {
        {family->qkv, &layer->qkv, shape->width, shape->qkv_width},
        {family->out, &layer->out, shape->q_width, shape->width},
        {family->up, &layer->up, shape->width, shape->up_width},
        {family->down, &layer->down, shape->ffn, shape->width},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set_linear(rows[i].linear, rows[i].in, rows[i].out, shape->form, model->config.type);
        rows[i].linear->time =
            (enum tw_profile_kind)(TW_PROFILE_QKV + i * (TW_PROFILE_OUT - TW_PROFILE_QKV));
        rows[i].linear->weight = offset_of(layout, family, l, rows[i].name, "weight");
        rows[i].linear->bias = offset_of(layout, family, l, rows[i].name, "bias");
        TW_ASSERT(rows[i].linear->weight != TW_MODEL_NONE);
    }
    layer->norm1 = norm_of(layout, family, l, family->norm1);
    layer->norm2 = norm_of(layout, family, l, family->norm2);
    layer->q_norm = norm_of(layout, family, l, "self_attn.q_norm");
    layer->k_norm = norm_of(layout, family, l, "self_attn.k_norm");
}

void tw_model_find(struct tw_model *model) {
    const struct tw_layout *layout = model->config.layout;
    const struct family *family = &families[model->config.run->model.family];
    const struct tw_model_shape *shape = &model->shape;
    for (uint32_t l = 0; l < shape->layers; l++) find_layer(&model->layers[l], model, l);
    model->tokens = offset_of(layout, family, UINT32_MAX, family->tokens, "weight");
    model->positions = offset_of(layout, family, UINT32_MAX, family->positions, "weight");
    model->norm_f = norm_of(layout, family, UINT32_MAX, family->norm_f);
    set_linear(&model->head, shape->width, shape->vocab, TW_MATMUL_NT, model->config.type);
    model->head.time = TW_PROFILE_HEAD;
    model->head.bias = TW_MODEL_NONE;
    model->head.weight =
        shape->is_tied ? model->tokens : offset_of(layout, family, UINT32_MAX, "lm_head", "weight");
    TW_ASSERT(model->tokens != TW_MODEL_NONE);
    TW_ASSERT(model->head.weight != TW_MODEL_NONE);
}

/* ---- rotation -------------------------------------------------------------------------------- */

/* Frequencies of arXiv 2104.09864, theta^(-2 * i / head_size), with the scaling of Llama 3.1
 * (Hugging Face's rope_type llama3). Let `turns` be the turns a frequency makes within
 * rope_original tokens:
 * - more than rope_high turns: unchanged;
 * - less than rope_low turns: divided by rope_factor;
 * - in between: interpolated between both. */
static double frequency(const struct tw_run *run, uint32_t i, uint32_t head_size) {
    const double tau = 6.283185307179586476925;
    const double plain = pow(run->model.rope_theta, -2.0 * i / head_size);
    const double factor = run->model.rope_factor_millionths / 1e6;
    if (factor == 1.0) return plain;
    const double low = run->model.rope_low_millionths / 1e6;
    const double high = run->model.rope_high_millionths / 1e6;
    const double turns = run->model.rope_original * plain / tau;
    if (turns > high) return plain;
    if (turns < low) return plain / factor;
    const double share = (turns - low) / (high - low);
    return (1.0 - share) * plain / factor + share * plain;
}

void tw_model_fill_rotation(struct tw_model *model) {
    const uint32_t half = model->shape.head_size / 2;
    if (!model->shape.has_rope) return;
    for (uint32_t i = 0; i < half; i++) {
        const double step = frequency(model->config.run, i, model->shape.head_size);
        for (size_t t = 0; t < model->shape.context; t++) {
            model->cos[t * half + i] = (float)cos((double)t * step);
            model->sin[t * half + i] = (float)sin((double)t * step);
        }
    }
}

/* ---- initial values -------------------------------------------------------------------------- */

/* Draws a nearly normal number with mean 0 and variance 1: a sum of twelve uniform numbers minus
 * its mean (Irwin-Hall). The sum is an integer, so every machine gets the same value without
 * rounding or libm. */
static double draw_normal(struct tw_rng *rng) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < 6; i++) {
        const uint64_t bits = tw_rng_next(rng);
        sum += (bits >> 32) + (bits & 0xFFFFFFFFu);
    }
    return (double)sum * 0x1p-32 - 6.0;
}

static bool ends_with(const char *name, const char *end) {
    const size_t length = strlen(name), end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

void tw_engine_init_params(const struct tw_run *run, const struct tw_layout *layout,
                           float *params) {
    const double deviation = 0.02, residual = deviation / sqrt(2.0 * run->model.layers);
    struct tw_rng rng;
    tw_rng_seed(&rng, run->model.seed);
    memset(params, 0, layout->elements * sizeof(float));
    /* Tensors are drawn in the model's order, so that the initial weights do not depend on the
     * run's fragments. */
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
        float *to = params + tensor->offset;
        if (tensor->shape.rank == 2) {
            const double scale = tensor->is_residual ? residual : deviation;
            for (uint64_t j = 0; j < count; j++) to[j] = (float)(scale * draw_normal(&rng));
        } else if (ends_with(tensor->name, ".weight")) {
            for (uint64_t j = 0; j < count; j++) to[j] = 1.0f;
        }
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

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

/* Gives one kind of weight, a member at this offset of every layer, the memory of its copy in
 * panels (tw_weight_copy): one for all layers, which are copied when their turn comes. */
static void carve_copy(struct carver *carver, const struct tw_model *model, size_t member) {
    const struct tw_weight *first =
        (const struct tw_weight *)(const void *)((const char *)model->layers + member);
    if (rows_max(model) < TW_MATMUL_COPY_ROWS || !tw_weight_has_copy(model->config.library, first))
        return;
    float *const panels = carve_floats(carver, (uint64_t)first->k * first->n);
    for (uint32_t l = 0; l < model->shape.layers; l++) {
        struct tw_weight *weight = (struct tw_weight *)(void *)((char *)&model->layers[l] + member);
        weight->panels = panels;
    }
}

static void carve_copies(struct carver *carver, const struct tw_model *model) {
    static const size_t linears[] = {
        offsetof(struct tw_model_layer, qkv), offsetof(struct tw_model_layer, out),
        offsetof(struct tw_model_layer, up), offsetof(struct tw_model_layer, down)};
    for (size_t i = 0; i < sizeof(linears) / sizeof(linears[0]); i++) {
        carve_copy(carver, model, linears[i] + offsetof(struct tw_model_linear, forward));
        if (!model->config.is_learning) continue;
        carve_copy(carver, model, linears[i] + offsetof(struct tw_model_linear, backward));
    }
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
    carve_copies(carver, model);
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
