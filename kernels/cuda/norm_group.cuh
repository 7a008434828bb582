/* norm_group.cuh - shared by norm.cu and norm_backward.cu: groups of threads that work on one
 * vector. */
#ifndef TW_KERNELS_CUDA_NORM_GROUP_CUH
#define TW_KERNELS_CUDA_NORM_GROUP_CUH

#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

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
