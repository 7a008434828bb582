/* column_sums.cuh - sums over rows, column by column, in a fixed order: first within chunks of
 * rows, then over the chunks. Used for gradients of biases and of norm weights. */
#ifndef TW_KERNELS_CUDA_COLUMN_SUMS_CUH
#define TW_KERNELS_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/vec8.cuh"

enum : unsigned { TW_COLUMN_SUMS_WIDE = 32, TW_COLUMN_SUMS_HIGH = 8, TW_COLUMN_SUMS_BLOCKS = 1024 };
enum : unsigned { TW_COLUMN_SUMS_ROWS_LEAST = 64 };

/* Number of chunks, a function of the shape alone. */
static inline unsigned tw_column_sums_chunks(size_t rows, uint32_t columns) {
    const size_t tiles = (columns + TW_COLUMN_SUMS_WIDE - 1) / TW_COLUMN_SUMS_WIDE;
    const size_t most = tiles < TW_COLUMN_SUMS_BLOCKS ? TW_COLUMN_SUMS_BLOCKS / tiles : 1;
    const size_t wanted = (rows + TW_COLUMN_SUMS_ROWS_LEAST - 1) / TW_COLUMN_SUMS_ROWS_LEAST;
    const size_t chunks = wanted < most ? wanted : most;
    return (unsigned)(chunks > 0 ? chunks : 1);
}

/* Scratch bytes for `sums` sums of each column. */
static inline size_t tw_column_sums_scratch(size_t rows, uint32_t columns, unsigned sums) {
    return (size_t)tw_column_sums_chunks(rows, columns) * columns * sums * sizeof(float);
}

/* F has enum { SUMS } and add(float sums[SUMS], size_t row, unsigned column), which adds that
 * element's terms. partial (chunks, SUMS, columns). */
template <typename F>
static __global__ void tw_column_sums_partial(float *partial, F f, size_t rows, unsigned columns) {
    TW_SHARED(float, sums_of, F::SUMS *TW_COLUMN_SUMS_HIGH *TW_COLUMN_SUMS_WIDE);
    const unsigned column = blockIdx.x * TW_COLUMN_SUMS_WIDE + threadIdx.x;
    const size_t length = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * length;
    const size_t end = begin + length < rows ? begin + length : rows;
    float sums[F::SUMS] = {0};
    for (size_t row = begin + threadIdx.y; row < end && column < columns;
         row += TW_COLUMN_SUMS_HIGH)
        f.add(sums, row, column);
    for (int s = 0; s < F::SUMS; s++) {
        sums_of[(s * TW_COLUMN_SUMS_HIGH + threadIdx.y) * TW_COLUMN_SUMS_WIDE + threadIdx.x] =
            sums[s];
    }
    __syncthreads();
    if (threadIdx.y >= (unsigned)F::SUMS || column >= columns) return;
    float sum = 0.0f;
    for (unsigned h = 0; h < TW_COLUMN_SUMS_HIGH; h++) {
        sum += sums_of[(threadIdx.y * TW_COLUMN_SUMS_HIGH + h) * TW_COLUMN_SUMS_WIDE + threadIdx.x];
    }
    partial[((size_t)blockIdx.y * F::SUMS + threadIdx.y) * columns + column] = sum;
}

/* to[s] (columns) += the chunks; NULL: skipped. */
struct tw_column_sums_to {
    float *to[2];
};

static __global__ void tw_column_sums_join(struct tw_column_sums_to to, const float *partial,
                                           unsigned chunks, unsigned columns) {
    const unsigned column = blockIdx.x * blockDim.x + threadIdx.x, s = blockIdx.y;
    if (column >= columns || to.to[s] == NULL) return;
    float sum = 0.0f;
    for (unsigned c = 0; c < chunks; c++)
        sum += partial[((size_t)c * gridDim.y + s) * columns + column];
    to.to[s][column] += sum;
}

template <typename F>
static inline void tw_column_sums_sum(void *stream, struct tw_column_sums_to to, F f, size_t rows,
                                      uint32_t columns, void *scratch) {
    const unsigned chunks = tw_column_sums_chunks(rows, columns);
    const unsigned tiles = (columns + TW_COLUMN_SUMS_WIDE - 1) / TW_COLUMN_SUMS_WIDE;
    if (rows == 0 || columns == 0) return;
    TW_LAUNCH(tw_column_sums_partial<F>, dim3(tiles, chunks),
              dim3(TW_COLUMN_SUMS_WIDE, TW_COLUMN_SUMS_HIGH), 0, stream, (float *)scratch, f, rows,
              columns);
    TW_LAUNCH(tw_column_sums_join, dim3((columns + 127) / 128, F::SUMS), 128, 0, stream, to,
              (const float *)scratch, chunks, columns);
}

#endif
