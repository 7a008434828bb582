/* model_attention.c - attention in both passes. A piece is one key/value head of one sequence; in a
 * masked batch it handles the sequence's documents one by one. */
#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"

static struct tw_attention shape_of(const struct tw_pass *pass) {
    const struct tw_model_shape *shape = &pass->model->shape;
    const bool is_cached = pass->batch->cache != NULL;
    return (struct tw_attention){
        .queries = pass->batch->context,
        .keys = pass->batch->context + tw_position_first(pass),
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
    const struct tw_model_slot *slot = tw_slot(pass, task->layer);
    const size_t row = (size_t)sequence * pass->batch->context;
    const size_t q = (size_t)head * shape->group * shape->head_size;
    const size_t kv = (size_t)head * shape->head_size;
    void *queries = tw_at(pass, slot->qkv, row * shape->qkv_width);
    void *keys = tw_at(pass, queries, shape->q_width + kv);
    if (pass->batch->cache != NULL) {
        keys = tw_at(pass, pass->batch->cache->kv,
                     (size_t)task->layer * shape->context * 2 * shape->kv_width + kv);
    }
    return (struct tw_attention_arrays){
        .q = tw_at(pass, queries, q),
        .k = keys,
        .v = tw_at(pass, keys, shape->kv_width),
        .out = tw_at(pass, slot->attention, row * shape->q_width + q),
        .lse = slot->lse + row * shape->heads + (size_t)head * shape->group * pass->batch->context,
        .scratch = tw_scratch(pass, thread),
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
    void *dqkv = tw_at(pass, model->dqkv[task->layer % 2], row * shape->qkv_width);
    arrays->dout = tw_at(pass, model->dattention, row * shape->q_width + q);
    arrays->dq = tw_at(pass, dqkv, q);
    arrays->dk = tw_at(pass, dqkv, kv);
    arrays->dv = tw_at(pass, dqkv, kv + shape->kv_width);
}

/* Returns the row after the last row of the document that begins at row `begin`. */
static uint32_t document_end(const struct tw_model_batch *batch, uint32_t sequence,
                             uint32_t begin) {
    const uint32_t *tokens = batch->tokens + (size_t)sequence * batch->stride;
    uint32_t end = begin + 1;
    while (end < batch->context && tokens[end] != batch->separator) end++;
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
}

static void backward_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const uint32_t heads = task->pass->model->shape.kv_heads;
    const uint32_t sequence = piece / heads, head = piece % heads;
    struct tw_attention_arrays window = arrays_of(task, sequence, head, thread);
    add_gradients(&window, task, sequence, head);
    attend(task->pass, sequence, task->pass->model->ops->attention_backward, &window);
}

struct tw_task tw_attention_task(const struct tw_pass *pass, uint32_t layer) {
    return (struct tw_task){.work = forward_piece,
                            .pieces = pass->batch->sequences * pass->model->shape.kv_heads,
                            .pass = pass,
                            .layer = layer};
}

struct tw_task tw_attention_backward_task(const struct tw_pass *pass, uint32_t layer) {
    struct tw_task task = tw_attention_task(pass, layer);
    task.work = backward_piece;
    return task;
}
