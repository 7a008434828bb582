/* gpu_head.c - output head and cross-entropy on a device, in chunks of rows, so that the logits of
 * a whole pass are never in memory at once.
 *
 * Logits for losses without learning and for callers are float32. The logits of a step have the
 * type of the activations, and their gradient overwrites them. */
#include "worker/engine/cuda/gpu_model.h"

void tw_gpu_logits_of(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count,
                      enum tw_type type) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_linear *head = &gpu->map.head;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = count,
                  .k = head->in,
                  .n = head->out,
                  .form = head->form,
                  .type = gpu->map.config.type,
                  .y_type = type,
                  .y_stride = gpu->arrays.logits_stride},
        .y = gpu->arrays.logits,
        .a = tw_gpu_at(gpu, gpu->arrays.norm, (size_t)first * head->in),
        .b = tw_gpu_weight(gpu, head->weight),
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

/* Computes rows [first, first + count) of the gradient of the last norm's output, and adds the
 * head's gradient, which the step's first chunk overwrites. */
static void chunk_backward(const struct tw_gpu_pass *pass, uint32_t first, uint32_t count) {
    const struct tw_gpu *gpu = pass->gpu;
    const struct tw_model_linear *head = &gpu->map.head;
    const size_t at = (size_t)first * head->in;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = count,
                  .k = head->out,
                  .n = head->in,
                  .form = TW_MATMUL_NN,
                  .type = gpu->map.config.type,
                  .y_type = gpu->map.config.type,
                  .a_stride = gpu->arrays.logits_stride},
        .y = tw_gpu_at(gpu, gpu->arrays.stream, at),
        .a = gpu->arrays.logits,
        .b = tw_gpu_weight(gpu, head->weight),
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
    const struct tw_gpu_linear_rows of = {.x = tw_gpu_at(gpu, gpu->arrays.norm, at),
                                          .dy = gpu->arrays.logits,
                                          .dy_stride = gpu->arrays.logits_stride,
                                          .rows = count,
                                          .is_first = pass->is_first && first == 0,
                                          .spare = gpu->arrays.broad,
                                          .spare_bytes = gpu->arrays.broad_bytes};
    tw_gpu_linear_dw(gpu, head, &of);
}

void tw_gpu_head(const struct tw_gpu_pass *pass) {
    const struct tw_gpu *gpu = pass->gpu;
    const enum tw_type type = pass->is_learning ? gpu->map.config.type : TW_F32;
    const uint32_t most = tw_gpu_head_chunk(gpu, type, pass->rows);
    for (uint32_t first = 0; first < pass->rows; first += most) {
        const uint32_t count = pass->rows - first < most ? pass->rows - first : most;
        const struct tw_cuda_cross_entropy rows = {
            .logits_type = type,
            .dlogits_type = type,
            .shape = {.rows = count,
                      .vocab = gpu->map.shape.vocab,
                      .logits_stride = gpu->arrays.logits_stride,
                      .dlogits_stride = gpu->arrays.logits_stride,
                      .scale = pass->scale,
                      .z_loss = pass->z_loss},
            .dlogits_columns = gpu->map.shape.vocab,
            .logits = gpu->arrays.logits,
            .dlogits = pass->is_learning ? gpu->arrays.logits : NULL,
            .targets = gpu->arrays.inputs.targets + first,
            .losses = gpu->arrays.losses + first,
        };
        tw_gpu_logits_of(pass, first, count, type);
        tw_cuda_cross_entropy(gpu->queue, &rows);
        if (pass->is_learning) chunk_backward(pass, first, count);
    }
    tw_cuda_sum(gpu->queue, &gpu->step->loss, gpu->arrays.losses, pass->rows, true,
                gpu->arrays.scratch);
}
