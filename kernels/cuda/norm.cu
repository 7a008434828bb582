/* norm.cu - LayerNorm and RMSNorm after an optional residual: each vector is read once. */
#include "kernels/cuda/norm_group.cuh"

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
