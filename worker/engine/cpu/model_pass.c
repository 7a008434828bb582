/* model_pass.c - forward and backward passes on the CPU (model.h): phases as lists of tasks, split
 * into pieces for the thread pool. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cpu/pass.h"

/* ---- phases ---------------------------------------------------------------------------------- */

struct phase {
    const struct tw_task *tasks;
    uint32_t count;
};

static void phase_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct phase *phase = context;
    const struct tw_task *task = phase->tasks;
    if (tw_model_is_stopped(task->pass->model)) return;
    while (piece >= task->pieces) piece -= (task++)->pieces;
    if (task->pass->model->profile != NULL) tw_profile_start(task->pass->model->profile, thread);
    task->work(task, piece, thread);
}

/* Runs all pieces of all tasks concurrently on the thread pool. */
static void run_tasks(const struct tw_task *tasks, uint32_t count) {
    struct phase phase = {tasks, count};
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < count; i++) pieces += tasks[i].pieces;
    if (pieces > 0) tw_thread_pool_run(tasks[0].pass->model->team, pieces, phase_piece, &phase);
}

/* ---- attention ------------------------------------------------------------------------------- */

static struct tw_attention shape_of(const struct tw_pass *pass) {
    const struct tw_model_shape *shape = &pass->model->shape;
    const bool is_cached = pass->batch->cache != NULL;
    return (struct tw_attention){
        .queries = pass->batch->context,
        .keys = pass->batch->context + position_first(pass),
        .group = shape->group,
        .head_size = shape->head_size,
        .q_stride = shape->qkv_width,
        .kv_stride = is_cached ? 2 * (size_t)shape->kv_width : shape->qkv_width,
        .out_stride = shape->q_width,
    };
}

/* Returns the arrays of the forward pass for one sequence and key/value head. */
static struct tw_attention_arrays arrays_of(const struct tw_task *task, uint32_t sequence,
                                            uint32_t head, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model_shape *shape = &pass->model->shape;
    const struct tw_model_slot *slot = slot_of(pass, task->layer);
    const size_t row = (size_t)sequence * pass->batch->context;
    const size_t q = (size_t)head * shape->group * shape->head_size;
    const size_t kv = (size_t)head * shape->head_size;
    void *queries = element_at(pass, slot->qkv, row * shape->qkv_width);
    void *keys = element_at(pass, queries, shape->q_width + kv);
    if (pass->batch->cache != NULL) {
        keys = element_at(pass, pass->batch->cache->kv,
                          (size_t)task->layer * shape->context * 2 * shape->kv_width + kv);
    }
    return (struct tw_attention_arrays){
        .q = element_at(pass, queries, q),
        .k = keys,
        .v = element_at(pass, keys, shape->kv_width),
        .out = element_at(pass, slot->attention, row * shape->q_width + q),
        .lse = slot->lse + row * shape->heads + (size_t)head * shape->group * pass->batch->context,
        .scratch = scratch_of(pass, thread),
    };
}

/* Adds the arrays that only the backward pass needs. */
static void add_gradients(struct tw_attention_arrays *arrays, const struct tw_task *task,
                          uint32_t sequence, uint32_t head) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const size_t row = (size_t)sequence * pass->batch->context;
    const size_t q = (size_t)head * shape->group * shape->head_size;
    const size_t kv = shape->q_width + (size_t)head * shape->head_size;
    void *dqkv = element_at(pass, model->dqkv[task->layer % 2], row * shape->qkv_width);
    arrays->dout = element_at(pass, model->dattention, row * shape->q_width + q);
    arrays->dq = element_at(pass, dqkv, q);
    arrays->dk = element_at(pass, dqkv, kv);
    arrays->dv = element_at(pass, dqkv, kv + shape->kv_width);
}

/* Returns the row after the last row of the document that begins at row `begin`. */
static uint32_t document_end(const struct tw_model_batch *batch, uint32_t sequence,
                             uint32_t begin) {
    const uint32_t *tokens = batch->tokens + (size_t)sequence * batch->stride;
    uint32_t end = begin + 1;
    while (end < batch->context && (tokens[end] & ~TW_TOKEN_UNSCORED) != batch->separator) end++;
    return end;
}

typedef void attention_fn(const struct tw_attention *shape,
                          const struct tw_attention_arrays *arrays);

static void attend(const struct tw_pass *pass, uint32_t sequence, attention_fn *attention,
                   const struct tw_attention_arrays *window) {
    const struct tw_model_batch *batch = pass->batch;
    struct tw_attention shape = shape_of(pass);
    if (!batch->is_masked) {
        attention(&shape, window);
        return;
    }
    TW_ASSERT(batch->cache == NULL);
    for (uint32_t begin = 0, end; begin < batch->context; begin = end) {
        end = document_end(batch, sequence, begin);
        shape.queries = shape.keys = end - begin;
        const struct tw_attention_arrays document =
            tw_attention_document(&shape, window, pass->model->ops->type_bytes, begin);
        attention(&shape, &document);
    }
}

static void forward_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const uint32_t heads = task->pass->model->shape.kv_heads;
    const uint32_t sequence = piece / heads, head = piece % heads;
    const struct tw_attention_arrays window = arrays_of(task, sequence, head, thread);
    attend(task->pass, sequence, task->pass->model->ops->attention, &window);
    lap(task->pass, thread, TW_PROFILE_ATTENTION);
}

static void backward_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const uint32_t heads = task->pass->model->shape.kv_heads;
    const uint32_t sequence = piece / heads, head = piece % heads;
    struct tw_attention_arrays window = arrays_of(task, sequence, head, thread);
    add_gradients(&window, task, sequence, head);
    attend(task->pass, sequence, task->pass->model->ops->attention_backward, &window);
    lap(task->pass, thread, TW_PROFILE_ATTENTION_BACKWARD);
}

/* Return the tasks that run attention for every sequence and key/value head (model_pass.c). */
static struct tw_task attention_task(const struct tw_pass *pass, uint32_t layer) {
    return (struct tw_task){.work = forward_piece,
                            .pieces = pass->batch->sequences * pass->model->shape.kv_heads,
                            .pass = pass,
                            .layer = layer};
}

static struct tw_task attention_backward_task(const struct tw_pass *pass, uint32_t layer) {
    struct tw_task task = attention_task(pass, layer);
    task.work = backward_piece;
    return task;
}

/* ---- forward --------------------------------------------------------------------------------- */

static struct tw_pass pass_of(struct tw_model *model, const struct tw_model_batch *batch,
                              const struct tw_model_learn *learn) {
    TW_ASSERT(batch->sequences > 0 && batch->sequences <= model->config.sequences);
    TW_ASSERT(batch->context > 0 && batch->context <= model->shape.context);
    TW_ASSERT(model->params != NULL);
    const uint32_t rows = batch->sequences * batch->context;
    return (struct tw_pass){.model = model,
                            .batch = batch,
                            .learn = learn,
                            .rows = rows,
                            .is_copied = rows >= TW_MATMUL_COPY_ROWS};
}

static struct tw_norm norm_of(const struct tw_pass *pass, const struct tw_model_norm *norm,
                              uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    return (struct tw_norm){.is_rms = shape->is_rms,
                            .rows = rows,
                            .width = shape->width,
                            .eps = shape->eps,
                            .weight = param_at(pass, norm->weight),
                            .bias = param_at(pass, norm->bias)};
}

/* ---- queries, keys, values ------------------------------------------------------------------- */

/* Applies rotary positions to rows [first, first + rows) of the pass. Rows of x are qkv_width wide.
 */
static void rotate(const struct tw_pass *pass, void *x, uint32_t first, uint32_t rows,
                   bool is_inverse) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const uint32_t context = pass->batch->context;
    const size_t half = shape->head_size / 2;
    for (uint32_t done = 0;
         done < rows;) { /* one sequence at a time: a block may have rows of several */
        const uint32_t t = (first + done) % context;
        const uint32_t count = rows - done < context - t ? rows - done : context - t;
        const size_t at = (position_first(pass) + t) * half;
        const struct tw_rope rope = {.heads = shape->heads + shape->kv_heads, /* q | k */
                                     .head_size = shape->head_size,
                                     .cos = model->cos + at,
                                     .sin = model->sin + at};
        model->ops->rope(element_at(pass, x, (size_t)done * shape->qkv_width), shape->qkv_width,
                         count, &rope, is_inverse);
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
                              .weight = param_at(pass, layer->q_norm.weight)};
    struct tw_norm k = q;
    k.rows = shape->kv_heads;
    k.weight = param_at(pass, layer->k_norm.weight);
    for (size_t r = first; r < first + rows; r++) {
        void *to = element_at(pass, slot->qkv, r * shape->qkv_width);
        void *from = element_at(pass, slot->qk, r * qk_width);
        float *stats = slot->qk_stats + r * 2 * (shape->heads + shape->kv_heads);
        memcpy(from, to, (size_t)qk_width * pass->model->ops->type_bytes);
        pass->model->ops->norm(to, from, NULL, stats, &q);
        pass->model->ops->norm(element_at(pass, to, shape->q_width),
                               element_at(pass, from, shape->q_width), NULL,
                               stats + 2 * shape->heads, &k);
    }
}

static void append_to_cache(const struct tw_pass *pass, uint32_t layer, uint32_t first,
                            uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const size_t wide = 2 * (size_t)shape->kv_width;
    const size_t begin = (size_t)layer * shape->context + position_first(pass) + first;
    for (size_t r = 0; r < rows; r++) {
        memcpy(element_at(pass, pass->batch->cache->kv, (begin + r) * wide),
               element_at(pass, slot->qkv, (first + r) * shape->qkv_width + shape->q_width),
               wide * pass->model->ops->type_bytes);
    }
}

/* Computes norm1, q | k | v, QK-norm and rotation. The output of the previous layer is first added
 * to the residual stream, unless the layer is recomputed. */
static void attend_in(const struct tw_pass *pass, uint32_t layer, uint32_t block, uint32_t thread,
                      bool is_again) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const uint32_t first = block * TW_MATMUL_ROWS, rows = rows_of(pass->rows, block);
    const size_t at = (size_t)first * shape->width;
    const struct tw_norm norm = norm_of(pass, &weights->norm1, rows);
    const bool is_added = layer > 0 && !is_again;
    void *y = scratch_of(pass, thread);
    void *qkv = element_at(pass, slot->qkv, (size_t)first * shape->qkv_width);
    model->ops->norm(y, element_at(pass, model->x[layer], at),
                     is_added ? element_at(pass, slot_of(pass, layer - 1)->middle, at) : NULL,
                     slot->stats1 + 2 * (size_t)first, &norm);
    lap(pass, thread, TW_PROFILE_NORM);
    tw_linear_forward(pass, &weights->qkv, qkv, y, rows, thread);
    if (shape->has_qk_norm) norm_heads(pass, weights, slot, first, rows);
    lap(pass, thread, TW_PROFILE_NORM);
    if (shape->has_rope) rotate(pass, qkv, first, rows, false);
    lap(pass, thread, TW_PROFILE_ROTATION);
    if (pass->batch->cache != NULL) append_to_cache(pass, layer, first, rows);
}

/* ---- feed-forward ---------------------------------------------------------------------------- */

/* Computes y (rows, ffn) = activation(up (rows, up_width)). */
static void activate(const struct tw_pass *pass, void *y, void *up, uint32_t rows) {
    const struct tw_model_shape *shape = &pass->model->shape;
    if (shape->is_gated) {
        pass->model->ops->swiglu(y, up, rows, shape->ffn);
    } else {
        pass->model->ops->gelu(y, up, (size_t)rows * shape->ffn);
    }
}

/* Applies output matrix, norm2, up, activation and down. The next norm adds the result to the
 * residual stream. When the layer is recomputed, this function stops before the activation. */
static void feed_forward(const struct tw_pass *pass, uint32_t layer, uint32_t block,
                         uint32_t thread, bool is_again) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const uint32_t first = block * TW_MATMUL_ROWS, rows = rows_of(pass->rows, block);
    const size_t at = (size_t)first * shape->width;
    const struct tw_norm norm = norm_of(pass, &weights->norm2, rows);
    void *y = scratch_of(pass, thread);
    void *middle = element_at(pass, slot->middle, at);
    void *up = element_at(pass, slot->up, (size_t)first * shape->up_width);
    tw_linear_forward(pass, &weights->out, middle,
                      element_at(pass, slot->attention, (size_t)first * shape->q_width), rows,
                      thread);
    model->ops->norm(y, middle, element_at(pass, model->x[layer], at),
                     slot->stats2 + 2 * (size_t)first, &norm);
    lap(pass, thread, TW_PROFILE_NORM);
    tw_linear_forward(pass, &weights->up, up, y, rows, thread);
    if (is_again) return;
    activate(pass, y, up, rows);
    lap(pass, thread, TW_PROFILE_ACTIVATION);
    tw_linear_forward(pass, &weights->down, element_at(pass, model->x[layer + 1], at), y, rows,
                      thread);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void embed(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const struct tw_embedding in = {
        .row_first = block * TW_MATMUL_ROWS,
        .rows = rows_of(pass->rows, block),
        .context = pass->batch->context,
        .width = model->shape.width,
        .position_first = position_first(pass),
        .tokens = pass->batch->tokens,
        .token_stride = pass->batch->stride,
    };
    model->ops->embedding(element_at(pass, model->x[0], (size_t)in.row_first * in.width),
                          param_at(pass, model->tokens), param_at(pass, model->positions), &in);
}

static void last_norm(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const uint32_t layers = model->shape.layers;
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * model->shape.width;
    const struct tw_norm norm = norm_of(pass, &model->norm_f, rows_of(pass->rows, block));
    model->ops->norm(element_at(pass, model->norm, at), element_at(pass, model->x[layers], at),
                     element_at(pass, slot_of(pass, layers - 1)->middle, at),
                     model->stats_f + 2 * first, &norm);
}

/* Copies the weights that rows_piece of this layer multiplies with. */
static void copy_forward(const struct tw_pass *pass, uint32_t layer) {
    struct tw_task tasks[TW_TASKS_MAX];
    uint32_t count = 0;
    if (layer > 0) {
        const struct tw_model_layer *below = &pass->model->layers[layer - 1];
        tw_linear_copy(pass, &below->out.forward, tasks, &count);
        tw_linear_copy(pass, &below->up.forward, tasks, &count);
        tw_linear_copy(pass, &below->down.forward, tasks, &count);
    }
    if (layer < pass->model->shape.layers)
        tw_linear_copy(pass, &pass->model->layers[layer].qkv.forward, tasks, &count);
    run_tasks(tasks, count);
}

/* Computes everything between the attention of one layer and the attention of the next. */
static void rows_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const uint32_t layer = task->layer;
    if (layer == 0) {
        embed(task->pass, block);
        lap(task->pass, thread, TW_PROFILE_EMBEDDING);
    } else {
        feed_forward(task->pass, layer - 1, block, thread, false);
    }
    if (layer < task->pass->model->shape.layers) {
        attend_in(task->pass, layer, block, thread, false);
    } else {
        last_norm(task->pass, block);
        lap(task->pass, thread, TW_PROFILE_NORM);
    }
}

void tw_model_forward(struct tw_model *model, const struct tw_model_batch *batch) {
    const struct tw_pass pass = pass_of(model, batch, NULL);
    if (batch->cache != NULL) {
        TW_ASSERT(batch->sequences == 1);
        TW_ASSERT(batch->cache->used + batch->context <= model->shape.context);
    }
    for (uint32_t layer = 0; layer <= model->shape.layers; layer++) {
        const struct tw_task rows = {
            .work = rows_piece, .pieces = blocks_of(pass.rows), .pass = &pass, .layer = layer};
        copy_forward(&pass, layer);
        run_tasks(&rows, 1);
        if (layer == model->shape.layers) break;
        const struct tw_task attention = attention_task(&pass, layer);
        run_tasks(&attention, 1);
    }
    if (batch->cache != NULL) batch->cache->used += batch->context;
}

/* ---- head ------------------------------------------------------------------------------------ */

enum {
    LOSS_ROWS = 16,     /* rows of logits per piece */
    HEAD_PANELS_MIN = 8 /* panels of a vocabulary that is split by columns */
};

/* Returns whether the logits are split by columns: all rows and one panel of a large vocabulary are
 * a faster product than few rows and all columns. Packed weights are multiplied whole. */
static bool is_split_by_columns(const struct tw_model *model) {
    const struct tw_weight *weight = &model->head.forward;
    return weight->packed == NULL && tw_weight_panels(weight) >= HEAD_PANELS_MIN;
}

static void logits_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const struct tw_weight *weight = &model->head.forward;
    const bool is_split = is_split_by_columns(model);
    const size_t first = is_split ? 0 : (size_t)piece * TW_MATMUL_ROWS;
    const uint32_t panel = is_split ? piece : 0,
                   end = is_split ? piece + 1 : tw_weight_panels(weight);
    const struct tw_weight_product product = {.rows = is_split ? task->rows
                                                               : rows_of(task->rows, piece),
                                              .panel_first = panel,
                                              .panels = end - panel,
                                              .y_type = TW_F32,
                                              .is_padded = !is_split,
                                              .y_stride = model->logits_stride};
    const uint32_t columns = tw_weight_column(weight, end) - tw_weight_column(weight, panel);
    const size_t at = (task->row_first + first) * model->shape.width;
    tw_multiply_weight(model->multipliers[thread], model->logits + first * model->logits_stride,
                       element_at(pass, model->norm, at), weight, &product);
    lap_product(pass, thread, &model->head, TW_PROFILE_FORWARD,
                (size_t)product.rows * columns * weight->k);
}

/* Computes dnorm = dlogits * head. */
static void dnorm_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const size_t first = (size_t)block * TW_MATMUL_ROWS;
    const struct tw_weight_product product = {.rows = rows_of(task->rows, block),
                                              .y_type = model->ops->type,
                                              .is_padded = true,
                                              .a_stride = model->logits_stride};
    tw_multiply_weight(
        model->multipliers[thread],
        element_at(pass, model->dnorm, (task->row_first + first) * model->shape.width),
        element_at(pass, model->dlogits, first * model->logits_stride), &model->head.backward,
        &product);
    lap_product(pass, thread, &model->head, TW_PROFILE_DX,
                (size_t)product.rows * model->head.in * model->head.out);
}

static void loss_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const uint32_t first = piece * LOSS_ROWS;
    const struct tw_cross_entropy cfg = {
        .rows = task->rows - first < LOSS_ROWS ? task->rows - first : LOSS_ROWS,
        .vocab = model->shape.vocab,
        .logits_stride = model->logits_stride,
        .dlogits_stride = model->logits_stride,
        .scale = pass->learn == NULL ? 0.0f : pass->learn->scale,
        .z_loss = pass->learn == NULL ? 0.0f : pass->learn->z_loss,
    };
    const size_t at = (size_t)first * model->logits_stride;
    void *dlogits = pass->learn == NULL ? NULL : element_at(pass, model->dlogits, at);
    model->losses[piece] = model->ops->cross_entropy(
        dlogits, model->logits + at, model->targets + task->row_first + first, &cfg);
    lap(pass, thread, TW_PROFILE_CROSS_ENTROPY);
}

static void gather_targets(const struct tw_pass *pass) {
    const struct tw_model_batch *batch = pass->batch;
    TW_ASSERT(batch->stride > batch->context);
    for (uint32_t b = 0; b < batch->sequences; b++) {
        memcpy(pass->model->targets + (size_t)b * batch->context,
               batch->tokens + (size_t)b * batch->stride + 1,
               batch->context * sizeof(*batch->tokens));
    }
}

static struct tw_task logits_task(const struct tw_pass *pass, uint32_t first, uint32_t rows) {
    const struct tw_model *model = pass->model;
    return (struct tw_task){.work = logits_piece,
                            .pieces = is_split_by_columns(model)
                                          ? tw_weight_panels(&model->head.forward)
                                          : blocks_of(rows),
                            .pass = pass,
                            .row_first = first,
                            .rows = rows};
}

static double run_chunk(const struct tw_pass *pass, uint32_t first, uint32_t rows) {
    const struct tw_model *model = pass->model;
    struct tw_task tasks[2] = {logits_task(pass, first, rows)};
    run_tasks(tasks, 1);
    tasks[0].work = loss_piece;
    tasks[0].pieces = (rows + LOSS_ROWS - 1) / LOSS_ROWS;
    run_tasks(tasks, 1);
    double loss = 0.0;
    for (uint32_t i = 0; i < tasks[0].pieces; i++) loss += model->losses[i];
    if (pass->learn == NULL) return loss;
    tasks[1] = tw_linear_gradient(pass, &model->head,
                                  element_at(pass, model->norm, (size_t)first * model->shape.width),
                                  model->dlogits);
    tasks[1].dy_stride = model->logits_stride;
    tasks[1].row_first = first;
    tasks[1].rows = rows;
    tasks[0].work = dnorm_piece;
    tasks[0].pieces = blocks_of(rows);
    run_tasks(tasks, 2);
    return loss;
}

static double run_head(const struct tw_pass *pass) {
    double loss = 0.0;
    gather_targets(pass);
    for (uint32_t first = 0; first < pass->rows; first += pass->model->head_rows) {
        const uint32_t left = pass->rows - first;
        loss +=
            run_chunk(pass, first, left < pass->model->head_rows ? left : pass->model->head_rows);
    }
    return loss;
}

double tw_model_loss(struct tw_model *model, const struct tw_model_batch *batch) {
    const struct tw_pass pass = pass_of(model, batch, NULL);
    return run_head(&pass);
}

void tw_model_logits(struct tw_model *model, uint32_t first, uint32_t count, float *logits) {
    const struct tw_pass pass = {.model = model};
    const size_t vocab = model->shape.vocab;
    for (uint32_t done = 0; done < count;) {
        const uint32_t left = count - done;
        const uint32_t rows = left < model->head_rows ? left : model->head_rows;
        const struct tw_task task = logits_task(&pass, first + done, rows);
        run_tasks(&task, 1);
        for (size_t r = 0; r < rows; r++) {
            memcpy(logits + (done + r) * vocab, model->logits + r * model->logits_stride,
                   vocab * sizeof(*logits));
        }
        done += rows;
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

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

/* ---- one block of rows ----------------------------------------------------------------------- */

/* The gradient of the residual stream before layer l is in dx[l % 2]. */
static void *stream(const struct tw_pass *pass, uint32_t layer, size_t first) {
    return element_at(pass, pass->model->dx[layer % 2], first * pass->model->shape.width);
}

static void last_norm_block(const struct tw_pass *pass, uint32_t block) {
    const struct tw_model *model = pass->model;
    const uint32_t layers = model->shape.layers, rows = rows_of(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * model->shape.width;
    const struct tw_norm norm = norm_of(pass, &model->norm_f, rows);
    float *partial = clear_partial(pass, 0, block);
    void *dx = stream(pass, layers, first);
    memset(dx, 0, (size_t)rows * model->shape.width * model->ops->type_bytes);
    model->ops->norm_backward(dx, partial, norm.bias == NULL ? NULL : partial + norm.width,
                              element_at(pass, model->dnorm, at),
                              element_at(pass, model->x[layers], at), model->stats_f + 2 * first,
                              &norm);
}

/* Computes the gradient of q and k before QK-norm, in place. Adds the gradients of q_norm and
 * k_norm to `partial`. */
static void heads_block(const struct tw_pass *pass, uint32_t layer, size_t first, uint32_t rows,
                        float *partial) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const uint32_t qk_width = shape->q_width + shape->kv_width;
    const size_t bytes = (size_t)qk_width * model->ops->type_bytes;
    const struct tw_norm q = {.is_rms = true,
                              .rows = shape->heads,
                              .width = shape->head_size,
                              .eps = shape->eps,
                              .weight = param_at(pass, model->layers[layer].q_norm.weight)};
    struct tw_norm k = q;
    k.rows = shape->kv_heads;
    k.weight = param_at(pass, model->layers[layer].k_norm.weight);
    for (size_t r = first; r < first + rows; r++) {
        void *dx = element_at(pass, model->dqkv[layer % 2], r * shape->qkv_width);
        void *dy = element_at(pass, model->dqk, r * qk_width);
        void *x = element_at(pass, slot->qk, r * qk_width);
        const float *stats = slot->qk_stats + r * 2 * (shape->heads + shape->kv_heads);
        memcpy(dy, dx, bytes);
        memset(dx, 0, bytes);
        model->ops->norm_backward(dx, partial, NULL, dy, x, stats, &q);
        model->ops->norm_backward(element_at(pass, dx, shape->q_width), partial + shape->head_size,
                                  NULL, element_at(pass, dy, shape->q_width),
                                  element_at(pass, x, shape->q_width), stats + 2 * shape->heads,
                                  &k);
    }
}

/* Turns the gradient of q | k | v into the gradient of the layer's input, and adds it to the
 * gradient of the residual stream. */
static void attend_in_block(const struct tw_pass *pass, uint32_t layer, uint32_t block,
                            uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_model_shape *shape = &model->shape;
    const struct tw_model_layer *weights = &model->layers[layer];
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const uint32_t rows = rows_of(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * shape->width;
    const struct tw_norm norm = norm_of(pass, &weights->norm1, rows);
    float *partial = clear_partial(pass, 0, block);
    void *dqkv = element_at(pass, model->dqkv[layer % 2], first * shape->qkv_width);
    void *dy = scratch_of(pass, thread), *x = element_at(pass, model->x[layer], at);
    if (shape->has_rope) rotate(pass, dqkv, (uint32_t)first, rows, true);
    lap(pass, thread, TW_PROFILE_ROTATION);
    if (shape->has_qk_norm) heads_block(pass, layer, first, rows, partial + 2 * shape->width);
    lap(pass, thread, TW_PROFILE_NORM_BACKWARD);
    tw_linear_backward(pass, &weights->qkv, dy, dqkv, rows, thread);
    model->ops->norm(element_at(pass, model->norm1, at), x, NULL, NULL, &norm);
    lap(pass, thread, TW_PROFILE_NORM);
    model->ops->norm_backward(stream(pass, layer, first), partial,
                              norm.bias == NULL ? NULL : partial + shape->width, dy, x,
                              slot->stats1 + 2 * first, &norm);
    lap(pass, thread, TW_PROFILE_NORM_BACKWARD);
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
    const struct tw_model_slot *slot = slot_of(pass, layer);
    const uint32_t rows = rows_of(pass->rows, block);
    const size_t first = (size_t)block * TW_MATMUL_ROWS, at = first * shape->width;
    const struct tw_norm norm = norm_of(pass, &weights->norm2, rows);
    float *partial = clear_partial(pass, 1, block);
    void *up = element_at(pass, slot->up, first * shape->up_width);
    void *dup = element_at(pass, model->dup, first * shape->up_width);
    void *act = element_at(pass, model->act, first * shape->ffn);
    void *middle = element_at(pass, slot->middle, at);
    void *dy = stream(pass, layer + 1, first), *dx = stream(pass, layer, first);
    void *scratch = scratch_of(pass, thread);

    tw_linear_backward(pass, &weights->down, shape->is_gated ? scratch : dup, dy, rows, thread);
    if (shape->is_gated) {
        ops->swiglu(act, up, rows, shape->ffn);
        ops->swiglu_backward(dup, scratch, up, rows, shape->ffn);
    } else {
        ops->gelu_backward(dup, act, up, (size_t)rows * shape->ffn);
    }
    lap(pass, thread, TW_PROFILE_ACTIVATION_BACKWARD);
    tw_linear_backward(pass, &weights->up, scratch, dup, rows, thread);
    ops->norm(element_at(pass, model->norm2, at), middle, NULL, NULL, &norm);
    lap(pass, thread, TW_PROFILE_NORM);
    memcpy(dx, dy, (size_t)rows * shape->width * ops->type_bytes);
    lap(pass, thread, TW_PROFILE_COPY);
    ops->norm_backward(dx, partial, norm.bias == NULL ? NULL : partial + shape->width, scratch,
                       middle, slot->stats2 + 2 * first, &norm);
    lap(pass, thread, TW_PROFILE_NORM_BACKWARD);
    tw_linear_backward(pass, &weights->out,
                       element_at(pass, model->dattention, first * shape->q_width), dx, rows,
                       thread);
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Called when the backward pass of attention is done for layer task->layer + 1. Above the last
 * layer, there is only the last norm. With recompute, the block first repeats the forward work of
 * task->layer up to q | k | v. Otherwise it continues backward through the feed-forward of that
 * layer. */
static void rows_backward_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const uint32_t above = task->layer + 1;
    if (above == pass->model->shape.layers) {
        last_norm_block(pass, block);
        lap(pass, thread, TW_PROFILE_NORM_BACKWARD);
    } else {
        attend_in_block(pass, above, block, thread);
    }
    if (task->is_again) attend_in(pass, task->layer, block, thread, true);
    if (task->is_backward) feed_block(pass, task->layer, block, thread);
}

static void feed_again_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    feed_forward(task->pass, task->layer, block, thread, true);
    feed_block(task->pass, task->layer, block, thread);
}

/* Adds the partial sums of all blocks to gradient (n), in order of blocks. */
static void add_partials(const struct tw_pass *pass, uint64_t offset, uint32_t which, size_t at,
                         uint32_t n) {
    if (offset == TW_MODEL_NONE) return;
    float *gradient = gradient_at(pass, offset);
    for (uint32_t block = 0; block < blocks_of(pass->rows); block++) {
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
    add_partials(pass, norm->weight, piece, 0, shape->width);
    add_partials(pass, norm->bias, piece, shape->width, shape->width);
    if (piece == 0 && above < shape->layers && shape->has_qk_norm) {
        const size_t at = 2 * (size_t)shape->width;
        add_partials(pass, model->layers[above].q_norm.weight, 0, at, shape->head_size);
        add_partials(pass, model->layers[above].k_norm.weight, 0, at + shape->head_size,
                     shape->head_size);
    }
    lap(pass, thread, TW_PROFILE_NORM_BACKWARD);
}

/* Lists tasks: the attention of the layer, and the weight and norm gradients whose inputs are
 * ready. `layer` is UINT32_MAX below the first layer. Returns the number of tasks. */
static uint32_t list_tasks(const struct tw_pass *pass, uint32_t layer, struct tw_task *tasks) {
    const struct tw_model *model = pass->model;
    const uint32_t above = layer + 1;
    uint32_t count = 0;
    if (layer != UINT32_MAX) {
        const struct tw_model_layer *weights = &model->layers[layer];
        tasks[count++] = attention_backward_task(pass, layer);
        tasks[count++] = tw_linear_gradient(pass, &weights->down, model->act, model->dx[above % 2]);
        tasks[count++] = tw_linear_gradient(pass, &weights->up, model->norm2, model->dup);
        tasks[count++] = tw_linear_gradient(pass, &weights->out, slot_of(pass, layer)->attention,
                                            model->dx[layer % 2]);
    }
    if (above < model->shape.layers) {
        tasks[count++] = tw_linear_gradient(pass, &model->layers[above].qkv, model->norm1,
                                            model->dqkv[above % 2]);
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
    model->ops->embedding_backward(gradient_at(pass, model->tokens),
                                   gradient_at(pass, model->positions), model->dx[0], &in);
    lap(pass, thread, TW_PROFILE_EMBEDDING);
}

/* Copies the weights that the phases of blocks of rows of layer_backward multiply with. `layer` is
 * UINT32_MAX below the first layer. */
static void copy_backward(const struct tw_pass *pass, uint32_t layer) {
    const struct tw_model *model = pass->model;
    const uint32_t above = layer + 1;
    struct tw_task tasks[TW_TASKS_MAX];
    uint32_t count = 0;
    if (above < model->shape.layers)
        tw_linear_copy(pass, &model->layers[above].qkv.backward, tasks, &count);
    if (layer != UINT32_MAX) {
        const struct tw_model_layer *weights = &model->layers[layer];
        tw_linear_copy(pass, &weights->down.backward, tasks, &count);
        tw_linear_copy(pass, &weights->up.backward, tasks, &count);
        tw_linear_copy(pass, &weights->out.backward, tasks, &count);
        if (model->config.is_recomputed) {
            tw_linear_copy(pass, &weights->qkv.forward, tasks, &count);
            tw_linear_copy(pass, &weights->out.forward, tasks, &count);
            tw_linear_copy(pass, &weights->up.forward, tasks, &count);
        }
    }
    run_tasks(tasks, count);
}

static void layer_backward(const struct tw_pass *pass, uint32_t layer) {
    const bool is_again = pass->model->config.is_recomputed;
    struct tw_task tasks[TW_TASKS_MAX];
    struct tw_task rows = {.work = rows_backward_piece,
                           .pieces = blocks_of(pass->rows),
                           .pass = pass,
                           .layer = layer,
                           .is_again = is_again,
                           .is_backward = !is_again};
    copy_backward(pass, layer);
    run_tasks(&rows, 1);
    if (is_again) {
        tasks[0] = attention_task(pass, layer);
        run_tasks(tasks, 1);
        rows.work = feed_again_piece;
        run_tasks(&rows, 1);
    }
    run_tasks(tasks, list_tasks(pass, layer, tasks));
}

double tw_model_backward(struct tw_model *model, const struct tw_model_batch *batch,
                         const struct tw_model_learn *learn) {
    const struct tw_pass pass = pass_of(model, batch, learn);
    struct tw_task tasks[TW_TASKS_MAX];
    TW_ASSERT(model->config.is_learning);
    const double loss = run_head(&pass);
    for (uint32_t layer = model->shape.layers; layer-- > 0;) layer_backward(&pass, layer);
    const struct tw_task rows = {.work = rows_backward_piece,
                                 .pieces = blocks_of(pass.rows),
                                 .pass = &pass,
                                 .layer = UINT32_MAX};
    copy_backward(&pass, UINT32_MAX);
    run_tasks(&rows, 1);
    uint32_t count = list_tasks(&pass, UINT32_MAX, tasks);
    tasks[count++] =
        (struct tw_task){.work = embedding_piece,
                         .pieces = (model->shape.width + EMBEDDING_COLUMNS - 1) / EMBEDDING_COLUMNS,
                         .pass = &pass};
    run_tasks(tasks, count);
    return loss;
}
