/* gemm_after.cu - epilogues as separate kernels, with one block per row or one thread per column.
 */
#include "kernels/cuda/gemm_after.h"

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/device.cuh"

extern "C" {
#include "base/assert.h"
}

enum { THREADS = 256 };

/* Returns tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)). */
static __device__ float gelu_tanh(float x) {
    return tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
}

static __device__ float gelu(float x) {
    return 0.5f * x * (1.0f + gelu_tanh(x));
}

static __device__ float gelu_slope(float x) {
    const float h = gelu_tanh(x);
    const float dh = (1.0f - h * h) * 0.7978845608f * (1.0f + 0.134145f * x * x);
    return 0.5f * (1.0f + h) + 0.5f * x * dh;
}

/* For row blockIdx.x: y += bias. If pre is not NULL, then also pre = y, y = gelu(pre). */
template <typename T>
static __global__ void add_bias(T *y, T *pre, const T *bias, uint32_t n, size_t stride) {
    const size_t row = blockIdx.x * stride;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const float sum = tw_load_f32(y, row + i) + tw_load_f32(bias, i);
        tw_store_f32(y, row + i, sum);
        if (pre == nullptr) continue;
        pre[row + i] = y[row + i];
        tw_store_f32(y, row + i, gelu(tw_load_f32(pre, row + i)));
    }
}

/* For row blockIdx.x: y *= gelu'(pre). */
template <typename T>
static __global__ void gelu_backward(T *y, const T *pre, uint32_t n, size_t stride) {
    const size_t row = blockIdx.x * stride;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const float slope = gelu_slope(tw_load_f32(pre, row + i));
        tw_store_f32(y, row + i, tw_load_f32(y, row + i) * slope);
    }
}

/* Copies columns (n) to `to` (n), or adds them if is_added. */
static __global__ void put_columns(float *to, const float *columns, uint32_t n, bool is_added) {
    const uint32_t column = blockIdx.x * THREADS + threadIdx.x;
    if (column < n) to[column] = is_added ? to[column] + columns[column] : columns[column];
}

static unsigned blocks_of(uint32_t n) {
    return (n + THREADS - 1) / THREADS;
}

template <typename T>
static void bias_gradient(const struct tw_cuda_gemm *gemm, float *scratch, size_t scratch_floats,
                          void *stream) {
    const uint32_t rows = gemm->shape.k, n = gemm->shape.n;
    const size_t stride = gemm->shape.b_stride == 0 ? n : gemm->shape.b_stride;
    const tw_column_sums_shape shape = {rows, n, n % 8 == 0 && tw_is_octets(gemm->b, stride)};
    TW_ASSERT(tw_column_sums_scratch(rows, n, 1) <= scratch_floats * sizeof(float));
    tw_column_sums_sum(stream, tw_column_sums_to{{gemm->bias_gradient, NULL}, gemm->shape.is_added},
                       tw_column_values<T>{(const T *)gemm->b, stride}, shape, scratch);
}

template <typename T> static void on_rows(const struct tw_cuda_gemm *gemm, void *stream) {
    const uint32_t rows = gemm->shape.m, n = gemm->shape.n;
    const size_t stride = gemm->shape.y_stride == 0 ? n : gemm->shape.y_stride;
    if (gemm->epilogue == TW_CUDA_GELU_BACKWARD) {
        TW_LAUNCH(gelu_backward<T>, rows, THREADS, 0, stream, (T *)gemm->y, (const T *)gemm->pre, n,
                  stride);
    } else {
        T *const pre = gemm->epilogue == TW_CUDA_BIAS_GELU ? (T *)gemm->pre : nullptr;
        TW_LAUNCH(add_bias<T>, rows, THREADS, 0, stream, (T *)gemm->y, pre, (const T *)gemm->bias,
                  n, stride);
    }
}

extern "C" void tw_gemm_after(const struct tw_cuda_gemm *gemm, float *scratch,
                              size_t scratch_floats, void *stream) {
    if (gemm->epilogue == TW_CUDA_PLAIN) return;
    if (gemm->epilogue == TW_CUDA_BIAS_GRADIENT) {
        if (gemm->shape.type == TW_BF16) {
            bias_gradient<tw_bf16>(gemm, scratch, scratch_floats, stream);
        } else {
            bias_gradient<float>(gemm, scratch, scratch_floats, stream);
        }
    } else if (gemm->shape.y_type == TW_BF16) {
        on_rows<tw_bf16>(gemm, stream);
    } else {
        on_rows<float>(gemm, stream);
    }
}

extern "C" void tw_gemm_after_columns(float *to, const float *columns, uint32_t n, bool is_added,
                                      void *stream) {
    TW_LAUNCH(put_columns, blocks_of(n), THREADS, 0, stream, to, columns, n, is_added);
}
