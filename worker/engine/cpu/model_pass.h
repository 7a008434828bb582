/* model_pass.h - phases of a pass as lists of tasks, split into pieces for the thread pool. Private
 * to model_*.c. */
#ifndef TW_WORKER_ENGINE_CPU_MODEL_PASS_H
#define TW_WORKER_ENGINE_CPU_MODEL_PASS_H

#include "worker/engine/model.h"

/* State shared by all tasks of a pass. */
struct tw_pass {
    struct tw_model *model;
    const struct tw_model_batch *batch;
    const struct tw_model_learn *learn; /* NULL in a forward pass */
    uint32_t rows;
};

/* Pieces of one kind within a phase. Each work function uses only some of the members. */
struct tw_task {
    void (*work)(const struct tw_task *task, uint32_t piece, uint32_t thread);
    uint32_t pieces;
    const struct tw_pass *pass;
    uint32_t layer;                       /* layer worked on */
    bool is_again;                        /* forward work repeated in the backward pass */
    bool is_backward;                     /* also computes gradients of the layer's second half */
    const struct tw_model_linear *linear; /* map whose weight gradient is computed, from x (rows,
                                             in) and dy (rows, out) */
    const void *x, *dy;
    size_t dy_stride;
    uint32_t row_first, rows; /* chunk of the pass's rows, for the head */
};

enum { TW_TASKS_MAX = 8 };

/* Runs all pieces of all tasks concurrently on the thread pool. */
void tw_tasks_run(const struct tw_task *tasks, uint32_t count);

/* Returns the number of blocks of TW_MATMUL_ROWS rows. */
static inline uint32_t tw_blocks(uint32_t rows) {
    return (rows + TW_MATMUL_ROWS - 1) / TW_MATMUL_ROWS;
}

static inline uint32_t tw_block_rows(uint32_t rows, uint32_t block) {
    const uint32_t left = rows - block * TW_MATMUL_ROWS;
    return left < TW_MATMUL_ROWS ? left : TW_MATMUL_ROWS;
}

/* Returns the address of element `at` in an array of activations. */
static inline void *tw_at(const struct tw_pass *pass, const void *base, size_t at) {
    return (uint8_t *)(uintptr_t)base + at * pass->model->ops->type_bytes;
}

/* Returns the position of the batch's first token. */
static inline uint32_t tw_position_first(const struct tw_pass *pass) {
    return pass->batch->cache == NULL ? 0 : pass->batch->cache->used;
}

static inline struct tw_model_slot *tw_slot(const struct tw_pass *pass, uint32_t layer) {
    return &pass->model->slots[layer % pass->model->slots_count];
}

static inline void *tw_scratch(const struct tw_pass *pass, uint32_t thread) {
    return (uint8_t *)pass->model->scratch + thread * pass->model->scratch_bytes;
}

/* Returns a parameter tensor, or NULL for TW_MODEL_NONE. */
static inline const float *tw_param(const struct tw_pass *pass, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : pass->model->params + offset;
}

static inline float *tw_grad(const struct tw_pass *pass, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : pass->learn->gradient + offset;
}

struct tw_norm tw_norm_of(const struct tw_pass *pass, const struct tw_model_norm *norm,
                          uint32_t rows);

/* Computes y (rows, out) = x * W + bias in the calling thread. */
void tw_linear(const struct tw_pass *pass, const struct tw_model_linear *linear, void *y,
               const void *x, uint32_t rows, uint32_t thread);
/* Computes dx (rows, in) = dy * W^T in the calling thread. */
void tw_linear_dx(const struct tw_pass *pass, const struct tw_model_linear *linear, void *dx,
                  const void *dy, uint32_t rows, uint32_t thread);
/* Returns the task that computes the gradients of linear's weight and bias from x and dy. The task
 * adds to the gradient, or overwrites it in the first pass. */
struct tw_task tw_linear_dw(const struct tw_pass *pass, const struct tw_model_linear *linear,
                            const void *x, const void *dy);

/* Applies rotary positions to rows [first, first + rows) of the pass. Rows of x are qkv_width wide.
 */
void tw_rotate(const struct tw_pass *pass, void *x, uint32_t first, uint32_t rows, bool is_inverse);

/* Parts of a layer for one block of rows, in model_forward.c. */
void tw_attend_in(const struct tw_pass *pass, uint32_t layer, uint32_t block, uint32_t thread,
                  bool is_again);
void tw_feed(const struct tw_pass *pass, uint32_t layer, uint32_t block, uint32_t thread,
             bool is_again);
/* Computes y (rows, ffn) = activation(up (rows, up_width)). */
void tw_activate(const struct tw_pass *pass, void *y, void *up, uint32_t rows);

/* Return the tasks that run attention for every sequence and key/value head (model_attention.c). */
struct tw_task tw_attention_task(const struct tw_pass *pass, uint32_t layer);
struct tw_task tw_attention_backward_task(const struct tw_pass *pass, uint32_t layer);

/* Runs the output head (model_head.c) and returns the sum of losses. With pass->learn, also
 * computes the gradient of the last norm's output. */
double tw_head(const struct tw_pass *pass);

struct tw_pass tw_pass_of(struct tw_model *model, const struct tw_model_batch *batch,
                          const struct tw_model_learn *learn);

#endif
