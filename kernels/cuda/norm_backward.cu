/* norm_backward.cu - gradients of LayerNorm and RMSNorm. With normal = (x - mean) * rstd and g = dy
 * * weight:
 *     dx = rstd * (g - mean_i(g) - normal * mean_i(g * normal)), without mean_i(g) for RMSNorm
 *     dweight = sum over vectors of dy * normal,  dbias = sum over vectors of dy */
#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/norm_group.cuh"

template <typename T> struct backward {
    struct tw_norm_rows rows;
    T *dx;
    const T *dy, *x;
    const float *stats;
    bool is_added;
};

template <typename T, unsigned GROUP>
static __device__ __forceinline__ void backward_kept(const backward<T> &b, size_t vector,
                                                     unsigned lane) {
    const struct tw_norm_rows &rows = b.rows;
    const size_t x_at = rows.at(vector, rows.x_stride), y_at = rows.at(vector, rows.y_stride);
    const size_t dx_at = rows.at(vector, rows.dx_stride);
    const float mean = b.stats[2 * vector], rstd = b.stats[2 * vector + 1];
    float normal[TW_NORM_OCTETS][8], g[TW_NORM_OCTETS][8], g_sum = 0.0f, g_normal_sum = 0.0f;
#pragma unroll
    for (unsigned k = 0; k < TW_NORM_OCTETS; k++) {
        const unsigned i = (k * GROUP + lane) * 8;
        if (i >= rows.width) break;
        tw_vec8_load(normal[k], b.x + x_at + i);
        tw_vec8_load(g[k], b.dy + y_at + i);
        float weight[8];
        tw_vec8_load(weight, rows.weight + i);
        for (int j = 0; j < 8; j++) {
            normal[k][j] = (normal[k][j] - mean) * rstd;
            g[k][j] *= weight[j];
            g_sum += g[k][j];
            g_normal_sum += g[k][j] * normal[k][j];
        }
    }
    const float g_mean = rows.is_rms ? 0.0f : tw_norm_sum<GROUP>(g_sum) / (float)rows.width;
    const float g_normal_mean = tw_norm_sum<GROUP>(g_normal_sum) / (float)rows.width;
#pragma unroll
    for (unsigned k = 0; k < TW_NORM_OCTETS; k++) {
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
        backward_kept<T, GROUP>(b, vector, threadIdx.x % GROUP);
    } else {
        backward_streamed<T, GROUP>(b, vector, threadIdx.x % GROUP);
    }
}

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
static void launch(void *stream, const backward<T> &b,
                   const struct tw_cuda_norm_gradients *gradients) {
    const bool reads_octets = tw_norm_has_octets(&b.rows) && tw_is_octets(b.x, b.rows.x_stride) &&
                              tw_is_octets(b.dy, b.rows.y_stride);
    const bool is_octets = reads_octets && tw_is_octets(b.dx, b.rows.dx_stride);
    if (b.rows.vectors == 0 || b.rows.width == 0) return;
    /* The sums are computed before dx is written, because dx may share memory with dy. */
    if (gradients->dweight != NULL || gradients->dbias != NULL)
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
               launch(stream,
                      backward<T>{rows, (T *)g->dx, (const T *)g->dy, (const T *)g->x, g->stats,
                                  g->is_added},
                      g));
}

extern "C" size_t tw_cuda_norm_backward_scratch(const struct tw_cuda_norm *norm) {
    return tw_column_sums_scratch((size_t)norm->shape.rows * norm->heads, norm->shape.width, 2);
}
