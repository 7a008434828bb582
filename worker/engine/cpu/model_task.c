/* model_task.c - runs tasks on the thread pool, and implements the linear map with its gradients.
 */
#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"

/* ---- phases -------------------------------------------------------------------------------- */

struct phase {
    const struct tw_task *tasks;
    uint32_t count;
};

static void phase_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct phase *phase = context;
    const struct tw_task *task = phase->tasks;
    if (tw_model_is_stopped(task->pass->model)) return;
    while (piece >= task->pieces) piece -= (task++)->pieces;
    task->work(task, piece, thread);
}

void tw_tasks_run(const struct tw_task *tasks, uint32_t count) {
    struct phase phase = {tasks, count};
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < count; i++) pieces += tasks[i].pieces;
    if (pieces > 0) tw_thread_pool_run(tasks[0].pass->model->team, pieces, phase_piece, &phase);
}

/* ---- linear -------------------------------------------------------------------------------- */

void tw_linear(const struct tw_pass *pass, const struct tw_model_linear *linear, void *y,
               const void *x, uint32_t rows, uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_weight_product product = {.rows = rows, .y_type = model->ops->type};
    tw_multiply_weight(model->multipliers[thread], y, x, &linear->forward, &product);
    if (linear->bias != TW_MODEL_NONE)
        model->ops->bias(y, tw_param(pass, linear->bias), rows, linear->out);
}

void tw_linear_dx(const struct tw_pass *pass, const struct tw_model_linear *linear, void *dx,
                  const void *dy, uint32_t rows, uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_weight_product product = {.rows = rows, .y_type = model->ops->type};
    tw_multiply_weight(model->multipliers[thread], dx, dy, &linear->backward, &product);
}

static uint32_t tiles(uint32_t size, uint32_t tile) {
    return (size + tile - 1) / tile;
}

static uint32_t tile_size(uint32_t size, uint32_t tile, uint32_t i) {
    return size - i * tile < tile ? size - i * tile : tile;
}

/* Computes tile (i, j) of the weight gradient, in the weight's own orientation: NN (in, out) = x^T
 * * dy, NT (out, in) = dy^T * x. The first tile along `in` also sums the bias gradient over its
 * columns of dy. */
static void weight_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model_linear *linear = task->linear;
    const bool is_nn = linear->form == TW_MATMUL_NN;
    const size_t dy_stride = task->dy_stride != 0 ? task->dy_stride : linear->out;
    const uint32_t rows = is_nn ? linear->in : linear->out;
    const uint32_t cols = is_nn ? linear->out : linear->in;
    const uint32_t across = tiles(cols, TW_MATMUL_TILE_N);
    const uint32_t i = piece / across, j = piece % across;
    const size_t row = (size_t)i * TW_MATMUL_TILE_M, col = (size_t)j * TW_MATMUL_TILE_N;
    const struct tw_matmul shape = {
        .m = tile_size(rows, TW_MATMUL_TILE_M, i),
        .k = task->rows,
        .n = tile_size(cols, TW_MATMUL_TILE_N, j),
        .form = TW_MATMUL_TN,
        .type = pass->model->ops->type,
        .y_type = TW_F32,
        .is_added = !pass->learn->is_first || task->row_first > 0,
        .a_stride = is_nn ? linear->in : dy_stride,
        .b_stride = is_nn ? dy_stride : linear->in,
        .y_stride = cols,
    };
    tw_multiply(pass->model->multipliers[thread], tw_grad(pass, linear->weight) + row * cols + col,
                tw_at(pass, is_nn ? task->x : task->dy, row),
                tw_at(pass, is_nn ? task->dy : task->x, col), &shape);
    const bool is_bias_tile = is_nn ? i == 0 : j == 0;
    if (linear->bias == TW_MODEL_NONE || !is_bias_tile) return;
    const size_t at = is_nn ? col : row;
    pass->model->ops->bias_backward(tw_grad(pass, linear->bias) + at, tw_at(pass, task->dy, at),
                                    dy_stride, task->rows, is_nn ? shape.n : shape.m);
}

struct tw_task tw_linear_dw(const struct tw_pass *pass, const struct tw_model_linear *linear,
                            const void *x, const void *dy) {
    const bool is_nn = linear->form == TW_MATMUL_NN;
    const uint32_t rows = is_nn ? linear->in : linear->out;
    const uint32_t cols = is_nn ? linear->out : linear->in;
    return (struct tw_task){
        .work = weight_piece,
        .pieces = tiles(rows, TW_MATMUL_TILE_M) * tiles(cols, TW_MATMUL_TILE_N),
        .pass = pass,
        .linear = linear,
        .x = x,
        .dy = dy,
        .rows = pass->rows,
    };
}
