/* gpu_pass.c - queues a pass on a device: inputs, linear maps, forward, head, backward. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cuda/gpu_model.h"

/* ---- inputs ---------------------------------------------------------------------------------- */

static enum tw_status open_block(struct tw_gpu *gpu, uint32_t **block, struct tw_error *err) {
    void *words = NULL;
    TW_TRY(tw_cuda_host_alloc(gpu->cuda, &words, gpu->arrays.input_words * sizeof(uint32_t),
                              "inputs", err));
    *block = words;
    return TW_OK;
}

enum tw_status tw_gpu_inputs_open(struct tw_gpu *gpu, struct tw_error *err) {
    for (uint32_t i = 0; i < TW_GPU_STAGED; i++) TW_TRY(open_block(gpu, &gpu->staged[i], err));
    if (gpu->is_learning) TW_TRY(open_block(gpu, &gpu->ahead.block, err));
    return open_block(gpu, &gpu->swap, err);
}

void tw_gpu_inputs_close(struct tw_gpu *gpu) {
    for (uint32_t i = 0; i < TW_GPU_STAGED; i++) tw_cuda_host_free(gpu->cuda, gpu->staged[i]);
    tw_cuda_host_free(gpu->cuda, gpu->ahead.block);
    tw_cuda_host_free(gpu->cuda, gpu->swap);
}

/* Sets begin[t] to the row of the last separator at or before t: the first row that row t sees. */
static void find_documents(uint32_t *begin, const uint32_t *tokens, uint32_t context,
                           uint32_t separator) {
    uint32_t first = 0;
    for (uint32_t t = 0; t < context; t++) {
        if ((tokens[t] & ~TW_TOKEN_UNSCORED) == separator) first = t;
        begin[t] = first;
    }
}

/* Returns pointers to the contiguous inputs of a pass of this size. `block` is on the device or
 * staged on the host. */
static struct tw_gpu_inputs place_inputs(const struct tw_gpu_pass *pass, uint32_t *block,
                                         uint32_t stride) {
    struct tw_gpu_inputs inputs = {.tokens = block};
    uint32_t *next = block + (size_t)pass->sequences * stride;
    inputs.targets = next;
    next += pass->rows;
    inputs.order = next;
    if (pass->is_learning) next += pass->rows;
    inputs.begin = next;
    return inputs;
}

static size_t words_of(const struct tw_gpu_pass *pass, uint32_t stride, bool has_targets) {
    return (size_t)pass->sequences * stride + (has_targets ? pass->rows : 0) +
           (pass->is_learning ? pass->rows : 0) + (pass->is_masked ? pass->rows : 0);
}

/* Writes the inputs of a pass to a page-locked block. Its first words are a copy of the tokens. */
static void fill_block(const struct tw_gpu_pass *pass, uint32_t *block, const uint32_t *tokens,
                       uint32_t stride, bool has_targets) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_inputs staged = place_inputs(pass, block, stride);
    for (uint32_t b = 0; b < pass->sequences; b++) {
        const uint32_t *from = tokens + (size_t)b * stride;
        const size_t row = (size_t)b * pass->context;
        for (uint32_t t = 0; t < stride; t++) staged.tokens[(size_t)b * stride + t] = from[t];
        for (uint32_t t = 0; t < pass->context && has_targets; t++)
            staged.targets[row + t] = from[t + 1];
        if (pass->is_masked)
            find_documents(staged.begin + row, from, pass->context,
                           gpu->engine->run->data.separator);
    }
    if (pass->is_learning) {
        const struct tw_embedding in = {.rows = pass->rows,
                                        .context = pass->context,
                                        .width = gpu->map.shape.width,
                                        .tokens = staged.tokens,
                                        .token_stride = stride};
        tw_cuda_embedding_order(staged.order, gpu->swap, &in);
    }
}

/* Queues the copy of a filled block to the device. Returns the event that ends it. */
static uint64_t send_block(struct tw_gpu *gpu, const uint32_t *block, size_t words) {
    TW_ASSERT(words <= gpu->arrays.input_words);
    tw_cuda_copy_in(gpu->cuda, TW_CUDA_COMPUTE, gpu->arrays.inputs.tokens, block,
                    words * sizeof(uint32_t));
    return tw_cuda_record(gpu->cuda, TW_CUDA_COMPUTE);
}

/* Returns true if the inputs of this pass are the ones prepared. All else that they depend on is
 * the same in every learning pass of an engine. */
static bool is_prepared(const struct tw_gpu_pass *pass, const uint32_t *tokens, uint32_t stride) {
    const struct tw_gpu_ahead *ahead = &pass->gpu->ahead;
    return pass->is_learning && ahead->sequences == pass->sequences &&
           memcmp(ahead->block, tokens, (size_t)pass->sequences * stride * sizeof(*tokens)) == 0;
}

void tw_gpu_inputs_put(const struct tw_gpu_pass *pass, const uint32_t *tokens, uint32_t stride,
                       bool has_targets) {
    struct tw_gpu *gpu = pass->gpu;
    struct tw_gpu_ahead *ahead = &gpu->ahead;
    const size_t words = words_of(pass, stride, has_targets);
    TW_ASSERT(has_targets || (!pass->is_learning && !pass->is_masked));
    if (is_prepared(pass, tokens, stride)) {
        if (!ahead->is_there) ahead->event = send_block(gpu, ahead->block, words);
        ahead->sequences = 0;
    } else {
        const uint32_t place = gpu->staged_next++ % TW_GPU_STAGED;
        tw_cuda_wait(gpu->cuda, gpu->staged_event[place]);
        fill_block(pass, gpu->staged[place], tokens, stride, has_targets);
        gpu->staged_event[place] = send_block(gpu, gpu->staged[place], words);
    }
    ahead->is_there = false;
    gpu->arrays.inputs = place_inputs(pass, gpu->arrays.inputs.tokens, stride);
}

void tw_gpu_inputs_ahead(const struct tw_gpu_pass *pass, const uint32_t *tokens) {
    struct tw_gpu *gpu = pass->gpu;
    struct tw_gpu_ahead *ahead = &gpu->ahead;
    const uint32_t stride = pass->context + 1;
    tw_cuda_wait(gpu->cuda, ahead->event);
    fill_block(pass, ahead->block, tokens, stride, true);
    ahead->event = send_block(gpu, ahead->block, words_of(pass, stride, true));
    ahead->sequences = pass->sequences;
    ahead->is_there = true;
}

/* ---- linear ---------------------------------------------------------------------------------- */

/* Computes y (rows, out) = x * W + bias. If `pre` is not NULL: pre = x * W + bias, y = gelu(pre).
 */
static void multiply(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *y,
                     const void *x, uint32_t rows, void *pre) {
    const enum tw_type type = gpu->map.config.type;
    const bool has_bias = linear->bias != TW_MODEL_NONE;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = rows,
                  .k = linear->in,
                  .n = linear->out,
                  .form = linear->form,
                  .type = type,
                  .y_type = type},
        .y = y,
        .a = x,
        .b = tw_gpu_weight(gpu, linear->weight),
        .epilogue = !has_bias     ? TW_CUDA_PLAIN
                    : pre != NULL ? TW_CUDA_BIAS_GELU
                                  : TW_CUDA_BIAS,
        .bias = has_bias ? tw_gpu_weight(gpu, linear->bias) : NULL,
        .pre = pre,
    };
    TW_ASSERT(pre == NULL ||
              has_bias); /* only GELU needs `pre`, and models with GELU have biases */
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

/* Computes dx (rows, in) = dy * W^T, multiplied by gelu'(pre) if `pre` is not NULL. */
static void multiply_dx(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *dx,
                        const void *dy, uint32_t rows, void *pre) {
    const enum tw_type type = gpu->map.config.type;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = rows,
                  .k = linear->out,
                  .n = linear->in,
                  .form = linear->form == TW_MATMUL_NN ? TW_MATMUL_NT : TW_MATMUL_NN,
                  .type = type,
                  .y_type = type},
        .y = dx,
        .a = dy,
        .b = tw_gpu_weight(gpu, linear->weight),
        .epilogue = pre != NULL ? TW_CUDA_GELU_BACKWARD : TW_CUDA_PLAIN,
        .pre = pre,
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

/* Adds the gradients of weight and bias, or overwrites them. */
/* The gradient has the orientation of the weight: NN (in, out) = x^T * dy, NT (out, in) = dy^T * x.
 */
static void multiply_dw(const struct tw_gpu *gpu, const struct tw_model_linear *linear,
                        const struct tw_gpu_linear_rows *of) {
    const enum tw_type type = gpu->map.config.type;
    const bool is_nn = linear->form == TW_MATMUL_NN, has_bias = linear->bias != TW_MODEL_NONE;
    const bool is_bias_fused = is_nn && has_bias && linear->out <= TW_CUDA_GEMM_N_MAX;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = is_nn ? linear->in : linear->out,
                  .k = of->rows,
                  .n = is_nn ? linear->out : linear->in,
                  .form = TW_MATMUL_TN,
                  .type = type,
                  .y_type = TW_F32,
                  .is_added = !of->is_first,
                  .a_stride = is_nn ? 0 : of->dy_stride,
                  .b_stride = is_nn ? of->dy_stride : 0},
        .y = tw_gpu_grad(gpu, linear->weight),
        .a = is_nn ? of->x : of->dy,
        .b = is_nn ? of->dy : of->x,
        .epilogue = is_bias_fused ? TW_CUDA_BIAS_GRADIENT : TW_CUDA_PLAIN,
        .bias_gradient = is_bias_fused ? tw_gpu_grad(gpu, linear->bias) : NULL,
        .spare = of->spare,
        .spare_bytes = of->spare_bytes,
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
    if (is_bias_fused || !has_bias) return;
    const struct tw_cuda_bias bias = {.type = type,
                                      .rows = of->rows,
                                      .n = linear->out,
                                      .stride = of->dy_stride != 0 ? of->dy_stride : linear->out,
                                      .is_first = of->is_first};
    tw_cuda_bias_backward(gpu->queue, &bias, tw_gpu_grad(gpu, linear->bias), of->dy,
                          gpu->arrays.scratch);
}

/* ---- head ------------------------------------------------------------------------------------ */

void tw_gpu_logits_of(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count,
                      enum tw_type type) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_linear *head = &gpu->map.head;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = count,
                  .k = head->in,
                  .n = head->out,
                  .form = head->form,
                  .type = gpu->map.config.type,
                  .y_type = type,
                  .y_stride = gpu->arrays.logits_stride},
        .y = gpu->arrays.logits,
        .a = tw_gpu_at(gpu, gpu->arrays.norm, (size_t)first * head->in),
        .b = tw_gpu_weight(gpu, head->weight),
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

/* Computes rows [first, first + count) of the gradient of the last norm's output, and adds the
 * head's gradient, which the step's first chunk overwrites. */
static void chunk_backward(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_linear *head = &gpu->map.head;
    const size_t at = (size_t)first * head->in;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = count,
                  .k = head->out,
                  .n = head->in,
                  .form = TW_MATMUL_NN,
                  .type = gpu->map.config.type,
                  .y_type = gpu->map.config.type,
                  .a_stride = gpu->arrays.logits_stride},
        .y = tw_gpu_at(gpu, gpu->arrays.stream, at),
        .a = gpu->arrays.logits,
        .b = tw_gpu_weight(gpu, head->weight),
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
    const struct tw_gpu_linear_rows of = {.x = tw_gpu_at(gpu, gpu->arrays.norm, at),
                                          .dy = gpu->arrays.logits,
                                          .dy_stride = gpu->arrays.logits_stride,
                                          .rows = count,
                                          .is_first = pass->is_first && first == 0,
                                          .spare = gpu->arrays.broad,
                                          .spare_bytes = gpu->arrays.broad_bytes};
    multiply_dw(gpu, head, &of);
}

void tw_gpu_head(const struct tw_gpu_pass *pass) {
    const struct tw_gpu *gpu = pass->gpu;
    const enum tw_type type = pass->is_learning ? gpu->map.config.type : TW_F32;
    const uint32_t most = tw_gpu_head_chunk(gpu, type, pass->rows);
    for (uint32_t first = 0; first < pass->rows; first += most) {
        const uint32_t count = pass->rows - first < most ? pass->rows - first : most;
        const struct tw_cuda_cross_entropy rows = {
            .logits_type = type,
            .dlogits_type = type,
            .shape = {.rows = count,
                      .vocab = gpu->map.shape.vocab,
                      .logits_stride = gpu->arrays.logits_stride,
                      .dlogits_stride = gpu->arrays.logits_stride,
                      .scale = pass->scale,
                      .z_loss = pass->z_loss},
            .dlogits_columns = gpu->map.shape.vocab,
            .logits = gpu->arrays.logits,
            .dlogits = pass->is_learning ? gpu->arrays.logits : NULL,
            .targets = gpu->arrays.inputs.targets + first,
            .losses = gpu->arrays.losses + first,
        };
        tw_gpu_logits_of(pass, first, count, type);
        tw_cuda_cross_entropy(gpu->queue, &rows);
        if (pass->is_learning) chunk_backward(pass, first, count);
    }
    tw_cuda_sum(gpu->queue, &gpu->step->loss, gpu->arrays.losses, pass->rows, true,
                gpu->arrays.scratch);
}

/* ---- forward --------------------------------------------------------------------------------- */

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

static void rotate(const struct tw_gpu_pass *pass, void *qkv, bool is_inverse) {
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

/* Run parts of a layer. attend goes from norm1 to attention. feed goes from the output matrix to
 * `up` and, unless is_again, on to the input of the next layer. */
/* The output of the previous layer is first added to the residual stream, unless the layer is
 * recomputed. */
static void attend(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again) {
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
        multiply(gpu, &weights->qkv, slot->qkv, slot->norm1, pass->rows, NULL);
    }
    if (shape->has_rope) rotate(pass, slot->qkv, false);
    if (pass->kv != NULL) append_to_cache(pass, layer, slot->qkv);
    if (!is_again || !gpu->keeps_attention) attention(pass, layer);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

static void feed_forward(const struct tw_gpu_pass *pass, uint32_t layer, bool is_again) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const bool is_gated = gpu->map.shape.is_gated;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &weights->norm2, pass->rows);
    multiply(gpu, &weights->out, slot->middle, slot->attention, pass->rows, NULL);
    tw_cuda_norm(gpu->queue, &norm, slot->norm2, slot->middle, arrays->x[layer], slot->stats2);
    if (is_gated) {
        multiply(gpu, &weights->up, slot->up, slot->norm2, pass->rows, NULL);
    } else {
        multiply(gpu, &weights->up, slot->act, slot->norm2, pass->rows, slot->up);
    }
    if (is_again) return;
    if (is_gated)
        tw_cuda_swiglu(gpu->queue, gpu->map.config.type, slot->act, slot->up, pass->rows,
                       gpu->map.shape.ffn);
    multiply(gpu, &weights->down, arrays->x[layer + 1], slot->act, pass->rows, NULL);
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
        attend(pass, layer, false);
        feed_forward(pass, layer, false);
    }
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &gpu->map.norm_f, pass->rows);
    tw_cuda_norm(gpu->queue, &norm, arrays->norm, arrays->x[shape->layers],
                 tw_gpu_slot(gpu, shape->layers - 1)->middle, arrays->stats_f);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds the gradient through a norm to stream (rows, width), from dy = narrow. With is_last_norm,
 * dy is stream itself, and stream is replaced. */
static void norm_backward(const struct tw_gpu_pass *pass, const struct tw_model_norm *of,
                          const void *x, const float *stats, bool is_last_norm) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, of, pass->rows);
    const struct tw_cuda_norm_gradients gradients = {
        .is_added = !is_last_norm,
        .dx = arrays->stream,
        .dy = is_last_norm ? arrays->stream : arrays->narrow,
        .x = x,
        .stats = stats,
        .dweight = tw_gpu_grad(gpu, of->weight),
        .dbias = tw_gpu_grad(gpu, of->bias),
        .is_first = pass->is_first,
        .scratch = arrays->scratch,
    };
    tw_cuda_norm_backward(gpu->queue, &norm, &gradients);
}

/* Adds the gradients of a linear layer's weight and bias, from its input and output gradient. */
static void weight_backward(const struct tw_gpu_pass *pass, const struct tw_model_linear *linear,
                            const void *x, const void *dy) {
    const struct tw_gpu_arrays *arrays = &pass->gpu->arrays;
    const struct tw_gpu_linear_rows of = {.x = x,
                                          .dy = dy,
                                          .rows = pass->rows,
                                          .is_first = pass->is_first,
                                          .spare = arrays->logits, /* the head is done */
                                          .spare_bytes = arrays->logits_bytes};
    multiply_dw(pass->gpu, linear, &of);
}

/* Goes backward through feed-forward, norm2 and the output matrix. Leaves the gradient of the
 * attention's output in narrow. */
static void feed_backward(const struct tw_gpu_pass *pass, uint32_t layer) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &weights->norm2, pass->rows);
    const uint32_t rows = pass->rows;
    if (shape->is_gated) {
        /* One kernel writes the gradient of gate | up. It also overwrites the gradient of the
         * activation's output with that output, unless the output was kept. */
        multiply_dx(gpu, &weights->down, arrays->wide, arrays->stream, rows, NULL);
        const struct tw_cuda_swiglu_gradients gradients = {.dx = arrays->broad,
                                                           .dy = arrays->wide,
                                                           .x = slot->up,
                                                           .y = gpu->keeps_outputs ? NULL
                                                                                   : arrays->wide};
        tw_cuda_swiglu_backward(gpu->queue, gpu->map.config.type, &gradients, rows, shape->ffn);
    } else {
        multiply_dx(gpu, &weights->down, arrays->broad, arrays->stream, rows, slot->up);
        if (!gpu->keeps_outputs)
            tw_cuda_gelu(gpu->queue, gpu->map.config.type, slot->act, slot->up,
                         (size_t)rows * shape->ffn);
    }
    weight_backward(pass, &weights->down, slot->act, arrays->stream);
    if (!gpu->keeps_outputs) tw_cuda_norm(gpu->queue, &norm, slot->norm2, slot->middle, NULL, NULL);
    weight_backward(pass, &weights->up, slot->norm2, arrays->broad);
    multiply_dx(gpu, &weights->up, arrays->narrow, arrays->broad, rows, NULL);
    norm_backward(pass, &weights->norm2, slot->middle, slot->stats2, false);
    weight_backward(pass, &weights->out, slot->attention, arrays->stream);
    multiply_dx(gpu, &weights->out, arrays->narrow, arrays->stream, rows, NULL);
}

/* Turns the gradient of the attention's output into the gradient of q | k | v, in `broad`. */
static void attention_backward(const struct tw_gpu_pass *pass, uint32_t layer) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_attention of = tw_gpu_attention_of(pass);
    const size_t k = shape->q_width, v = k + shape->kv_width;
    const struct tw_cuda_attention_arrays all = {
        .q = slot->qkv,
        .k = tw_gpu_at(gpu, slot->qkv, k),
        .v = tw_gpu_at(gpu, slot->qkv, v),
        .out = slot->attention,
        .lse = slot->lse,
        .begin = pass->is_masked ? arrays->inputs.begin : NULL,
        .dout = arrays->narrow,
        .dq = arrays->broad,
        .dk = tw_gpu_at(gpu, arrays->broad, k),
        .dv = tw_gpu_at(gpu, arrays->broad, v),
        .scratch = arrays->scratch,
    };
    tw_cuda_attention_backward(gpu->queue, &of, &all);
}

/* Computes the gradients of q and k before QK-norm, in place. */
static void heads_backward(const struct tw_gpu_pass *pass, uint32_t layer) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_shape *shape = &gpu->map.shape;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    for (uint32_t which = 0; which < 2; which++) {
        const struct tw_cuda_norm norm = tw_gpu_head_norm_of(gpu, weights, pass->rows, which);
        const size_t column = which == 0 ? 0 : shape->q_width;
        void *dx = tw_gpu_at(gpu, gpu->arrays.broad, column);
        const struct tw_cuda_norm_gradients gradients = {
            .dx = dx,
            .dy = dx,
            .x = tw_gpu_at(gpu, slot->qk, column),
            .stats = slot->qk_stats + (which == 0 ? 0 : (size_t)pass->rows * shape->heads * 2),
            .dweight =
                tw_gpu_grad(gpu, which == 0 ? weights->q_norm.weight : weights->k_norm.weight),
            .is_first = pass->is_first,
            .scratch = gpu->arrays.scratch,
        };
        tw_cuda_norm_backward(gpu->queue, &norm, &gradients);
    }
}

/* Turns the gradient of q | k | v into the gradient of the layer's input. */
static void attend_backward(const struct tw_gpu_pass *pass, uint32_t layer) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_layer *weights = &gpu->map.layers[layer];
    const struct tw_gpu_slot *slot = tw_gpu_slot(gpu, layer);
    const struct tw_cuda_norm norm = tw_gpu_norm_of(gpu, &weights->norm1, pass->rows);
    if (gpu->map.shape.has_rope) rotate(pass, arrays->broad, true);
    if (gpu->map.shape.has_qk_norm) heads_backward(pass, layer);
    if (!gpu->keeps_outputs)
        tw_cuda_norm(gpu->queue, &norm, slot->norm1, arrays->x[layer], NULL, NULL);
    weight_backward(pass, &weights->qkv, slot->norm1, arrays->broad);
    multiply_dx(gpu, &weights->qkv, arrays->narrow, arrays->broad, pass->rows, NULL);
    norm_backward(pass, &weights->norm1, arrays->x[layer], slot->stats1, false);
}

void tw_gpu_backward(const struct tw_gpu_pass *pass) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    norm_backward(pass, &gpu->map.norm_f, arrays->x[shape->layers], arrays->stats_f, true);
    for (uint32_t layer = shape->layers; layer-- > 0;) {
        if (gpu->engine->plan.is_recomputed) {
            attend(pass, layer, true);
            feed_forward(pass, layer, true);
        }
        feed_backward(pass, layer);
        attention_backward(pass, layer);
        attend_backward(pass, layer);
    }
    const struct tw_embedding in = {.rows = pass->rows,
                                    .context = pass->context,
                                    .width = shape->width,
                                    .tokens = arrays->inputs.tokens,
                                    .token_stride = pass->context + 1};
    const struct tw_cuda_embedding_gradients gradients = {
        .dwte = tw_gpu_grad(gpu, gpu->map.tokens),
        .dwpe = tw_gpu_grad(gpu, gpu->map.positions),
        .is_first = pass->is_first,
        .dx = arrays->stream,
        .order = arrays->inputs.order,
        .scratch = arrays->scratch,
    };
    tw_cuda_embedding_backward(gpu->queue, gpu->map.config.type, &in, &gradients);
}
