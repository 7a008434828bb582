/* gpu_forward.c - the forward pass of model.h as a list of operations on a device. */
#include "base/assert.h"
#include "worker/engine/cuda/gpu_model.h"

struct tw_cuda_norm tw_gpu_norm_of(const struct tw_gpu *gpu, const struct tw_model_norm *norm,
                                   uint32_t rows) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    return (struct tw_cuda_norm){.type = gpu->map.config.type,
                                 .shape = {.is_rms = shape->is_rms,
                                           .rows = rows,
                                           .width = shape->width,
                                           .eps = shape->eps,
                                           .weight = tw_gpu_param(gpu, norm->weight),
                                           .bias = tw_gpu_param(gpu, norm->bias)},
                                 .heads = 1,
                                 .x_stride = shape->width,
                                 .y_stride = shape->width,
                                 .dx_stride = shape->width};
}

struct tw_cuda_norm tw_gpu_head_norm_of(const struct tw_gpu *gpu,
                                        const struct tw_model_layer *layer, uint32_t rows,
                                        uint32_t which) {
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_model_norm *norm = which == 0 ? &layer->q_norm : &layer->k_norm;
    return (struct tw_cuda_norm){.type = gpu->map.config.type,
                                 .shape = {.is_rms = true,
                                           .rows = rows,
                                           .width = shape->head_size,
                                           .eps = shape->eps,
                                           .weight = tw_gpu_param(gpu, norm->weight)},
                                 .heads = which == 0 ? shape->heads : shape->kv_heads,
                                 .x_stride = shape->q_width + shape->kv_width,
                                 .y_stride = shape->qkv_width,
                                 .dx_stride = shape->qkv_width};
}

/* ---- queries, keys, values ------------------------------------------------------------------- */

/* With QK-norm there are two matrix products: q | k is written to slot->qk, v to slot->qkv. */
static void split_qkv(const struct tw_gpu_pass *pass, const struct tw_model_linear *linear,
                      const struct tw_gpu_slot *slot) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const enum tw_type type = gpu->map.config.type;
    const uint32_t qk_width = shape->q_width + shape->kv_width;
    const bool is_nn = linear->form == TW_MATMUL_NN, has_bias = linear->bias != TW_MODEL_NONE;
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t column = part == 0 ? 0 : qk_width;
        const size_t row = is_nn ? column : (size_t)column * shape->width;
        const struct tw_cuda_gemm gemm = {
            .shape = {.m = pass->rows,
                      .k = shape->width,
                      .n = part == 0 ? qk_width : shape->kv_width,
                      .form = linear->form,
                      .type = type,
                      .y_type = type,
                      .b_stride = is_nn ? shape->qkv_width : 0,
                      .y_stride = part == 0 ? qk_width : shape->qkv_width},
            .y = part == 0 ? slot->qk : tw_gpu_at(gpu, slot->qkv, column),
            .a = slot->norm1,
            .b = tw_gpu_weight(gpu, linear->weight + row),
            .epilogue = has_bias ? TW_CUDA_BIAS : TW_CUDA_PLAIN,
            .bias = has_bias ? tw_gpu_weight(gpu, linear->bias + column) : NULL,
        };
        tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
    }
}

static void norm_heads(const struct tw_gpu_pass *pass, const struct tw_model_layer *layer,
                       const struct tw_gpu_slot *slot) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    for (uint32_t which = 0; which < 2; which++) {
        const struct tw_cuda_norm norm = tw_gpu_head_norm_of(gpu, layer, pass->rows, which);
        const size_t column = which == 0 ? 0 : shape->q_width;
        float *stats = slot->qk_stats + (which == 0 ? 0 : (size_t)pass->rows * shape->heads * 2);
        tw_cuda_norm(gpu->queue, &norm, tw_gpu_at(gpu, slot->qkv, column),
                     tw_gpu_at(gpu, slot->qk, column), NULL, stats);
    }
}

void tw_gpu_rotate(const struct tw_gpu_pass *pass, void *qkv, bool is_inverse) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_cuda_rope rope = {.type = gpu->map.config.type,
                                      .rope = {.heads = shape->heads + shape->kv_heads, /* q | k */
                                               .head_size = shape->head_size,
                                               .cos = gpu->arrays.cos,
                                               .sin = gpu->arrays.sin},
                                      .rows = pass->rows,
                                      .context = pass->context,
                                      .position_first = pass->position_first,
                                      .x_stride = shape->qkv_width,
                                      .is_inverse = is_inverse};
    tw_cuda_rope(gpu->queue, &rope, qkv);
}

/* Appends the keys and values of a layer's rows to the cache. */
static void append_to_cache(const struct tw_gpu_pass *pass, uint32_t layer, const void *qkv) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const size_t wide = 2 * (size_t)shape->kv_width, size = tw_type_bytes(gpu->map.config.type);
    const size_t begin = (size_t)layer * shape->context + pass->position_first;
    const struct tw_cuda_rows rows = {.to = tw_gpu_at(gpu, pass->kv, begin * wide),
                                      .from = tw_gpu_at(gpu, qkv, shape->q_width),
                                      .to_stride = wide * size,
                                      .from_stride = shape->qkv_width * size,
                                      .bytes = wide * size,
                                      .rows = pass->rows};
    tw_cuda_copy_rows(gpu->cuda, TW_CUDA_COMPUTE, rows);
}

struct tw_cuda_attention tw_gpu_attention_of(const struct tw_gpu_pass *pass) {
    const struct tw_model_shape *shape = &pass->gpu->map.shape;
    const bool goes_on = pass->kv != NULL;
    return (struct tw_cuda_attention){
        .type = pass->gpu->map.config.type,
        .sequences = pass->sequences,
        .queries = pass->context,
        .keys = pass->position_first + pass->context,
        .kv_heads = shape->kv_heads,
        .group = shape->group,
        .head_size = shape->head_size,
        .q_stride = shape->qkv_width,
        .kv_stride = goes_on ? 2 * (size_t)shape->kv_width : shape->qkv_width,
        .out_stride = shape->q_width,
        .kv_rows = goes_on ? shape->context : pass->context,
    };
}

static void attention(const struct tw_gpu_pass *pass, uint32_t layer) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_attention of = tw_gpu_attention_of(pass);
    const void *keys =
        pass->kv != NULL
            ? tw_gpu_at(gpu, pass->kv, (size_t)layer * shape->context * 2 * shape->kv_width)
            : tw_gpu_at(gpu, slot->qkv, shape->q_width);
    const struct tw_cuda_attention_arrays arrays = {
        .q = slot->qkv,
        .k = keys,
        .v = tw_gpu_at(gpu, keys, shape->kv_width),
        .out = slot->attention,
        .lse = pass->is_learning ? slot->lse : NULL,
        .begin = pass->is_masked ? gpu->arrays.inputs.begin : NULL,
    };
    tw_cuda_attention(gpu->queue, &of, &arrays);
}

/* The output of the previous layer is first added to the residual stream, unless the layer is
 * recomputed. */
void tw_gpu_attend(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &weights->norm1, pass->rows);
    const bool is_added = layer > 0 && !is_again;
    tw_cuda_norm(gpu->queue, &norm, slot->norm1, arrays->x[layer],
                 is_added ? tw_gpu_slot(gpu, layer - 1)->middle : NULL, slot->stats1);
    if (shape->has_qk_norm) {
        split_qkv(pass, &weights->qkv, slot);
        norm_heads(pass, weights, slot);
    } else {
        tw_gpu_linear(gpu, &weights->qkv, slot->qkv, slot->norm1, pass->rows, NULL);
    }
    if (shape->has_rope) tw_gpu_rotate(pass, slot->qkv, false);
    if (pass->kv != NULL) append_to_cache(pass, layer, slot->qkv);
    if (!is_again || !gpu->keeps_attention) attention(pass, layer);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

void tw_gpu_feed(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const bool is_gated = gpu->map.shape.is_gated;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &weights->norm2, pass->rows);
    tw_gpu_linear(gpu, &weights->out, slot->middle, slot->attention, pass->rows, NULL);
    tw_cuda_norm(gpu->queue, &norm, slot->norm2, slot->middle, arrays->x[layer], slot->stats2);
    if (is_gated) {
        tw_gpu_linear(gpu, &weights->up, slot->up, slot->norm2, pass->rows, NULL);
    } else {
        tw_gpu_linear(gpu, &weights->up, slot->act, slot->norm2, pass->rows, slot->up);
    }
    if (is_again) return;
    if (is_gated)
        tw_cuda_swiglu(gpu->queue, gpu->map.config.type, slot->act, slot->up, pass->rows,
                       gpu->map.shape.ffn);
    tw_gpu_linear(gpu, &weights->down, arrays->x[layer + 1], slot->act, pass->rows, NULL);
}

/* ---- the pass -------------------------------------------------------------------------------- */

void tw_gpu_forward(const struct tw_gpu_pass *pass) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_embedding in = {
        .rows = pass->rows,
        .context = pass->context,
        .width = shape->width,
        .position_first = pass->position_first,
        .tokens = arrays->inputs.tokens,
        .token_stride =
            (uint32_t)((arrays->inputs.targets - arrays->inputs.tokens) / pass->sequences),
    };
    TW_ASSERT(pass->position_first + pass->context <= shape->context);
    TW_ASSERT(pass->kv == NULL || (pass->sequences == 1 && !pass->is_masked));
    tw_cuda_embedding(gpu->queue, gpu->map.config.type, arrays->x[0],
                      tw_gpu_param(gpu, gpu->map.tokens), tw_gpu_param(gpu, gpu->map.positions),
                      &in);
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        tw_gpu_attend(pass, layer, false);
        tw_gpu_feed(pass, layer, false);
    }
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &gpu->map.norm_f, pass->rows);
    tw_cuda_norm(gpu->queue, &norm, arrays->norm, arrays->x[shape->layers],
                 tw_gpu_slot(gpu, shape->layers - 1)->middle, arrays->stats_f);
}
