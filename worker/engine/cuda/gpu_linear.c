/* gpu_linear.c - GEMMs with the model's weight matrices, and their epilogues. */
#include "base/assert.h"
#include "worker/engine/cuda/gpu_model.h"

void tw_gpu_linear(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *y,
                   const void *x, uint32_t rows, void *pre) {
    const enum tw_type type = gpu->map.config.type;
    const bool has_bias = linear->bias != TW_MODEL_NONE;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = rows,
                  .k = linear->in,
                  .n = linear->out,
                  .form = linear->form,
                  .type = type,
                  .y_type = type},
        .y = y,
        .a = x,
        .b = tw_gpu_weight(gpu, linear->weight),
        .epilogue = !has_bias     ? TW_CUDA_PLAIN
                    : pre != NULL ? TW_CUDA_BIAS_GELU
                                  : TW_CUDA_BIAS,
        .bias = has_bias ? tw_gpu_weight(gpu, linear->bias) : NULL,
        .pre = pre,
    };
    TW_ASSERT(pre == NULL ||
              has_bias); /* only GELU needs `pre`, and models with GELU have biases */
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

void tw_gpu_linear_dx(const struct tw_gpu *gpu, const struct tw_model_linear *linear, void *dx,
                      const void *dy, uint32_t rows, void *pre) {
    const enum tw_type type = gpu->map.config.type;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = rows,
                  .k = linear->out,
                  .n = linear->in,
                  .form = linear->form == TW_MATMUL_NN ? TW_MATMUL_NT : TW_MATMUL_NN,
                  .type = type,
                  .y_type = type},
        .y = dx,
        .a = dy,
        .b = tw_gpu_weight(gpu, linear->weight),
        .epilogue = pre != NULL ? TW_CUDA_GELU_BACKWARD : TW_CUDA_PLAIN,
        .pre = pre,
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
}

/* The gradient has the orientation of the weight: NN (in, out) = x^T * dy, NT (out, in) = dy^T * x.
 */
void tw_gpu_linear_dw(const struct tw_gpu *gpu, const struct tw_model_linear *linear,
                      const struct tw_gpu_linear_rows *of) {
    const enum tw_type type = gpu->map.config.type;
    const bool is_nn = linear->form == TW_MATMUL_NN, has_bias = linear->bias != TW_MODEL_NONE;
    const bool is_bias_fused = is_nn && has_bias && linear->out <= TW_CUDA_GEMM_N_MAX;
    const struct tw_cuda_gemm gemm = {
        .shape = {.m = is_nn ? linear->in : linear->out,
                  .k = of->rows,
                  .n = is_nn ? linear->out : linear->in,
                  .form = TW_MATMUL_TN,
                  .type = type,
                  .y_type = TW_F32,
                  .is_added = !of->is_first,
                  .a_stride = is_nn ? 0 : of->dy_stride,
                  .b_stride = is_nn ? of->dy_stride : 0},
        .y = tw_gpu_grad(gpu, linear->weight),
        .a = is_nn ? of->x : of->dy,
        .b = is_nn ? of->dy : of->x,
        .epilogue = is_bias_fused ? TW_CUDA_BIAS_GRADIENT : TW_CUDA_PLAIN,
        .bias_gradient = is_bias_fused ? tw_gpu_grad(gpu, linear->bias) : NULL,
        .spare = of->spare,
        .spare_bytes = of->spare_bytes,
    };
    tw_cuda_gemm(gpu->products, gpu->queue, &gemm);
    if (is_bias_fused || !has_bias) return;
    const struct tw_cuda_bias bias = {.type = type,
                                      .rows = of->rows,
                                      .n = linear->out,
                                      .stride = of->dy_stride != 0 ? of->dy_stride : linear->out,
                                      .is_first = of->is_first};
    tw_cuda_bias_backward(gpu->queue, &bias, tw_gpu_grad(gpu, linear->bias), of->dy,
                          gpu->arrays.scratch);
}
