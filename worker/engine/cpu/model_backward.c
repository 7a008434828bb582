/* model_backward.c - the backward pass. Two phases per layer i, from the last to the first:
 *
 *     rows:    through q | k | v and norm1 of layer i + 1, then through feed-forward, norm2 and
 *              output matrix of layer i
 *     pieces:  attention of layer i; gradients of its matrices down, up and out, and of qkv of
 *              layer i + 1
 *
 * Some buffers exist twice: pieces read one copy while the rows of layer i - 1 write the other.
 * Gradients of norm weights are summed per block of rows, then over the blocks in order. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"

/* Returns the number of floats summed per block of rows: gradients of a norm's weight and bias, and
 * of q_norm and k_norm. */
static size_t partial_count(const struct tw_model_shape *shape) {
    return 2 * (size_t)shape->width + 2 * (size_t)shape->head_size;
}

/* Returns the partial sums of one block. partial[0] is for norm1 of the layer above, or the last
 * norm; partial[1] is for norm2. */
static float *partial_of(const struct tw_pass *pass, uint32_t which, uint32_t block) {
    return pass->model->partial[which] + block * partial_count(&pass->model->shape);
}

static float *clear_partial(const struct tw_pass *pass, uint32_t which, uint32_t block) {
    float *partial = partial_of(pass, which, block);
    memset(partial, 0, partial_count(&pass->model->shape) * sizeof(float));
    return partial;
}

/* ---- one block of rows --------------------------------------------------------------------- */

/* The gradient of the residual stream before layer l is in dx[l % 2]. */
static void *stream(const struct tw_pass *pass, uint32_t layer, size_t first) {
    return tw_at(pass, pass->model->dx[layer % 2], first * pass->model->shape.width);
}

static void last_norm_block(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const uint32_t layers = model->shape.layers, rows = tw_block_rows(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * model->shape.width;
    const struct tw_norm norm = tw_norm_of(pass, &model->norm_f, rows);
    float *partial = clear_partial(pass, 0, block);
    void *dx = stream(pass, layers, first);
    memset(dx, 0, (size_t)rows * model->shape.width * model->ops->type_bytes);
    model->ops->norm_backward(dx, partial, norm.bias == NULL ? NULL : partial + norm.width,
                              tw_at(pass, model->dnorm, at), tw_at(pass, model->x[layers], at),
                              model->stats_f + 2 * first, &norm);
}

/* Computes the gradient of q and k before QK-norm, in place. Adds the gradients of q_norm and
 * k_norm to `partial`. */
static void heads_block(const struct tw_pass *pass, uint32_t layer, size_t first, uint32_t rows,
                        float *partial) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const uint32_t qk_width = shape->q_width + shape->kv_width;
    const size_t bytes = (size_t)qk_width * model->ops->type_bytes;
    const struct tw_norm q = {.is_rms = true,
                              .rows = shape->heads,
                              .width = shape->head_size,
                              .eps = shape->eps,
                              .weight = tw_param(pass, model->layers[layer].q_norm.weight)};
    struct tw_norm k = q;
    k.rows = shape->kv_heads;
    k.weight = tw_param(pass, model->layers[layer].k_norm.weight);
    for (size_t r = first; r < first + rows; r++) {
        void *dx = tw_at(pass, model->dqkv[layer % 2], r * shape->qkv_width);
        void *dy = tw_at(pass, model->dqk, r * qk_width);
        void *x = tw_at(pass, slot->qk, r * qk_width);
        const float *stats = slot->qk_stats + r * 2 * (shape->heads + shape->kv_heads);
        memcpy(dy, dx, bytes);
        memset(dx, 0, bytes);
        model->ops->norm_backward(dx, partial, NULL, dy, x, stats, &q);
        model->ops->norm_backward(tw_at(pass, dx, shape->q_width), partial + shape->head_size, NULL,
                                  tw_at(pass, dy, shape->q_width), tw_at(pass, x, shape->q_width),
                                  stats + 2 * shape->heads, &k);
    }
}

/* Turns the gradient of q | k | v into the gradient of the layer's input, and adds it to the
 * gradient of the residual stream. */
static void attend_in_block(const struct tw_pass *pass, uint32_t layer, uint32_t block,
                            uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const uint32_t rows = tw_block_rows(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * shape->width;
    const struct tw_norm norm = tw_norm_of(pass, &weights->norm1, rows);
    float *partial = clear_partial(pass, 0, block);
    void *dqkv = tw_at(pass, model->dqkv[layer % 2], first * shape->qkv_width);
    void *dy = tw_scratch(pass, thread), *x = tw_at(pass, model->x[layer], at);
    if (shape->has_rope) tw_rotate(pass, dqkv, (uint32_t)first, rows, true);
    if (shape->has_qk_norm) heads_block(pass, layer, first, rows, partial + 2 * shape->width);
    tw_linear_dx(pass, &weights->qkv, dy, dqkv, rows, thread);
    model->ops->norm(tw_at(pass, model->norm1, at), x, NULL, NULL, &norm);
    model->ops->norm_backward(stream(pass, layer, first), partial,
                              norm.bias == NULL ? NULL : partial + shape->width, dy, x,
                              slot->stats1 + 2 * first, &norm);
}

/* Turns the gradient of the layer's output, dx[layer + 1], into two gradients: of the residual
 * stream after attention, in dx[layer], and of the attention's output. Keeps the inputs of the
 * weight gradients. */
static void feed_block(const struct tw_pass *pass, uint32_t layer, uint32_t block,
                       uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_ops *ops = model->ops;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = tw_slot(pass, layer);
    const uint32_t rows = tw_block_rows(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * shape->width;
    const struct tw_norm norm = tw_norm_of(pass, &weights->norm2, rows);
    float *partial = clear_partial(pass, 1, block);
    void *up = tw_at(pass, slot->up, first * shape->up_width);
    void *dup = tw_at(pass, model->dup, first * shape->up_width);
    void *middle = tw_at(pass, slot->middle, at);
    void *dy = stream(pass, layer + 1, first), *dx = stream(pass, layer, first);
    void *scratch = tw_scratch(pass, thread);

    tw_activate(pass, tw_at(pass, model->act, first * shape->ffn), up, rows);
    tw_linear_dx(pass, &weights->down, shape->is_gated ? scratch : dup, dy, rows, thread);
    if (shape->is_gated) {
        ops->swiglu_backward(dup, scratch, up, rows, shape->ffn);
    } else {
        ops->gelu_backward(dup, up, (size_t)rows * shape->ffn);
    }
    tw_linear_dx(pass, &weights->up, scratch, dup, rows, thread);
    ops->norm(tw_at(pass, model->norm2, at), middle, NULL, NULL, &norm);
    memcpy(dx, dy, (size_t)rows * shape->width * ops->type_bytes);
    ops->norm_backward(dx, partial, norm.bias == NULL ? NULL : partial + shape->width, scratch,
                       middle, slot->stats2 + 2 * first, &norm);
    tw_linear_dx(pass, &weights->out, tw_at(pass, model->dattention, first * shape->q_width), dx,
                 rows, thread);
}

/* ---- phases -------------------------------------------------------------------------------- */

/* Called when the backward pass of attention is done for layer task->layer + 1. Above the last
 * layer, there is only the last norm. With recompute, the block first repeats the forward work of
 * task->layer up to q | k | v. Otherwise it continues backward through the feed-forward of that
 * layer. */
static void rows_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const uint32_t above = task->layer + 1;
    if (above == pass->model->shape.layers) {
        last_norm_block(pass, block);
    } else {
        attend_in_block(pass, above, block, thread);
    }
    if (task->is_again) tw_attend_in(pass, task->layer, block, thread, true);
    if (task->is_backward) feed_block(pass, task->layer, block, thread);
}

static void feed_again_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    tw_feed(task->pass, task->layer, block, thread, true);
    feed_block(task->pass, task->layer, block, thread);
}

/* Adds the partial sums of all blocks to gradient (n), in order of blocks. */
static void add_partials(const struct tw_pass *pass, uint64_t offset, uint32_t which, size_t at,
                         uint32_t n) {
    if (offset == TW_MODEL_NONE) return;
    float *gradient = tw_grad(pass, offset);
    for (uint32_t block = 0; block < tw_blocks(pass->rows); block++) {
        const float *partial = partial_of(pass, which, block) + at;
        for (uint32_t i = 0; i < n; i++) gradient[i] += partial[i];
    }
}

/* Adds norm gradients: piece 0 for the norm above, piece 1 for norm2 of this layer. */
static void partials_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const uint32_t above = task->layer + 1;
    const struct tw_model_norm *norm = piece == 1               ? &model->layers[task->layer].norm2
                                       : above == shape->layers ? &model->norm_f
                                                                : &model->layers[above].norm1;
    (void)thread;
    add_partials(pass, norm->weight, piece, 0, shape->width);
    add_partials(pass, norm->bias, piece, shape->width, shape->width);
    if (piece == 1 || above == shape->layers || !shape->has_qk_norm) return;
    const size_t at = 2 * (size_t)shape->width;
    add_partials(pass, model->layers[above].q_norm.weight, 0, at, shape->head_size);
    add_partials(pass, model->layers[above].k_norm.weight, 0, at + shape->head_size,
                 shape->head_size);
}

/* Lists tasks: the attention of the layer, and the weight and norm gradients whose inputs are
 * ready. `layer` is UINT32_MAX below the first layer. Returns the number of tasks. */
static uint32_t list_tasks(const struct tw_pass *pass, uint32_t layer, struct tw_task *tasks) {
    const struct tw_model *model = pass->model;
    const uint32_t above = layer + 1;
    uint32_t count = 0;
    if (layer != UINT32_MAX) {
        const struct tw_model_layer *weights = &model->layers[layer];
        tasks[count++] = tw_attention_backward_task(pass, layer);
        tasks[count++] = tw_linear_dw(pass, &weights->down, model->act, model->dx[above % 2]);
        tasks[count++] = tw_linear_dw(pass, &weights->up, model->norm2, model->dup);
        tasks[count++] = tw_linear_dw(pass, &weights->out, tw_slot(pass, layer)->attention,
                                      model->dx[layer % 2]);
    }
    if (above < model->shape.layers) {
        tasks[count++] =
            tw_linear_dw(pass, &model->layers[above].qkv, model->norm1, model->dqkv[above % 2]);
    }
    tasks[count++] = (struct tw_task){.work = partials_piece,
                                      .pieces = layer != UINT32_MAX ? 2 : 1,
                                      .pass = pass,
                                      .layer = layer};
    return count;
}

enum { EMBEDDING_COLUMNS = 64 };

static void embedding_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const uint32_t width = model->shape.width, first = piece * EMBEDDING_COLUMNS;
    const struct tw_embedding in = {
        .rows = pass->rows,
        .context = pass->batch->context,
        .width = width,
        .tokens = pass->batch->tokens,
        .token_stride = pass->batch->stride,
        .column_first = first,
        .columns = width - first < EMBEDDING_COLUMNS ? width - first : EMBEDDING_COLUMNS,
    };
    (void)thread;
    model->ops->embedding_backward(tw_grad(pass, model->tokens), tw_grad(pass, model->positions),
                                   model->dx[0], &in);
}

static void layer_backward(const struct tw_pass *pass, uint32_t layer) {
    const bool is_again = pass->model->config.is_recomputed;
    struct tw_task tasks[TW_TASKS_MAX];
    struct tw_task rows = {.work = rows_piece,
                           .pieces = tw_blocks(pass->rows),
                           .pass = pass,
                           .layer = layer,
                           .is_again = is_again,
                           .is_backward = !is_again};
    tw_tasks_run(&rows, 1);
    if (is_again) {
        tasks[0] = tw_attention_task(pass, layer);
        tw_tasks_run(tasks, 1);
        rows.work = feed_again_piece;
        tw_tasks_run(&rows, 1);
    }
    tw_tasks_run(tasks, list_tasks(pass, layer, tasks));
}

double tw_model_backward(struct tw_model *model, const struct tw_model_batch *batch,
                         const struct tw_model_learn *learn) {
    const struct tw_pass pass = tw_pass_of(model, batch, learn);
    struct tw_task tasks[TW_TASKS_MAX];
    TW_ASSERT(model->config.is_learning);
    const double loss = tw_head(&pass);
    for (uint32_t layer = model->shape.layers; layer-- > 0;) layer_backward(&pass, layer);
    const struct tw_task rows = {
        .work = rows_piece, .pieces = tw_blocks(pass.rows), .pass = &pass, .layer = UINT32_MAX};
    tw_tasks_run(&rows, 1);
    uint32_t count = list_tasks(&pass, UINT32_MAX, tasks);
    tasks[count++] =
        (struct tw_task){.work = embedding_piece,
                         .pieces = (model->shape.width + EMBEDDING_COLUMNS - 1) / EMBEDDING_COLUMNS,
                         .pass = &pass};
    tw_tasks_run(tasks, count);
    return loss;
}
