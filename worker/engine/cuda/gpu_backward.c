/* gpu_backward.c - the backward pass of model.h as a list of operations on a device, from the last
 * layer to the first. arrays.stream holds the gradient of the residual stream: first after a layer,
 * then after the layer's attention, then before the layer. */
#include "worker/engine/cuda/gpu_model.h"

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
    tw_gpu_linear_dw(pass->gpu, linear, &of);
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
        tw_gpu_linear_dx(gpu, &weights->down, arrays->wide, arrays->stream, rows, NULL);
        const struct tw_cuda_swiglu_gradients gradients = {.dx = arrays->broad,
                                                           .dy = arrays->wide,
                                                           .x = slot->up,
                                                           .y = gpu->keeps_outputs ? NULL
                                                                                   : arrays->wide};
        tw_cuda_swiglu_backward(gpu->queue, gpu->map.config.type, &gradients, rows, shape->ffn);
    } else {
        tw_gpu_linear_dx(gpu, &weights->down, arrays->broad, arrays->stream, rows, slot->up);
        if (!gpu->keeps_outputs)
            tw_cuda_gelu(gpu->queue, gpu->map.config.type, slot->act, slot->up,
                         (size_t)rows * shape->ffn);
    }
    weight_backward(pass, &weights->down, slot->act, arrays->stream);
    if (!gpu->keeps_outputs) tw_cuda_norm(gpu->queue, &norm, slot->norm2, slot->middle, NULL, NULL);
    weight_backward(pass, &weights->up, slot->norm2, arrays->broad);
    tw_gpu_linear_dx(gpu, &weights->up, arrays->narrow, arrays->broad, rows, NULL);
    norm_backward(pass, &weights->norm2, slot->middle, slot->stats2, false);
    weight_backward(pass, &weights->out, slot->attention, arrays->stream);
    tw_gpu_linear_dx(gpu, &weights->out, arrays->narrow, arrays->stream, rows, NULL);
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
    if (gpu->map.shape.has_rope) tw_gpu_rotate(pass, arrays->broad, true);
    if (gpu->map.shape.has_qk_norm) heads_backward(pass, layer);
    if (!gpu->keeps_outputs)
        tw_cuda_norm(gpu->queue, &norm, slot->norm1, arrays->x[layer], NULL, NULL);
    weight_backward(pass, &weights->qkv, slot->norm1, arrays->broad);
    tw_gpu_linear_dx(gpu, &weights->qkv, arrays->narrow, arrays->broad, pass->rows, NULL);
    norm_backward(pass, &weights->norm1, arrays->x[layer], slot->stats1, false);
}

void tw_gpu_backward(const struct tw_gpu_pass *pass) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_gpu_arrays *arrays = &gpu->arrays;
    const struct tw_model_shape *shape = &gpu->map.shape;
    norm_backward(pass, &gpu->map.norm_f, arrays->x[shape->layers], arrays->stats_f, true);
    for (uint32_t layer = shape->layers; layer-- > 0;) {
        if (gpu->engine->plan.is_recomputed) {
            tw_gpu_attend(pass, layer, true);
            tw_gpu_feed(pass, layer, true);
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
