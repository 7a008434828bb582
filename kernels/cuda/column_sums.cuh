/* column_sums.cuh - sums over rows, column by column, in a fixed order: first within chunks of
 * rows, then over the chunks. Used for gradients of biases and of norm weights. */
#ifndef TW_KERNELS_CUDA_COLUMN_SUMS_CUH
#define TW_KERNELS_CUDA_COLUMN_SUMS_CUH

#include "kernels/cuda/vec8.cuh"

enum : unsigned { TW_COLUMN_SUMS_WIDE = 32, TW_COLUMN_SUMS_HIGH = 8, TW_COLUMN_SUMS_BLOCKS = 1024 };
enum : unsigned { TW_COLUMN_SUMS_ROWS_LEAST = 64 };
/* Columns per block when each thread sums eight neighbouring columns. */
enum : unsigned { TW_COLUMN_SUMS_OCTETS_WIDE = TW_COLUMN_SUMS_WIDE * TW_VEC8 };

/* The array to sum: rows, columns, and whether its columns can be read eight at a time. */
struct tw_column_sums_shape {
    size_t rows;
    uint32_t columns;
    bool is_octets;
};

static inline unsigned tw_column_sums_tiles(const struct tw_column_sums_shape *shape) {
    const unsigned wide =
        shape->is_octets ? (unsigned)TW_COLUMN_SUMS_OCTETS_WIDE : (unsigned)TW_COLUMN_SUMS_WIDE;
    return (shape->columns + wide - 1) / wide;
}

/* Returns the number of chunks, which depends on the shape alone. */
static inline unsigned tw_column_sums_chunks(const struct tw_column_sums_shape *shape) {
    const unsigned tiles = tw_column_sums_tiles(shape);
    const unsigned blocks = shape->is_octets ? TW_COLUMN_SUMS_BLOCKS / 2 : TW_COLUMN_SUMS_BLOCKS;
    const size_t most = tiles < blocks ? blocks / tiles : 1;
    const size_t wanted = (shape->rows + TW_COLUMN_SUMS_ROWS_LEAST - 1) / TW_COLUMN_SUMS_ROWS_LEAST;
    const size_t chunks = wanted < most ? wanted : most;
    return (unsigned)(chunks > 0 ? chunks : 1);
}

/* Returns the scratch bytes for `sums` sums per column, read one or eight at a time. */
static inline size_t tw_column_sums_scratch(size_t rows, uint32_t columns, unsigned sums) {
    const struct tw_column_sums_shape one = {rows, columns, false}, eight = {rows, columns, true};
    const unsigned a = tw_column_sums_chunks(&one), b = tw_column_sums_chunks(&eight);
    return (size_t)(a > b ? a : b) * columns * sums * sizeof(float);
}

/* Sums each chunk into partial (chunks, SUMS, columns). F has enum { SUMS } and add(float
 * sums[SUMS], size_t row, unsigned column), which adds the terms of that element. */
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

/* Like the function above, with eight columns per thread: F also has add8(float sums[SUMS][8], row,
 * column). Lane l holds columns 8 * l + j and stores them at j * 32 + l of the block's shared row,
 * which avoids bank conflicts. */
template <typename F>
static __global__ void tw_column_sums_partial_octets(float *partial, F f, size_t rows,
                                                     unsigned columns) {
    TW_SHARED(float, sums_of, F::SUMS *TW_COLUMN_SUMS_HIGH *TW_COLUMN_SUMS_OCTETS_WIDE);
    const unsigned first = blockIdx.x * TW_COLUMN_SUMS_OCTETS_WIDE;
    const unsigned column = first + threadIdx.x * TW_VEC8;
    const size_t length = (rows + gridDim.y - 1) / gridDim.y, begin = blockIdx.y * length;
    const size_t end = begin + length < rows ? begin + length : rows;
    float sums[F::SUMS][TW_VEC8] = {{0}};
#pragma unroll 4
    for (size_t row = begin + threadIdx.y; row < end; row += TW_COLUMN_SUMS_HIGH)
        if (column < columns) f.add8(sums, row, column);
    for (int s = 0; s < F::SUMS; s++) {
        for (int j = 0; j < TW_VEC8; j++) {
            sums_of[(s * TW_COLUMN_SUMS_HIGH + threadIdx.y) * TW_COLUMN_SUMS_OCTETS_WIDE +
                    j * TW_COLUMN_SUMS_WIDE + threadIdx.x] = sums[s][j];
        }
    }
    __syncthreads();
    const unsigned at = threadIdx.y * TW_COLUMN_SUMS_WIDE + threadIdx.x; /* index in a shared row */
    const unsigned to = first + threadIdx.x * TW_VEC8 + threadIdx.y;     /* column at that index */
    for (int s = 0; s < F::SUMS; s++) {
        float sum = 0.0f;
        for (unsigned h = 0; h < TW_COLUMN_SUMS_HIGH; h++)
            sum += sums_of[(s * TW_COLUMN_SUMS_HIGH + h) * TW_COLUMN_SUMS_OCTETS_WIDE + at];
        if (to < columns) partial[((size_t)blockIdx.y * F::SUMS + s) * columns + to] = sum;
    }
}

/* Where the sums are written, or added if is_added: to[s] (columns), NULL to skip it. */
struct tw_column_sums_to {
    float *to[2];
    bool is_added;
};

/* The argument F for plain sums of an array's columns. */
template <typename T> struct tw_column_values {
    enum { SUMS = 1 };
    const T *x;
    size_t stride;
    __device__ __forceinline__ void add(float sums[SUMS], size_t row, unsigned column) const {
        sums[0] += tw_load_f32(x, row * stride + column);
    }
    __device__ __forceinline__ void add8(float sums[SUMS][8], size_t row, unsigned column) const {
        float v[8];
        tw_vec8_load(v, x + row * stride + column);
        for (int j = 0; j < 8; j++) sums[0][j] += v[j];
    }
};

/* Adds the chunks. Each of a column's eight threads sums every eighth chunk, then one thread adds
 * the eight sums in order. */
static __global__ void tw_column_sums_join(struct tw_column_sums_to to, const float *partial,
                                           unsigned chunks, unsigned columns) {
    TW_SHARED(float, sums_of, TW_COLUMN_SUMS_HIGH *TW_COLUMN_SUMS_WIDE);
    const unsigned column = blockIdx.x * TW_COLUMN_SUMS_WIDE + threadIdx.x, s = blockIdx.y;
    float *const out = s == 0 ? to.to[0] : to.to[1];
    if (out == NULL) return; /* the whole block */
    float sum = 0.0f;
#pragma unroll 4
    for (unsigned c = threadIdx.y; c < chunks; c += TW_COLUMN_SUMS_HIGH)
        if (column < columns) sum += partial[((size_t)c * gridDim.y + s) * columns + column];
    sums_of[threadIdx.y * TW_COLUMN_SUMS_WIDE + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    sum = 0.0f;
    for (unsigned h = 0; h < TW_COLUMN_SUMS_HIGH; h++)
        sum += sums_of[h * TW_COLUMN_SUMS_WIDE + threadIdx.x];
    out[column] = to.is_added ? out[column] + sum : sum;
}

template <typename F>
static inline void tw_column_sums_sum(void *stream, struct tw_column_sums_to to, F f,
                                      struct tw_column_sums_shape shape, void *scratch) {
    const unsigned chunks = tw_column_sums_chunks(&shape), tiles = tw_column_sums_tiles(&shape);
    const dim3 block(TW_COLUMN_SUMS_WIDE, TW_COLUMN_SUMS_HIGH);
    if (shape.rows == 0 || shape.columns == 0) return;
    if (shape.is_octets) {
        TW_LAUNCH(tw_column_sums_partial_octets<F>, dim3(tiles, chunks), block, 0, stream,
                  (float *)scratch, f, shape.rows, shape.columns);
    } else {
        TW_LAUNCH(tw_column_sums_partial<F>, dim3(tiles, chunks), block, 0, stream,
                  (float *)scratch, f, shape.rows, shape.columns);
    }
    const unsigned joined = (shape.columns + TW_COLUMN_SUMS_WIDE - 1) / TW_COLUMN_SUMS_WIDE;
    TW_LAUNCH(tw_column_sums_join, dim3(joined, F::SUMS), block, 0, stream, to,
              (const float *)scratch, chunks, shape.columns);
}

#endif
