/* model_shape.c - sizes of a run's model, offsets of its tensors, and its rotation tables. */
#include "worker/engine/model_shape.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"

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

/* ---- tensors ------------------------------------------------------------------------------- */

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
    model->head.bias = TW_MODEL_NONE;
    model->head.weight =
        shape->is_tied ? model->tokens : offset_of(layout, family, UINT32_MAX, "lm_head", "weight");
    TW_ASSERT(model->tokens != TW_MODEL_NONE);
    TW_ASSERT(model->head.weight != TW_MODEL_NONE);
}

/* ---- rotation ------------------------------------------------------------------------------ */

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
