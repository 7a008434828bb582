/* model_head.c - output head and cross-entropy, in chunks of rows, so that the logits of a whole
 * pass are never in memory at once. */
#include <string.h>

#include "base/assert.h"
#include "worker/engine/cpu/model_pass.h"

enum { LOSS_ROWS = 16 }; /* rows of logits per piece */

static void logits_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const size_t first = (size_t)block * TW_MATMUL_ROWS;
    const struct tw_weight_product product = {.rows = tw_block_rows(task->rows, block),
                                              .y_type = TW_F32,
                                              .is_padded = true,
                                              .y_stride = model->logits_stride};
    tw_multiply_weight(model->multipliers[thread], model->logits + first * model->logits_stride,
                       tw_at(pass, model->norm, (task->row_first + first) * model->shape.width),
                       &model->head.forward, &product);
}

/* Computes dnorm = dlogits * head. */
static void dnorm_piece(const struct tw_task *task, uint32_t block, uint32_t thread) {
    const struct tw_pass *pass = task->pass;
    const struct tw_model *model = pass->model;
    const size_t first = (size_t)block * TW_MATMUL_ROWS;
    const struct tw_weight_product product = {.rows = tw_block_rows(task->rows, block),
                                              .y_type = model->ops->type,
                                              .is_padded = true,
                                              .a_stride = model->logits_stride};
    tw_multiply_weight(model->multipliers[thread],
                       tw_at(pass, model->dnorm, (task->row_first + first) * model->shape.width),
                       tw_at(pass, model->dlogits, first * model->logits_stride),
                       &model->head.backward, &product);
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
    void *dlogits = pass->learn == NULL ? NULL : tw_at(pass, model->dlogits, at);
    (void)thread;
    model->losses[piece] = model->ops->cross_entropy(
        dlogits, model->logits + at, model->targets + task->row_first + first, &cfg);
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
    return (struct tw_task){.work = logits_piece,
                            .pieces = tw_blocks(rows),
                            .pass = pass,
                            .row_first = first,
                            .rows = rows};
}

static double run_chunk(const struct tw_pass *pass, uint32_t first, uint32_t rows) {
    const struct tw_model *model = pass->model;
    struct tw_task tasks[2] = {logits_task(pass, first, rows)};
    tw_tasks_run(tasks, 1);
    tasks[0].work = loss_piece;
    tasks[0].pieces = (rows + LOSS_ROWS - 1) / LOSS_ROWS;
    tw_tasks_run(tasks, 1);
    double loss = 0.0;
    for (uint32_t i = 0; i < tasks[0].pieces; i++) loss += model->losses[i];
    if (pass->learn == NULL) return loss;
    tasks[1] =
        tw_linear_dw(pass, &model->head,
                     tw_at(pass, model->norm, (size_t)first * model->shape.width), model->dlogits);
    tasks[1].dy_stride = model->logits_stride;
    tasks[1].row_first = first;
    tasks[1].rows = rows;
    tasks[0].work = dnorm_piece;
    tasks[0].pieces = tw_blocks(rows);
    tw_tasks_run(tasks, 2);
    return loss;
}

double tw_head(const struct tw_pass *pass) {
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
    const struct tw_pass pass = tw_pass_of(model, batch, NULL);
    return tw_head(&pass);
}

void tw_model_logits(struct tw_model *model, uint32_t first, uint32_t count, float *logits) {
    const struct tw_pass pass = {.model = model};
    const size_t vocab = model->shape.vocab;
    for (uint32_t done = 0; done < count;) {
        const uint32_t left = count - done;
        const uint32_t rows = left < model->head_rows ? left : model->head_rows;
        const struct tw_task task = logits_task(&pass, first + done, rows);
        tw_tasks_run(&task, 1);
        for (size_t r = 0; r < rows; r++) {
            memcpy(logits + (done + r) * vocab, model->logits + r * model->logits_stride,
                   vocab * sizeof(*logits));
        }
        done += rows;
    }
}
