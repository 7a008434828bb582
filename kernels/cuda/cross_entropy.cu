/* cross_entropy.cu - softmax, loss and gradient: one block per row, which is read twice (the second
 * time from the cache, if it fits). */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

#include <float.h>

enum : unsigned { THREADS = 512 };

/* Running max and sum of e^(x - max). Starts with a finite number, so that minus infinity can come
 * first. */
struct running {
    float max, sum;
    __device__ __forceinline__ void add(const float *x, int count) {
        float most = max;
        for (int j = 0; j < count; j++) most = tw_max_or_nan(most, x[j]);
        sum *= __expf(max - most);
        max = most;
        for (int j = 0; j < count; j++) sum += __expf(x[j] - max);
    }
};

template <int WIDTH, typename T>
static __device__ __forceinline__ void load_some(float v[WIDTH], const T *p) {
    if constexpr (WIDTH == 8) {
        tw_vec8_load(v, p);
    } else {
        v[0] = tw_load_f32(p, 0);
    }
}
template <int WIDTH, typename T>
static __device__ __forceinline__ void store_some(T *p, const float v[WIDTH]) {
    if constexpr (WIDTH == 8) {
        tw_vec8_store(p, v);
    } else {
        tw_store_f32(p, 0, v[0]);
    }
}

/* Loads this thread's columns from `begin` on: WIDTH of them, fewer at the end. */
template <typename X, int WIDTH>
static __device__ __forceinline__ int columns_at(float v[WIDTH], const X *x, unsigned i,
                                                 unsigned vocab) {
    if (i + WIDTH <= vocab) {
        load_some<WIDTH>(v, x + i);
        return WIDTH;
    }
    int count = 0;
    while (i + count < vocab) {
        v[count] = tw_load_f32(x, i + count);
        count++;
    }
    return count;
}

/* D may be narrower than X in the same memory. An iteration of the block only writes where it or
 * earlier iterations have read, with a barrier in between. */
template <typename X, typename D, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy(struct tw_cuda_cross_entropy rows, bool is_in_place) {
    const struct tw_cross_entropy &shape = rows.shape;
    const size_t row = blockIdx.x;
    const X *const x = (const X *)rows.logits + row * shape.logits_stride;
    const uint32_t target = rows.targets[row];
    running seen = {-FLT_MAX, 0.0f};
    for (unsigned i = threadIdx.x * WIDTH; i < shape.vocab; i += THREADS * WIDTH) {
        float v[WIDTH];
        const int count = columns_at<X, WIDTH>(v, x, i, shape.vocab);
        seen.add(v, count);
    }
    const float x_target = tw_load_f32(x, target);
    const float max = tw_block_max(seen.max);
    const float sum = tw_block_sum(seen.sum * __expf(seen.max - max));
    const float lse = max + logf(sum);
    if (threadIdx.x == 0) rows.losses[row] = lse - x_target;
    if (rows.dlogits == NULL) return;
    D *const d = (D *)rows.dlogits + row * shape.dlogits_stride;
    const float factor = shape.scale * (1.0f + 2.0f * shape.z_loss * lse);
    for (unsigned begin = 0; begin < rows.dlogits_columns; begin += THREADS * WIDTH) {
        const unsigned i = begin + threadIdx.x * WIDTH;
        float v[WIDTH];
        int count = 0;
        if (i < shape.vocab) count = columns_at<X, WIDTH>(v, x, i, shape.vocab);
        for (int j = 0; j < count; j++) {
            v[j] = factor * __expf(v[j] - lse) - (i + j == target ? shape.scale : 0.0f);
        }
        if (is_in_place) __syncthreads();
        for (int j = count; j < WIDTH; j++) v[j] = 0.0f;
        if (i + WIDTH <= rows.dlogits_columns) {
            store_some<WIDTH>(d + i, v);
        } else {
            for (unsigned j = 0; i + j < rows.dlogits_columns; j++) tw_store_f32(d, i + j, v[j]);
        }
    }
}

template <typename X, typename D>
static void launch(void *stream, const struct tw_cuda_cross_entropy *rows) {
    const bool is_in_place = rows->dlogits == rows->logits;
    const struct tw_cross_entropy *shape = &rows->shape;
    if (shape->rows == 0) return;
    if (tw_is_octets(rows->logits, shape->logits_stride) &&
        tw_is_octets(rows->dlogits, shape->dlogits_stride)) {
        TW_LAUNCH((cross_entropy<X, D, 8>), shape->rows, THREADS, 0, stream, *rows, is_in_place);
    } else {
        TW_LAUNCH((cross_entropy<X, D, 1>), shape->rows, THREADS, 0, stream, *rows, is_in_place);
    }
}

extern "C" void tw_cuda_cross_entropy(void *stream, const struct tw_cuda_cross_entropy *rows) {
    TW_BY_TYPE(rows->logits_type, X, TW_BY_TYPE(rows->dlogits_type, D, launch<X, D>(stream, rows)));
}
