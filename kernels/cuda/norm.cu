/* norm.cu - LayerNorm and RMSNorm after an optional residual, each vector read once; their
 * gradients. */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

/* ---- groups of threads that work on one vector ---------------------------------------------- */

#ifndef TW_KERNELS_CUDA_NORM_GROUP_CUH
#define TW_KERNELS_CUDA_NORM_GROUP_CUH

/* A warp processes one vector, or a block if the vector is long. The vector stays in registers if
 * it consists of whole octets (groups of 8 elements), at most TW_NORM_OCTETS per thread. */
enum : unsigned { TW_NORM_THREADS = 256, TW_NORM_OCTETS = 4 };

template <unsigned GROUP> static __device__ __forceinline__ float tw_norm_sum(float x) {
    if constexpr (GROUP == 32) return tw_warp_sum(x);
    return tw_block_sum(x);
}

/* The fields of struct tw_cuda_norm that kernels use. */
struct tw_norm_rows {
    size_t vectors; /* rows * heads */
    uint32_t heads, width;
    size_t x_stride, y_stride, dx_stride;
    const float *weight, *bias;
    float eps;
    bool is_rms;

    /* Returns the index of the first element of vector v. */
    __device__ __forceinline__ size_t at(size_t v, size_t stride) const {
        if (heads == 1) return v * stride; /* saves a 64-bit division */
        return v / heads * stride + v % heads * width;
    }
};

/* Eight weights, and eight biases if there is a bias, loaded from addresses that are multiples of
 * 16 bytes. */
struct tw_norm_weights {
    float weight[8], bias[8];
    __device__ __forceinline__ tw_norm_weights(const struct tw_norm_rows &rows, unsigned i) {
        tw_vec8_load(weight, rows.weight + i);
        for (int j = 0; j < 8; j++) bias[j] = 0.0f;
        if (rows.bias != NULL) tw_vec8_load(bias, rows.bias + i);
    }
};

/* ---- host ---- */

/* Returns true if weights and biases can be read eight at a time. */
static inline bool tw_norm_has_octets(const struct tw_norm_rows *rows) {
    return rows->width % 8 == 0 && tw_is_octets(rows->weight) && tw_is_octets(rows->bias);
}

static inline struct tw_norm_rows tw_norm_rows_of(const struct tw_cuda_norm *norm) {
    struct tw_norm_rows rows = {};
    rows.vectors = (size_t)norm->shape.rows * norm->heads;
    rows.heads = norm->heads;
    rows.width = norm->shape.width;
    rows.x_stride = norm->x_stride;
    rows.y_stride = norm->y_stride;
    rows.dx_stride = norm->dx_stride;
    rows.weight = norm->shape.weight;
    rows.bias = norm->shape.bias;
    rows.eps = norm->shape.eps;
    rows.is_rms = norm->shape.is_rms;
    return rows;
}

static inline bool tw_norm_fits_warp(uint32_t width) {
    return width <= 32 * TW_NORM_OCTETS * TW_VEC8;
}

/* Returns whether a block's registers hold a vector of whole octets. */
static inline bool tw_norm_is_kept(uint32_t width) {
    return width <= TW_NORM_THREADS * TW_NORM_OCTETS * TW_VEC8;
}

/* TW_NORM_LAUNCH(kernel, T, norm, is_octets, stream, arguments...) launches kernel<T, GROUP,
 * IN_REGISTERS> with as many blocks as the vectors need. */
#define TW_NORM_LAUNCH(kernel, T, rows, is_octets, stream, ...)                                    \
    do {                                                                                           \
        const unsigned tw_per_block = TW_NORM_THREADS / 32;                                        \
        const unsigned tw_blocks = (unsigned)(((rows).vectors + tw_per_block - 1) / tw_per_block); \
        const bool tw_is_kept = (is_octets) && tw_norm_is_kept((rows).width);                      \
        if (tw_norm_fits_warp((rows).width) && tw_is_kept) {                                       \
            TW_LAUNCH((kernel<T, 32, true>), tw_blocks, TW_NORM_THREADS, 0, stream, __VA_ARGS__);  \
        } else if (tw_norm_fits_warp((rows).width)) {                                              \
            TW_LAUNCH((kernel<T, 32, false>), tw_blocks, TW_NORM_THREADS, 0, stream, __VA_ARGS__); \
        } else if (tw_is_kept) {                                                                   \
            TW_LAUNCH((kernel<T, TW_NORM_THREADS, true>), (unsigned)(rows).vectors,                \
                      TW_NORM_THREADS, 0, stream, __VA_ARGS__);                                    \
        } else {                                                                                   \
            TW_LAUNCH((kernel<T, TW_NORM_THREADS, false>), (unsigned)(rows).vectors,               \
                      TW_NORM_THREADS, 0, stream, __VA_ARGS__);                                    \
        }                                                                                          \
    } while (0)

#endif

/* ---- forward -------------------------------------------------------------------------------- */

/* The threads of a group work on one vector. Each holds elements lane * 8 + i * GROUP * 8 + [0, 8)
 * in registers, or loops over memory one element at a time. */
template <typename T> struct forward {
    struct tw_norm_rows rows;
    T *y, *x;
    const T *residual; /* NULL: none */
    float *stats;      /* NULL: skipped */
};

/* Returns x + residual, rounded as it is stored. */
template <typename T> static __device__ __forceinline__ float stored(float x) {
    T rounded[1];
    tw_store_f32(rounded, 0, x);
    return tw_load_f32(rounded, 0);
}

template <typename T, unsigned GROUP>
static __device__ __forceinline__ void norm_kept(const forward<T> &f, size_t vector,
                                                 unsigned lane) {
    const struct tw_norm_rows &rows = f.rows;
    const size_t x_at = rows.at(vector, rows.x_stride), y_at = rows.at(vector, rows.y_stride);
    float v[TW_NORM_OCTETS][8], sum = 0.0f, square = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < TW_NORM_OCTETS; k++) {
        const unsigned i = (k * GROUP + lane) * 8;
        if (i >= rows.width) break;
        tw_vec8_load(v[k], f.x + x_at + i);
        if (f.residual != NULL) {
            float r[8];
            tw_vec8_load(r, f.residual + x_at + i);
            for (int j = 0; j < 8; j++) v[k][j] = stored<T>(v[k][j] + r[j]);
            tw_vec8_store(f.x + x_at + i, v[k]);
        }
        for (int j = 0; j < 8; j++) sum += v[k][j];
    }
    const float mean = rows.is_rms ? 0.0f : tw_norm_sum<GROUP>(sum) / (float)rows.width;
#pragma unroll
    for (unsigned k = 0; k < TW_NORM_OCTETS; k++) {
        if ((k * GROUP + lane) * 8 >= rows.width) break;
        for (int j = 0; j < 8; j++) square += (v[k][j] - mean) * (v[k][j] - mean);
    }
    const float rstd = 1.0f / sqrtf(tw_norm_sum<GROUP>(square) / (float)rows.width + rows.eps);
#pragma unroll
    for (unsigned k = 0; k < TW_NORM_OCTETS; k++) {
        const unsigned i = (k * GROUP + lane) * 8;
        if (i >= rows.width) break;
        const tw_norm_weights w(rows, i);
        for (int j = 0; j < 8; j++) v[k][j] = (v[k][j] - mean) * rstd * w.weight[j] + w.bias[j];
        tw_vec8_store(f.y + y_at + i, v[k]);
    }
    if (f.stats == NULL || lane != 0) return;
    f.stats[2 * vector] = mean;
    f.stats[2 * vector + 1] = rstd;
}

template <typename T, unsigned GROUP>
static __device__ __forceinline__ void norm_streamed(const forward<T> &f, size_t vector,
                                                     unsigned lane) {
    const struct tw_norm_rows &rows = f.rows;
    T *const x = f.x + rows.at(vector, rows.x_stride);
    T *const y = f.y + rows.at(vector, rows.y_stride);
    float sum = 0.0f, square = 0.0f;
    for (unsigned i = lane; i < rows.width; i += GROUP) {
        if (f.residual != NULL) {
            const size_t at = rows.at(vector, rows.x_stride) + i;
            tw_store_f32(x, i, tw_load_f32(x, i) + tw_load_f32(f.residual, at));
        }
        sum += tw_load_f32(x, i);
    }
    const float mean = rows.is_rms ? 0.0f : tw_norm_sum<GROUP>(sum) / (float)rows.width;
    for (unsigned i = lane; i < rows.width; i += GROUP) {
        const float d = tw_load_f32(x, i) - mean;
        square += d * d;
    }
    const float rstd = 1.0f / sqrtf(tw_norm_sum<GROUP>(square) / (float)rows.width + rows.eps);
    for (unsigned i = lane; i < rows.width; i += GROUP) {
        const float bias = rows.bias == NULL ? 0.0f : rows.bias[i];
        tw_store_f32(y, i, (tw_load_f32(x, i) - mean) * rstd * rows.weight[i] + bias);
    }
    if (f.stats == NULL || lane != 0) return;
    f.stats[2 * vector] = mean;
    f.stats[2 * vector + 1] = rstd;
}

template <typename T, unsigned GROUP, bool IS_KEPT>
static __global__ void __launch_bounds__(TW_NORM_THREADS) norm(forward<T> f) {
    const size_t vector = (size_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    if (vector >= f.rows.vectors)
        return; /* only whole groups are beyond the last vector, so the collectives above include
                   all lanes */
    if (IS_KEPT) {
        norm_kept<T, GROUP>(f, vector, threadIdx.x % GROUP);
    } else {
        norm_streamed<T, GROUP>(f, vector, threadIdx.x % GROUP);
    }
}

template <typename T> static void launch(void *stream, const forward<T> &f) {
    const bool is_octets = tw_norm_has_octets(&f.rows) && tw_is_octets(f.x, f.rows.x_stride) &&
                           tw_is_octets(f.y, f.rows.y_stride) && tw_is_octets(f.residual);
    if (f.rows.vectors == 0 || f.rows.width == 0) return;
    TW_NORM_LAUNCH(norm, T, f.rows, is_octets, stream, f);
}

extern "C" void tw_cuda_norm(void *stream, const struct tw_cuda_norm *norm, void *y, void *x,
                             const void *residual, float *stats) {
    const struct tw_norm_rows rows = tw_norm_rows_of(norm);
    TW_BY_TYPE(norm->type, T,
               launch(stream, forward<T>{rows, (T *)y, (T *)x, (const T *)residual, stats}));
}

/* ---- backward ------------------------------------------------------------------------------- */

/* Gradients of LayerNorm and RMSNorm. With normal = (x - mean) * rstd and g = dy
 * * weight:
 *     dx = rstd * (g - mean_i(g) - normal * mean_i(g * normal)), without mean_i(g) for RMSNorm
 *     dweight = sum over vectors of dy * normal,  dbias = sum over vectors of dy */

template <typename T> struct backward {
    struct tw_norm_rows rows;
    T *dx;
    const T *dy, *x;
    const float *stats;
    bool is_added;
};

/* Receives nothing: dx alone is computed. */
struct no_sums {
    __device__ __forceinline__ void add(int, int, float, float) {
    }
};

/* Writes dx of a vector that stays in registers, and adds dy and normal of each element to sums. */
template <typename T, unsigned GROUP, int OCTETS, typename S>
static __device__ __forceinline__ void backward_kept(const backward<T> &b, size_t vector,
                                                     unsigned lane, S &sums) {
    const struct tw_norm_rows &rows = b.rows;
    const size_t x_at = rows.at(vector, rows.x_stride), y_at = rows.at(vector, rows.y_stride);
    const size_t dx_at = rows.at(vector, rows.dx_stride);
    const float mean = b.stats[2 * vector], rstd = b.stats[2 * vector + 1];
    float normal[OCTETS][8], g[OCTETS][8], g_sum = 0.0f, g_normal_sum = 0.0f;
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        const unsigned i = (k * GROUP + lane) * 8;
        if (i >= rows.width) break;
        tw_vec8_load(normal[k], b.x + x_at + i);
        tw_vec8_load(g[k], b.dy + y_at + i);
        float weight[8];
        tw_vec8_load(weight, rows.weight + i);
        for (int j = 0; j < 8; j++) {
            normal[k][j] = (normal[k][j] - mean) * rstd;
            sums.add(k, j, g[k][j], normal[k][j]);
            g[k][j] *= weight[j];
            g_sum += g[k][j];
            g_normal_sum += g[k][j] * normal[k][j];
        }
    }
    const float g_mean = rows.is_rms ? 0.0f : tw_norm_sum<GROUP>(g_sum) / (float)rows.width;
    const float g_normal_mean = tw_norm_sum<GROUP>(g_normal_sum) / (float)rows.width;
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        const unsigned i = (k * GROUP + lane) * 8;
        if (i >= rows.width) break;
        float d[8] = {0};
        if (b.is_added) tw_vec8_load(d, b.dx + dx_at + i);
        for (int j = 0; j < 8; j++)
            d[j] += rstd * (g[k][j] - g_mean - normal[k][j] * g_normal_mean);
        tw_vec8_store(b.dx + dx_at + i, d);
    }
}

template <typename T, unsigned GROUP>
static __device__ __forceinline__ void backward_streamed(const backward<T> &b, size_t vector,
                                                         unsigned lane) {
    const struct tw_norm_rows &rows = b.rows;
    const T *const x = b.x + rows.at(vector, rows.x_stride);
    const T *const dy = b.dy + rows.at(vector, rows.y_stride);
    T *const dx = b.dx + rows.at(vector, rows.dx_stride);
    const float mean = b.stats[2 * vector], rstd = b.stats[2 * vector + 1];
    float g_sum = 0.0f, g_normal_sum = 0.0f;
    for (unsigned i = lane; i < rows.width; i += GROUP) {
        const float g = tw_load_f32(dy, i) * rows.weight[i];
        g_sum += g;
        g_normal_sum += g * (tw_load_f32(x, i) - mean) * rstd;
    }
    const float g_mean = rows.is_rms ? 0.0f : tw_norm_sum<GROUP>(g_sum) / (float)rows.width;
    const float g_normal_mean = tw_norm_sum<GROUP>(g_normal_sum) / (float)rows.width;
    for (unsigned i = lane; i < rows.width; i += GROUP) {
        const float g = tw_load_f32(dy, i) * rows.weight[i];
        const float normal = (tw_load_f32(x, i) - mean) * rstd;
        const float d = b.is_added ? tw_load_f32(dx, i) : 0.0f;
        tw_store_f32(dx, i, d + rstd * (g - g_mean - normal * g_normal_mean));
    }
}

template <typename T, unsigned GROUP, bool IS_KEPT>
static __global__ void __launch_bounds__(TW_NORM_THREADS) norm_backward(backward<T> b) {
    const size_t vector = (size_t)blockIdx.x * (blockDim.x / GROUP) + threadIdx.x / GROUP;
    if (vector >= b.rows.vectors) return; /* only whole groups are beyond the last vector */
    if (IS_KEPT) {
        no_sums none;
        backward_kept<T, GROUP, TW_NORM_OCTETS>(b, vector, threadIdx.x % GROUP, none);
    } else {
        backward_streamed<T, GROUP>(b, vector, threadIdx.x % GROUP);
    }
}

/* ---- gradients of weight and bias, in the pass that writes dx ---- */

/* So few blocks that adding their sums takes little time, and nearly all in one wave. */
enum : unsigned { FUSED_BLOCKS = 256, FUSED_VECTORS_LEAST = 4 };

/* Sums of one thread's columns, for dweight and, if SUMS is 2, dbias. */
template <int OCTETS, int SUMS> struct kept_sums {
    float of[SUMS][OCTETS][8];

    __device__ __forceinline__ void add(int k, int j, float d, float normal) {
        of[0][k][j] += d * normal;
        if constexpr (SUMS == 2) of[1][k][j] += d;
    }
};

/* Adds up the warps' sums in shared memory, in order, and writes those of a block to its row of
 * partial (blocks, SUMS, width). A column's eighth and lane decide its place: no bank conflicts. */
template <int OCTETS, int SUMS>
static __device__ __forceinline__ void join_warps(float *partial, uint32_t width,
                                                  const kept_sums<OCTETS, SUMS> &sums) {
    TW_SHARED(float, all, SUMS *OCTETS * 256);
    const unsigned lane = threadIdx.x % 32;
    for (unsigned warp = 0; warp < TW_NORM_THREADS / 32; warp++) {
        for (int i = 0; i < SUMS * OCTETS * 8 && threadIdx.x / 32 == warp; i++) {
            const float own = sums.of[i / (OCTETS * 8)][i / 8 % OCTETS][i % 8];
            all[i * 32 + lane] = warp == 0 ? own : all[i * 32 + lane] + own;
        }
        __syncthreads();
    }
    for (unsigned i = threadIdx.x; i < SUMS * width; i += TW_NORM_THREADS) {
        const unsigned s = i / width, column = i % width;
        partial[((size_t)blockIdx.x * SUMS + s) * width + column] =
            all[((s * OCTETS + column / 256) * 8 + column % 8) * 32 + column / 8 % 32];
    }
}

/* A group takes every n-th vector. Two blocks of 128 registers a thread are resident with three
 * octets of bf16, one block with four. */
template <typename T, unsigned GROUP, int OCTETS, int SUMS>
static __global__ void __launch_bounds__(TW_NORM_THREADS, sizeof(T) == 2 && OCTETS < 4 ? 2 : 1)
    norm_backward_fused(backward<T> b, float *partial) {
    const unsigned lane = threadIdx.x % GROUP, per_block = TW_NORM_THREADS / GROUP;
    kept_sums<OCTETS, SUMS> sums = {};
    b.rows.heads = 1; /* vectors are rows: no division */
    for (uint32_t vector = blockIdx.x * per_block + threadIdx.x / GROUP; vector < b.rows.vectors;
         vector += gridDim.x * per_block)
        backward_kept<T, GROUP, OCTETS>(b, vector, lane, sums);
    if constexpr (GROUP == 32) {
        join_warps<OCTETS, SUMS>(partial, b.rows.width, sums);
    } else {
#pragma unroll
        for (int i = 0; i < SUMS * OCTETS; i++) {
            const unsigned s = i / OCTETS, k = i % OCTETS, column = (k * GROUP + lane) * 8;
            if (column < b.rows.width)
                tw_vec8_store(partial + ((size_t)blockIdx.x * SUMS + s) * b.rows.width + column,
                              sums.of[s][k]);
        }
    }
}

/* Heads are so narrow that few of a warp's lanes would be busy: too few bytes would be in flight. A
 * kernel counts vectors in 32 bits. */
static bool may_fuse(size_t vectors, uint32_t heads, uint32_t width) {
    return heads == 1 && tw_norm_is_kept(width) && vectors < 1u << 31;
}

static unsigned fused_blocks(size_t vectors, uint32_t width) {
    const size_t per_block = tw_norm_fits_warp(width) ? TW_NORM_THREADS / 32 : 1;
    const size_t least = per_block * FUSED_VECTORS_LEAST, wanted = (vectors + least - 1) / least;
    return wanted < FUSED_BLOCKS ? (unsigned)wanted : (unsigned)FUSED_BLOCKS;
}

template <typename T, int SUMS>
static void launch_fused(void *stream, const backward<T> &b,
                         const struct tw_cuda_norm_gradients *gradients) {
    const uint32_t width = b.rows.width;
    const unsigned blocks = fused_blocks(b.rows.vectors, width);
    const unsigned columns = (width + TW_COLUMN_SUMS_WIDE - 1) / TW_COLUMN_SUMS_WIDE;
    float *const partial = (float *)gradients->scratch;
    if (width <= 3 * 256) {
        TW_LAUNCH((norm_backward_fused<T, 32, 3, SUMS>), blocks, TW_NORM_THREADS, 0, stream, b,
                  partial);
    } else if (tw_norm_fits_warp(width)) {
        TW_LAUNCH((norm_backward_fused<T, 32, 4, SUMS>), blocks, TW_NORM_THREADS, 0, stream, b,
                  partial);
    } else if (width <= 2 * TW_NORM_THREADS * TW_VEC8) {
        TW_LAUNCH((norm_backward_fused<T, TW_NORM_THREADS, 2, SUMS>), blocks, TW_NORM_THREADS, 0,
                  stream, b, partial);
    } else {
        TW_LAUNCH((norm_backward_fused<T, TW_NORM_THREADS, 4, SUMS>), blocks, TW_NORM_THREADS, 0,
                  stream, b, partial);
    }
    TW_LAUNCH(tw_column_sums_join, dim3(columns, SUMS),
              dim3(TW_COLUMN_SUMS_WIDE, TW_COLUMN_SUMS_HIGH), 0, stream,
              tw_column_sums_to{{gradients->dweight, gradients->dbias}, !gradients->is_first},
              (const float *)partial, blocks, width);
}

/* ---- gradients of weight and bias, in a pass of their own ---- */

template <typename T> struct weights {
    enum { SUMS = 2 };
    backward<T> b;
    __device__ __forceinline__ void add(float sums[SUMS], size_t vector, unsigned i) const {
        const struct tw_norm_rows &rows = b.rows;
        const float d = tw_load_f32(b.dy, rows.at(vector, rows.y_stride) + i);
        const float x = tw_load_f32(b.x, rows.at(vector, rows.x_stride) + i);
        sums[0] += d * (x - b.stats[2 * vector]) * b.stats[2 * vector + 1];
        sums[1] += d;
    }
    __device__ __forceinline__ void add8(float sums[SUMS][8], size_t vector, unsigned i) const {
        const struct tw_norm_rows &rows = b.rows;
        float d[8], x[8];
        tw_vec8_load(d, b.dy + rows.at(vector, rows.y_stride) + i);
        tw_vec8_load(x, b.x + rows.at(vector, rows.x_stride) + i);
        const float mean = b.stats[2 * vector], rstd = b.stats[2 * vector + 1];
        for (int j = 0; j < 8; j++) {
            sums[0][j] += d[j] * (x[j] - mean) * rstd;
            sums[1][j] += d[j];
        }
    }
};

template <typename T>
static void backward_launch(void *stream, const backward<T> &b,
                            const struct tw_cuda_norm_gradients *gradients) {
    const bool reads_octets = tw_norm_has_octets(&b.rows) && tw_is_octets(b.x, b.rows.x_stride) &&
                              tw_is_octets(b.dy, b.rows.y_stride);
    const bool is_octets = reads_octets && tw_is_octets(b.dx, b.rows.dx_stride);
    if (b.rows.vectors == 0 || b.rows.width == 0) return;
    const bool has_sums = gradients->dweight != NULL || gradients->dbias != NULL;
    if (has_sums && is_octets && may_fuse(b.rows.vectors, b.rows.heads, b.rows.width)) {
        if (gradients->dbias == NULL) {
            launch_fused<T, 1>(stream, b, gradients);
        } else {
            launch_fused<T, 2>(stream, b, gradients);
        }
        return;
    }
    /* The sums are computed before dx is written, because dx may share memory with dy. */
    if (has_sums)
        tw_column_sums_sum(
            stream, tw_column_sums_to{{gradients->dweight, gradients->dbias}, !gradients->is_first},
            weights<T>{b}, tw_column_sums_shape{b.rows.vectors, b.rows.width, reads_octets},
            gradients->scratch);
    TW_NORM_LAUNCH(norm_backward, T, b.rows, is_octets, stream, b);
}

extern "C" void tw_cuda_norm_backward(void *stream, const struct tw_cuda_norm *norm,
                                      const struct tw_cuda_norm_gradients *g) {
    const struct tw_norm_rows rows = tw_norm_rows_of(norm);
    TW_BY_TYPE(norm->type, T,
               backward_launch(stream,
                               backward<T>{rows, (T *)g->dx, (const T *)g->dy, (const T *)g->x,
                                           g->stats, g->is_added},
                               g));
}

extern "C" size_t tw_cuda_norm_backward_scratch(const struct tw_cuda_norm *norm) {
    const size_t vectors = (size_t)norm->shape.rows * norm->heads;
    const size_t sums = tw_column_sums_scratch(vectors, norm->shape.width, 2);
    const size_t fused =
        (size_t)fused_blocks(vectors, norm->shape.width) * 2 * norm->shape.width * sizeof(float);
    const bool is_fused = may_fuse(vectors, norm->heads, norm->shape.width);
    return is_fused && fused > sums ? fused : sums;
}
