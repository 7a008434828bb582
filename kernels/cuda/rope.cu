/* rope.cu - rotary embedding in place, arXiv 2104.09864; the elements of a pair are half a head
 * apart. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

template <typename T, int WIDTH> static __global__ void turn(T *x, struct tw_cuda_rope r) {
    const uint32_t half = r.rope.head_size / 2, pieces = half / WIDTH;
    const size_t per_row = (size_t)r.rope.heads * pieces;
    const size_t threads = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.rows * per_row;
         i += threads) {
        const size_t row = i / per_row, head = i % per_row / pieces, at = i % pieces * WIDTH;
        const size_t angle = (r.position_first + row % r.context) * half + at;
        T *const first = x + row * r.x_stride + head * r.rope.head_size + at;
        float a[WIDTH], b[WIDTH];
        if constexpr (WIDTH == 8) {
            tw_vec8_load(a, first);
            tw_vec8_load(b, first + half);
        } else {
            a[0] = tw_load_f32(first, 0);
            b[0] = tw_load_f32(first, half);
        }
        for (int j = 0; j < WIDTH; j++) {
            const float c = r.rope.cos[angle + j];
            const float s = r.is_inverse ? -r.rope.sin[angle + j] : r.rope.sin[angle + j];
            const float turned = a[j] * c - b[j] * s;
            b[j] = b[j] * c + a[j] * s;
            a[j] = turned;
        }
        if constexpr (WIDTH == 8) {
            tw_vec8_store(first, a);
            tw_vec8_store(first + half, b);
        } else {
            tw_store_f32(first, 0, a[0]);
            tw_store_f32(first, half, b[0]);
        }
    }
}

template <typename T> static void launch(void *stream, const struct tw_cuda_rope *rope, T *x) {
    const size_t pairs = (size_t)rope->rows * rope->rope.heads * (rope->rope.head_size / 2);
    if (pairs == 0) return;
    if (rope->rope.head_size % 16 == 0 && tw_is_octets(x, rope->x_stride)) {
        TW_LAUNCH((turn<T, 8>), tw_stream_blocks(pairs / 8), TW_STREAM_THREADS, 0, stream, x,
                  *rope);
    } else {
        TW_LAUNCH((turn<T, 1>), tw_stream_blocks(pairs), TW_STREAM_THREADS, 0, stream, x, *rope);
    }
}

extern "C" void tw_cuda_rope(void *stream, const struct tw_cuda_rope *rope, void *x) {
    TW_BY_TYPE(rope->type, T, launch(stream, rope, (T *)x));
}
