/* pass.h - state, tasks and helpers that the files of this folder share. */
#ifndef TW_WORKER_ENGINE_CPU_PASS_H
#define TW_WORKER_ENGINE_CPU_PASS_H

#include "worker/engine/model.h"

/* State shared by all tasks of a pass. */
struct tw_pass {
    struct tw_model *model;
    const struct tw_model_batch *batch;
    const struct tw_model_learn *learn; /* NULL in a forward pass */
    uint32_t rows;
    bool is_copied; /* multiplies with copies of a layer's weights in panels (tw_weight_copy) */
};

/* Returns the number of blocks of TW_MATMUL_ROWS rows. */
static inline uint32_t blocks_of(uint32_t rows) {
    return (rows + TW_MATMUL_ROWS - 1) / TW_MATMUL_ROWS;
}

static inline struct tw_model_slot *slot_of(const struct tw_pass *pass, uint32_t layer) {
    return &pass->model->slots[layer % pass->model->slots_count];
}

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
    const struct tw_weight *weight; /* weight to copy */
    size_t dy_stride;
    uint32_t row_first, rows; /* chunk of the pass's rows, for the head */
};

enum { TW_TASKS_MAX = 8 };

static inline uint32_t rows_of(uint32_t rows, uint32_t block) {
    const uint32_t left = rows - block * TW_MATMUL_ROWS;
    return left < TW_MATMUL_ROWS ? left : TW_MATMUL_ROWS;
}

/* Returns the address of element `at` in an array of activations. */
static inline void *element_at(const struct tw_pass *pass, const void *base, size_t at) {
    return (uint8_t *)(uintptr_t)base + at * pass->model->ops->type_bytes;
}

/* Returns the position of the batch's first token. */
static inline uint32_t position_first(const struct tw_pass *pass) {
    return pass->batch->cache == NULL ? 0 : pass->batch->cache->used;
}

static inline void *scratch_of(const struct tw_pass *pass, uint32_t thread) {
    return (uint8_t *)pass->model->scratch + thread * pass->model->scratch_bytes;
}

/* Returns a parameter tensor, or NULL for TW_MODEL_NONE. */
static inline const float *param_at(const struct tw_pass *pass, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : pass->model->params + offset;
}

static inline float *gradient_at(const struct tw_pass *pass, uint64_t offset) {
    return offset == TW_MODEL_NONE ? NULL : pass->learn->gradient + offset;
}

/* Adds the thread's time since its last lap to one operator, if times are measured. */
static inline void lap(const struct tw_pass *pass, uint32_t thread, enum tw_profile_kind kind) {
    if (pass->model->profile != NULL) tw_profile_lap(pass->model->profile, thread, kind);
}

/* The same for a product of the linear map, with m * k * n terms. */
static inline void lap_product(const struct tw_pass *pass, uint32_t thread,
                               const struct tw_model_linear *linear,
                               enum tw_profile_product product, size_t terms) {
    if (pass->model->profile == NULL) return;
    tw_profile_lap_product(pass->model->profile, thread,
                           (enum tw_profile_kind)(linear->time + product), 2.0 * (double)terms,
                           linear->in, linear->out);
}

/* ---- linear maps (linear.c) ------------------------------------------------------------------ */

/* Computes y (rows, out) = x * W + bias in the calling thread. */
void tw_linear_forward(const struct tw_pass *pass, const struct tw_model_linear *linear, void *y,
                       const void *x, uint32_t rows, uint32_t thread);

/* Computes dx (rows, in) = dy * W^T in the calling thread. */
void tw_linear_backward(const struct tw_pass *pass, const struct tw_model_linear *linear, void *dx,
                        const void *dy, uint32_t rows, uint32_t thread);

/* Returns the task that computes the gradients of linear's weight and bias from x and dy. The task
 * adds to the gradient, or overwrites it in the first pass. */
struct tw_task tw_linear_gradient(const struct tw_pass *pass, const struct tw_model_linear *linear,
                                  const void *x, const void *dy);

/* Appends the task that copies the weight into panels, if the pass multiplies with such a copy. The
 * task must be done before the phase that multiplies. Copies of one kind of weight share memory:
 * the copy is of use until that of another layer. */
void tw_linear_copy(const struct tw_pass *pass, const struct tw_weight *weight,
                    struct tw_task *tasks, uint32_t *count);

#endif
