/* model_forward.c - the forward pass: phases over blocks of rows, with attention between them. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"

struct tw_pass tw_pass_of(struct tw_model *model, const struct tw_model_batch *batch,
                          const struct tw_model_learn *learn) {
    TW_ASSERT(batch->sequences > 0 && batch->sequences <= model->config.sequences);
    TW_ASSERT(batch->context > 0 && batch->context <= model->shape.context);
    TW_ASSERT(model->params != NULL);
    return (struct tw_pass){
        .model = model, .batch = batch, .learn = learn, .rows = batch->sequences * batch->context};
}

struct tw_norm tw_norm_of(const struct tw_pass *pass, const struct tw_model_norm *norm,
                          uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    return (struct tw_norm){.is_rms = shape->is_rms,
                            .rows = rows,
                            .width = shape->width,
                            .eps = shape->eps,
                            .weight = tw_param(pass, norm->weight),
                            .bias = tw_param(pass, norm->bias)};
}

/* ---- queries, keys, values ----------------------------------------------------------------- */

void tw_rotate(const struct tw_pass *pass, void *x, uint32_t first, uint32_t rows,
               bool is_inverse) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const uint32_t context = pass->batch->context;
    const size_t half = shape->head_size / 2;
    for (uint32_t done = 0;
         done < rows;) { /* one sequence at a time: a block may have rows of several */
        const uint32_t t = (first + done) % context;
        const uint32_t count = rows - done < context - t ? rows - done : context - t;
        const size_t at = (tw_position_first(pass) + t) * half;
        const struct tw_rope rope = {.heads = shape->heads + shape->kv_heads, /* q | k */
                                     .head_size = shape->head_size,
                                     .cos = model->cos + at,
                                     .sin = model->sin + at};
        model->ops->rope(tw_at(pass, x, (size_t)done * shape->qkv_width), shape->qkv_width, count,
                         &rope, is_inverse);
        done += count;
    }
}

/* Normalises each head of q and k. The input is kept in slot->qk for the backward pass. */
static void norm_heads(const struct tw_pass *pass, const struct tw_model_layer *layer,
                       const struct tw_model_slot *slot, uint32_t first, uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    const uint32_t qk_width = shape->q_width + shape->kv_width;
    const struct tw_norm q = {.is_rms = true,
                              .rows = shape->heads,
                              .width = shape->head_size,
                              .eps = shape->eps,
                              .weight = tw_param(pass, layer->q_norm.weight)};
    struct tw_norm k = q;
    k.rows = shape->kv_heads;
    k.weight = tw_param(pass, layer->k_norm.weight);
    for (size_t r = first; r < first + rows; r++) {
        void *to = tw_at(pass, slot->qkv, r * shape->qkv_width);
        void *from = tw_at(pass, slot->qk, r * qk_width);
        float *stats = slot->qk_stats + r * 2 * (shape->heads + shape->kv_heads);
        memcpy(from, to, (size_t)qk_width * pass->model->ops->type_bytes);
        pass->model->ops->norm(to, from, NULL, stats, &q);
        pass->model->ops->norm(tw_at(pass, to, shape->q_width), tw_at(pass, from, shape->q_width),
                               NULL, stats + 2 * shape->heads, &k);
    }
}

static void append_to_cache(const struct tw_pass *pass, uint32_t layer, uint32_t first,
                            uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const size_t wide = 2 * (size_t)shape->kv_width;
    const size_t begin = (size_t)layer * shape->context + tw_position_first(pass) + first;
    for (size_t r = 0; r < rows; r++) {
        memcpy(tw_at(pass, pass->batch->cache->kv, (begin + r) * wide),
               tw_at(pass, slot->qkv, (first + r) * shape->qkv_width + shape->q_width),
               wide * pass->model->ops->type_bytes);
    }
}

/* Computes norm1, q | k | v, QK-norm and rotation. The output of the previous layer is first added
 * to the residual stream, unless the layer is recomputed. */
void tw_attend_in(const struct tw_pass *pass, uint32_t layer, uint32_t block, uint32_t thread,
                  bool is_again) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const uint32_t first = block * TW_MATMUL_ROWS, rows = tw_block_rows(pass->rows, block);
    const size_t at = (size_t)first * shape->width;
    const struct tw_norm norm = tw_norm_of(pass, &weights->norm1, rows);
    const bool is_added = layer > 0 && !is_again;
    void *y = tw_scratch(pass, thread);
    void *qkv = tw_at(pass, slot->qkv, (size_t)first * shape->qkv_width);
    model->ops->norm(y, tw_at(pass, model->x[layer], at),
                     is_added ? tw_at(pass, tw_slot(pass, layer - 1)->middle, at) : NULL,
                     slot->stats1 + 2 * (size_t)first, &norm);
    tw_linear(pass, &weights->qkv, qkv, y, rows, thread);
    if (shape->has_qk_norm) norm_heads(pass, weights, slot, first, rows);
    if (shape->has_rope) tw_rotate(pass, qkv, first, rows, false);
    if (pass->batch->cache != NULL) append_to_cache(pass, layer, first, rows);
}

/* ---- feed-forward -------------------------------------------------------------------------- */

/* Applies output matrix, norm2, up, activation and down. The next norm adds the result to the
 * residual stream. When the layer is recomputed, this function stops before the activation. */
void tw_feed(const struct tw_pass *pass, uint32_t layer, uint32_t block, uint32_t thread,
             bool is_again) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const uint32_t first = block * TW_MATMUL_ROWS, rows = tw_block_rows(pass->rows, block);
    const size_t at = (size_t)first * shape->width;
    const struct tw_norm norm = tw_norm_of(pass, &weights->norm2, rows);
    void *y = tw_scratch(pass, thread);
    void *middle = tw_at(pass, slot->middle, at);
    void *up = tw_at(pass, slot->up, (size_t)first * shape->up_width);
    tw_linear(pass, &weights->out, middle,
              tw_at(pass, slot->attention, (size_t)first * shape->q_width), rows, thread);
    model->ops->norm(y, middle, tw_at(pass, model->x[layer], at), slot->stats2 + 2 * (size_t)first,
                     &norm);
    tw_linear(pass, &weights->up, up, y, rows, thread);
    if (is_again) return;
    tw_activate(pass, y, up, rows);
    tw_linear(pass, &weights->down, tw_at(pass, model->x[layer + 1], at), y, rows, thread);
}

void tw_activate(const struct tw_pass *pass, void *y, void *up, uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    if (shape->is_gated) {
        pass->model->ops->swiglu(y, up, rows, shape->ffn);
    } else {
        pass->model->ops->gelu(y, up, (size_t)rows * shape->ffn);
    }
}

/* ---- the pass ------------------------------------------------------------------------------ */

static void embed(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const struct tw_embedding in = {
        .row_first = block * TW_MATMUL_ROWS,
        .rows = tw_block_rows(pass->rows, block),
        .context = pass->batch->context,
        .width = model->shape.width,
        .position_first = tw_position_first(pass),
        .tokens = pass->batch->tokens,
        .token_stride = pass->batch->stride,
    };
    model->ops->embedding(tw_at(pass, model->x[0], (size_t)in.row_first * in.width),
                          tw_param(pass, model->tokens), tw_param(pass, model->positions), &in);
}

static void last_norm(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const uint32_t layers = model->shape.layers;
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * model->shape.width;
    const struct tw_norm norm = tw_norm_of(pass, &model->norm_f, tw_block_rows(pass->rows, block));
    model->ops->norm(tw_at(pass, model->norm, at), tw_at(pass, model->x[layers], at),
                     tw_at(pass, tw_slot(pass, layers - 1)->middle, at), model->stats_f + 2 * first,
                     &norm);
}

/* Computes everything between the attention of one layer and the attention of the next. */
static void rows_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const uint32_t layer = task->layer;
    if (layer == 0) {
        embed(task->pass, block);
    } else {
        tw_feed(task->pass, layer - 1, block, thread, false);
    }
    if (layer < task->pass->model->shape.layers) {
        tw_attend_in(task->pass, layer, block, thread, false);
    } else {
        last_norm(task->pass, block);
    }
}

void tw_model_forward(struct tw_model *model, const struct tw_model_batch *batch) {
    const struct tw_pass pass = tw_pass_of(model, batch, NULL);
    if (batch->cache != NULL) {
        TW_ASSERT(batch->sequences == 1);
        TW_ASSERT(batch->cache->used + batch->context <= model->shape.context);
    }
    for (uint32_t layer = 0; layer <= model->shape.layers; layer++) {
        const struct tw_task rows = {
            .work = rows_piece, .pieces = tw_blocks(pass.rows), .pass = &pass, .layer = layer};
        tw_tasks_run(&rows, 1);
        if (layer == model->shape.layers) break;
        const struct tw_task attention = tw_attention_task(&pass, layer);
        tw_tasks_run(&attention, 1);
    }
    if (batch->cache != NULL) batch->cache->used += batch->context;
}
