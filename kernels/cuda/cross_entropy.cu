/* cross_entropy.cu - softmax, loss and gradient: one block per row, which is read twice (the second
 * time from the cache, if it fits). */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

#include <float.h>
#include <math.h>

enum : unsigned { THREADS = 512 };

/* Running max and sum of e^(x - max). max starts finite, so that the first x may be -infinity. A
 * NaN is lost from max but stays in sum. */
struct running {
    float max, sum;
    template <int WIDTH> __device__ __forceinline__ void add(const float x[WIDTH]) {
        float most = max;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) most = fmaxf(most, x[j]);
        sum *= __expf(max - most);
        max = most;
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sum += __expf(x[j] - max);
    }
};

/* Loads columns [i, i + WIDTH) of a row. Columns beyond `vocab` become -infinity and add 0 to the
 * sum. WIDTH is a constant, so that v stays in registers. */
template <int WIDTH, typename X>
static __device__ __forceinline__ void load_columns(float v[WIDTH], const X *x, unsigned i,
                                                    unsigned vocab) {
    if constexpr (WIDTH == TW_VEC8) {
        if (i + WIDTH <= vocab) {
            tw_vec8_load(v, x + i);
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++) v[j] = i + j < vocab ? tw_load_f32(x, i + j) : -INFINITY;
}

template <int WIDTH, typename D>
static __device__ __forceinline__ void store_columns(D *d, unsigned i, unsigned columns,
                                                     const float v[WIDTH]) {
    if constexpr (WIDTH == TW_VEC8) {
        if (i + WIDTH <= columns) {
            tw_vec8_store(d + i, v);
            return;
        }
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (i + j < columns) tw_store_f32(d, i + j, v[j]);
}

/* The part of a row without a loss. No thread reads this row. */
template <typename D, int WIDTH>
static __device__ __forceinline__ void skip_row(const struct tw_cuda_cross_entropy &rows,
                                                size_t row) {
    const float zeros[WIDTH] = {};
    if (threadIdx.x == 0) rows.losses[row] = 0.0f;
    if (rows.dlogits == NULL) return;
    D *const d = (D *)rows.dlogits + row * rows.shape.dlogits_stride;
    for (unsigned i = threadIdx.x * WIDTH; i < rows.dlogits_columns; i += THREADS * WIDTH)
        store_columns<WIDTH>(d, i, rows.dlogits_columns, zeros);
}

/* D may overwrite X. If both have the same width, a thread writes only elements that it has read
 * itself. A narrower D needs a barrier, because an iteration of the block writes where other
 * threads read in this or an earlier iteration. */
template <typename X, typename D, int WIDTH>
static __global__ void __launch_bounds__(THREADS)
    cross_entropy(struct tw_cuda_cross_entropy rows, bool is_in_place) {
    const struct tw_cross_entropy &shape = rows.shape;
    const size_t row = blockIdx.x;
    const X *const x = (const X *)rows.logits + row * shape.logits_stride;
    const uint32_t target = rows.targets[row];
    if ((target & TW_TOKEN_UNSCORED) != 0) {
        skip_row<D, WIDTH>(rows, row);
        return;
    }
    running seen = {-FLT_MAX, 0.0f};
    for (unsigned i = threadIdx.x * WIDTH; i < shape.vocab; i += THREADS * WIDTH) {
        float v[WIDTH];
        load_columns<WIDTH>(v, x, i, shape.vocab);
        seen.add<WIDTH>(v);
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
        load_columns<WIDTH>(v, x, i, shape.vocab);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) v[j] = factor * __expf(v[j] - lse);
        if (target - i <
            WIDTH) { /* unsigned arithmetic: true if the target is one of these WIDTH columns */
#pragma unroll
            for (int j = 0; j < WIDTH; j++) v[j] -= i + j == target ? shape.scale : 0.0f;
        }
        if (sizeof(D) != sizeof(X) && is_in_place) __syncthreads();
        store_columns<WIDTH>(d, i, rows.dlogits_columns, v);
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
