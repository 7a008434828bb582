/* bias.cu - adds a bias to rows, and computes the bias's gradient. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ops.h"

template <typename T, int WIDTH>
static __global__ void bias_add(T *y, size_t stride, const float *bias, uint32_t rows, uint32_t n) {
    const size_t pieces = n / WIDTH, threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < rows * pieces;
         i += threads) {
        const size_t column = i % pieces * WIDTH;
        T *const at = y + i / pieces * stride + column;
        if constexpr (WIDTH == 8) {
            float v[8], b[8];
            tw_vec8_load(v, at);
            tw_vec8_load(b, bias + column);
            for (int j = 0; j < 8; j++) v[j] += b[j];
            tw_vec8_store(at, v);
        } else {
            tw_store_f32(at, 0, tw_load_f32(at, 0) + bias[column]);
        }
    }
}

template <typename T>
static void launch_add(void *stream, const struct tw_cuda_bias *shape, T *y, const float *bias) {
    const size_t all = (size_t)shape->rows * shape->n;
    if (all == 0) return;
    if (shape->n % 8 == 0 && tw_is_octets(y, shape->stride) && tw_is_octets(bias)) {
        TW_LAUNCH((bias_add<T, 8>), tw_stream_blocks(all / 8), TW_STREAM_THREADS, 0, stream, y,
                  shape->stride, bias, shape->rows, shape->n);
    } else {
        TW_LAUNCH((bias_add<T, 1>), tw_stream_blocks(all), TW_STREAM_THREADS, 0, stream, y,
                  shape->stride, bias, shape->rows, shape->n);
    }
}

extern "C" void tw_cuda_bias(void *stream, const struct tw_cuda_bias *shape, void *y,
                             const float *bias) {
    TW_BY_TYPE(shape->type, T, launch_add(stream, shape, (T *)y, bias));
}

extern "C" void tw_cuda_bias_backward(void *stream, const struct tw_cuda_bias *shape, float *dbias,
                                      const void *dy, void *scratch) {
    const tw_column_sums_shape sums = {shape->rows, shape->n,
                                       shape->n % 8 == 0 && tw_is_octets(dy, shape->stride)};
    TW_BY_TYPE(shape->type, T,
               tw_column_sums_sum(stream, tw_column_sums_to{{dbias, NULL}, !shape->is_first},
                                  tw_column_values<T>{(const T *)dy, shape->stride}, sums,
                                  scratch));
}

extern "C" size_t tw_cuda_bias_backward_scratch(const struct tw_cuda_bias *shape) {
    return tw_column_sums_scratch(shape->rows, shape->n, 1);
}
