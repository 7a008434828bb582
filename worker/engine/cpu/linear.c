/* linear.c - linear maps on the CPU: packing and copying of weights, products, gradients. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cpu/pass.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* Packs one panel of one weight, as a piece of the thread pool. */
static void pack_piece(void *context, uint32_t piece, uint32_t thread) {
    const struct tw_model *model = context;
    struct tw_weight *const *weight = model->weights;
    for (uint32_t panels = tw_weight_panels(*weight); piece >= panels;
         panels = tw_weight_panels(*weight)) {
        piece -= panels;
        weight++;
    }
    if (model->profile != NULL) tw_profile_start(model->profile, thread);
    tw_weight_pack(model->multipliers[thread], *weight, piece);
    if (model->profile != NULL) tw_profile_lap(model->profile, thread, TW_PROFILE_PACK);
}

static void set_master(struct tw_model *model, struct tw_model_linear *linear,
                       const float *params) {
    struct tw_weight *const weights[2] = {&linear->forward, &linear->backward};
    for (unsigned i = 0; i < 2; i++) {
        weights[i]->master = params + linear->weight;
        if (weights[i]->packed != NULL) model->weights[model->weights_count++] = weights[i];
    }
}

void tw_model_use(struct tw_model *model, const float *params) {
    uint32_t pieces = 0;
    model->params = params;
    model->weights_count = 0;
    for (uint32_t l = 0; l < model->shape.layers; l++) {
        struct tw_model_layer *layer = &model->layers[l];
        set_master(model, &layer->qkv, params);
        set_master(model, &layer->out, params);
        set_master(model, &layer->up, params);
        set_master(model, &layer->down, params);
    }
    set_master(model, &model->head, params);
    for (uint32_t i = 0; i < model->weights_count; i++)
        pieces += tw_weight_panels(model->weights[i]);
    if (pieces > 0) tw_thread_pool_run(model->team, pieces, pack_piece, model);
}

void tw_model_clear(const struct tw_model *model, float *gradient) {
    const struct tw_layout *layout = model->config.layout;
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &layout->tensors[i];
        if (tensor->is_hidden || tensor->offset == model->head.weight) continue;
        memset(gradient + tensor->offset, 0,
               (size_t)tensor->rows * tensor->cols * sizeof(*gradient));
    }
}

static void copy_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    tw_weight_copy(task->weight, piece);
    lap(task->pass, thread, TW_PROFILE_PACK);
}

void tw_linear_copy(const struct tw_pass *pass, const struct tw_weight *weight,
                    struct tw_task *tasks, uint32_t *count) {
    if (!pass->is_copied || weight->panels == NULL) return;
    TW_ASSERT(*count < TW_TASKS_MAX);
    tasks[(*count)++] = (struct tw_task){
        .work = copy_piece, .pieces = tw_weight_panels(weight), .pass = pass, .weight = weight};
}

/* ---- products -------------------------------------------------------------------------------- */

void tw_linear_forward(const struct tw_pass *pass, const struct tw_model_linear *linear, void *y,
                       const void *x, uint32_t rows, uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_weight_product product = {
        .rows = rows, .y_type = model->ops->type, .is_copied = pass->is_copied};
    tw_multiply_weight(model->multipliers[thread], y, x, &linear->forward, &product);
    lap_product(pass, thread, linear, TW_PROFILE_FORWARD, (size_t)rows * linear->in * linear->out);
    if (linear->bias == TW_MODEL_NONE) return;
    model->ops->bias(y, param_at(pass, linear->bias), rows, linear->out);
    lap(pass, thread, TW_PROFILE_BIAS);
}

void tw_linear_backward(const struct tw_pass *pass, const struct tw_model_linear *linear, void *dx,
                        const void *dy, uint32_t rows, uint32_t thread) {
    const struct tw_model *model = pass->model;
    const struct tw_weight_product product = {
        .rows = rows, .y_type = model->ops->type, .is_copied = pass->is_copied};
    tw_multiply_weight(model->multipliers[thread], dx, dy, &linear->backward, &product);
    lap_product(pass, thread, linear, TW_PROFILE_DX, (size_t)rows * linear->in * linear->out);
}

/* Computes one tile of the weight gradient, in the weight's own orientation: NN (in, out) = x^T
 * * dy, NT (out, in) = dy^T * x. The first tile along `in` also sums the bias gradient over its
 * columns of dy. */
static void weight_piece(const struct tw_task *task, uint32_t piece, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model_linear *linear = task->linear;
    const bool is_nn = linear->form == TW_MATMUL_NN;
    const size_t dy_stride = task->dy_stride != 0 ? task->dy_stride : linear->out;
    const uint32_t rows = is_nn ? linear->in : linear->out;
    const uint32_t cols = is_nn ? linear->out : linear->in;
    const uint32_t tile_rows = tw_matmul_tile(rows, TW_MATMUL_TILE_M);
    const uint32_t tile_cols = tw_matmul_tile(cols, TW_MATMUL_TILE_N);
    const uint32_t across = tw_matmul_tiles(cols, TW_MATMUL_TILE_N);
    const uint32_t row = piece / across * tile_rows, col = piece % across * tile_cols;
    const struct tw_matmul shape = {
        .m = rows - row < tile_rows ? rows - row : tile_rows,
        .k = task->rows,
        .n = cols - col < tile_cols ? cols - col : tile_cols,
        .form = TW_MATMUL_TN,
        .type = pass->model->ops->type,
        .y_type = TW_F32,
        .is_added = !pass->learn->is_first || task->row_first > 0,
        .a_stride = is_nn ? linear->in : dy_stride,
        .b_stride = is_nn ? dy_stride : linear->in,
        .y_stride = cols,
    };
    tw_multiply(pass->model->multipliers[thread],
                gradient_at(pass, linear->weight) + (size_t)row * cols + col,
                element_at(pass, is_nn ? task->x : task->dy, row),
                element_at(pass, is_nn ? task->dy : task->x, col), &shape);
    lap_product(pass, thread, linear, TW_PROFILE_DW, (size_t)shape.m * shape.n * shape.k);
    const bool is_bias_tile = is_nn ? row == 0 : col == 0;
    if (linear->bias == TW_MODEL_NONE || !is_bias_tile) return;
    const size_t at = is_nn ? col : row;
    pass->model->ops->bias_backward(gradient_at(pass, linear->bias) + at,
                                    element_at(pass, task->dy, at), dy_stride, task->rows,
                                    is_nn ? shape.n : shape.m);
    lap(pass, thread, TW_PROFILE_BIAS_BACKWARD);
}

struct tw_task tw_linear_gradient(const struct tw_pass *pass, const struct tw_model_linear *linear,
                                  const void *x, const void *dy) {
    const bool is_nn = linear->form == TW_MATMUL_NN;
    const uint32_t rows = is_nn ? linear->in : linear->out;
    const uint32_t cols = is_nn ? linear->out : linear->in;
    return (struct tw_task){
        .work = weight_piece,
        .pieces = tw_matmul_tiles(rows, TW_MATMUL_TILE_M) * tw_matmul_tiles(cols, TW_MATMUL_TILE_N),
        .pass = pass,
        .linear = linear,
        .x = x,
        .dy = dy,
        .rows = pass->rows,
    };
}
