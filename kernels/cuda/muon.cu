/* muon.cu - Muon's step. A group of equal-sized matrices is processed at a time: blockIdx.y of each
 * kernel is the matrix, and GEMMs have the group's size as count. */
#include "kernels/cuda/muon.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"

enum {
    STEPS = 5,
    THREADS = 256,
    BLOCKS_MAX = 512, /* along x */
    PARTS = 64,       /* number of partial sums per sum of squares */
    ALIGNMENT = 256,
    GROUP_ELEMENTS = 16 << 20, /* most elements of a group; a larger matrix fills a device alone */
};

#define A 3.4445f
#define B (-4.7750f)
#define C 2.0315f

/* Matrices of equal size. n and small are numbers of elements per matrix. */
struct group {
    uint64_t begin[TW_CUDA_MUON_BATCH];
    uint32_t rows, cols, count; /* size of each matrix, and number of matrices */
    size_t stride, n, small;
};

/* Scratch of a group: x in float32 and in the GEMM type (x_act); the Gram matrices and their
 * squares in float32, and either of these two in the GEMM type (small_act); partial sums of
 * squares, and the factors computed from them. */
struct scratch {
    float *x, *gram, *square, *factor;
    void *x_act, *small_act;
    double *parts;
    size_t bytes;
};

/* ---- groups ---- */

static struct group group_of(const struct tw_cuda_muon_matrix *matrices, uint32_t count) {
    const struct tw_cuda_muon_matrix *const first = matrices;
    const size_t side = min(first->rows, first->cols);
    struct group g = {};
    g.rows = first->rows, g.cols = first->cols, g.stride = first->stride;
    g.n = (size_t)g.rows * g.cols, g.small = side * side;
    for (const struct tw_cuda_muon_matrix *m = first; g.count < count; m++) {
        if (m->rows != g.rows || m->cols != g.cols || m->stride != g.stride) break;
        if (g.count == TW_CUDA_MUON_BATCH || (g.count > 0 && (g.count + 1) * g.n > GROUP_ELEMENTS))
            break;
        g.begin[g.count++] = m->begin;
    }
    return g;
}

static void *take(void *memory, size_t *at, size_t bytes) {
    void *const taken = memory == nullptr ? nullptr : (char *)memory + *at;
    *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return taken;
}

static struct scratch scratch_of(void *memory, const struct group &g, enum tw_type type) {
    const size_t act = tw_type_bytes(type);
    struct scratch s = {};
    s.x = (float *)take(memory, &s.bytes, g.count * g.n * sizeof(float));
    s.gram = (float *)take(memory, &s.bytes, g.count * g.small * sizeof(float));
    s.square = (float *)take(memory, &s.bytes, g.count * g.small * sizeof(float));
    s.x_act = take(memory, &s.bytes, g.count * g.n * act);
    s.small_act = take(memory, &s.bytes, g.count * g.small * act);
    s.parts = (double *)take(memory, &s.bytes, g.count * PARTS * sizeof(double));
    s.factor = (float *)take(memory, &s.bytes, g.count * sizeof(float));
    return s;
}

extern "C" size_t tw_cuda_muon_scratch(const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                                       enum tw_type type) {
    size_t most = 0;
    for (uint32_t i = 0; i < count;) {
        const struct group g = group_of(matrices + i, count - i);
        most = max(most, scratch_of(nullptr, g, type).bytes);
        i += g.count;
    }
    return most;
}

/* ---- kernels ---- */

/* Returns the offset of element i of the group's matrix in theta, m and gradient. */
static __device__ size_t place(const struct group &g, size_t i) {
    return (size_t)g.begin[blockIdx.y] + i / g.cols * g.stride + i % g.cols;
}

/* Computes m = mu * m + (1 - mu) * g, then x = mu * m + (1 - mu) * g. Rounds as kernels/muon.c
 * does. */
static __global__ void momentum(float *x, float *m, const float *gradient,
                                const __grid_constant__ struct group g,
                                const struct tw_cuda_step *step) {
    const bool is_skipped = step->is_skipped != 0;
    const float scale = step->gradient_scale, mu = step->momentum;
    x += blockIdx.y * g.n;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < g.n; i += gridDim.x * THREADS) {
        const size_t at = place(g, i);
        const float own = __fmul_rn(1.0f - mu, __fmul_rn(gradient[at], scale));
        const float moment = __fadd_rn(__fmul_rn(mu, m[at]), own);
        if (!is_skipped) m[at] = moment;
        x[i] = is_skipped ? 0.0f : __fadd_rn(__fmul_rn(mu, moment), own);
    }
}

/* Computes parts (count, PARTS): partial sums of squares of each matrix x (n). */
static __global__ void square_parts(double *parts, const float *x, size_t n) {
    double sum = 0.0;
    x += blockIdx.y * n;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += PARTS * THREADS)
        sum += (double)x[i] * (double)x[i];
    sum = tw_block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * PARTS + blockIdx.x] = sum;
}

/* Computes factor (count) = 1 / |x|, or 0 if x is 0. One thread per matrix. */
static __global__ void find_factors(float *factor, const double *parts, uint32_t count) {
    const uint32_t k = threadIdx.x;
    double sum = 0.0;
    if (k >= count) return;
    for (int i = 0; i < PARTS; i++) sum += parts[k * PARTS + i];
    const double norm = sqrt(sum);
    factor[k] = norm < 1e-30 ? 0.0f : (float)(1.0 / norm);
}

/* Computes x_act = x * factor, then x = A * x * factor. If `factor` is NULL, the factor is 1. */
template <typename T>
static __global__ void split(T *x_act, float *x, const float *factor, size_t n) {
    const float by = factor == nullptr ? 1.0f : factor[blockIdx.y];
    const size_t from = blockIdx.y * n;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const float value = x[from + i] * by;
        tw_store_f32(x_act, from + i, value);
        x[from + i] = A * value;
    }
}

/* Computes to (n) = x, or B * x + C * square if `square` is not NULL. */
template <typename T>
static __global__ void combine(T *to, const float *x, const float *square, size_t n) {
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        tw_store_f32(to, i, square == nullptr ? x[i] : B * x[i] + C * square[i]);
}

/* Computes theta = (1 - lr * decay) * theta - lr * 0.2 * sqrt(max(rows, cols)) * x, and its
 * bfloat16 copy. */
static __global__ void update(float *theta, tw_bf16 *theta_act, const float *x,
                              const __grid_constant__ struct group g,
                              const struct tw_cuda_step *step) {
    const float size = step->lr * 0.2f * sqrtf((float)max(g.rows, g.cols));
    const float keep = 1.0f - step->lr * step->decay;
    if (step->is_skipped != 0) return;
    x += blockIdx.y * g.n;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < g.n; i += gridDim.x * THREADS) {
        const size_t at = place(g, i);
        const float value = keep * theta[at] - size * x[i];
        theta[at] = value;
        if (theta_act != nullptr) tw_store_f32(theta_act, at, value);
    }
}

/* ---- a group's step ---- */

static unsigned blocks_for(size_t n) {
    return (unsigned)min((n + THREADS - 1) / THREADS, (size_t)BLOCKS_MAX);
}

/* Computes y = or += a * b for each matrix, with float32 sums. Consecutive matrices are contiguous.
 */
static void multiply(const struct tw_cuda_muon *cfg, void *stream, struct tw_cuda_gemm gemm) {
    gemm.shape.type = cfg->type;
    gemm.shape.y_type = TW_F32;
    gemm.spare = cfg->spare;
    gemm.spare_bytes = cfg->spare_bytes;
    tw_cuda_gemm(cfg->products, stream, &gemm);
}

/* Computes x = A * x + (B * gram + C * gram^2) * x, as in kernels/muon.c. */
template <typename T>
static void newton_schulz(const struct scratch &s, const struct group &g,
                          const struct tw_cuda_muon *cfg, void *stream) {
    const bool is_tall = g.rows > g.cols;
    const uint32_t side = min(g.rows, g.cols), deep = max(g.rows, g.cols);
    const size_t all = g.count * g.small;
    struct tw_cuda_gemm gram = {}, square = {}, change = {};
    gram.shape.m = side, gram.shape.k = deep, gram.shape.n = side;
    gram.shape.form = is_tall ? TW_MATMUL_TN : TW_MATMUL_NT;
    gram.y = s.gram, gram.a = gram.b = s.x_act, gram.count = g.count;
    gram.a_step = gram.b_step = g.n, gram.y_step = g.small;
    multiply(cfg, stream, gram);
    TW_LAUNCH(combine<T>, blocks_for(all), THREADS, 0, stream, (T *)s.small_act, s.gram, nullptr,
              all);
    square.shape.m = square.shape.k = square.shape.n = side;
    square.shape.form = TW_MATMUL_NN;
    square.y = s.square, square.a = square.b = s.small_act, square.count = g.count;
    square.a_step = square.b_step = square.y_step = g.small;
    multiply(cfg, stream, square);
    TW_LAUNCH(combine<T>, blocks_for(all), THREADS, 0, stream, (T *)s.small_act, s.gram, s.square,
              all);
    change.shape.m = g.rows, change.shape.k = side, change.shape.n = g.cols;
    change.shape.form = TW_MATMUL_NN;
    change.shape.is_added = true;
    change.y = s.x, change.y_step = g.n, change.count = g.count;
    change.a = is_tall ? s.x_act : s.small_act, change.a_step = is_tall ? g.n : g.small;
    change.b = is_tall ? s.small_act : s.x_act, change.b_step = is_tall ? g.small : g.n;
    multiply(cfg, stream, change);
}

template <typename T>
static void orthogonalise(const struct scratch &s, const struct group &g,
                          const struct tw_cuda_muon *cfg, void *stream) {
    const dim3 grid(blocks_for(g.n), g.count);
    TW_LAUNCH(square_parts, dim3(PARTS, g.count), THREADS, 0, stream, s.parts, s.x, g.n);
    TW_LAUNCH(find_factors, 1, TW_CUDA_MUON_BATCH, 0, stream, s.factor, s.parts, g.count);
    for (int step = 0; step < STEPS; step++) {
        TW_LAUNCH(split<T>, grid, THREADS, 0, stream, (T *)s.x_act, s.x,
                  step == 0 ? s.factor : nullptr, g.n);
        newton_schulz<T>(s, g, cfg, stream);
    }
}

extern "C" void tw_cuda_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                                  const struct tw_cuda_muon_matrix *matrices, uint32_t count,
                                  const struct tw_cuda_muon *cfg, void *stream) {
    for (uint32_t i = 0; i < count;) {
        const struct group g = group_of(matrices + i, count - i);
        const struct scratch s = scratch_of(scratch, g, cfg->type);
        const dim3 grid(blocks_for(g.n), g.count);
        TW_LAUNCH(momentum, grid, THREADS, 0, stream, s.x, m, gradient, g, cfg->step);
        if (cfg->type == TW_BF16) {
            orthogonalise<tw_bf16>(s, g, cfg, stream);
        } else {
            orthogonalise<float>(s, g, cfg, stream);
        }
        TW_LAUNCH(update, grid, THREADS, 0, stream, theta, (tw_bf16 *)cfg->theta_act, s.x, g,
                  cfg->step);
        i += g.count;
    }
}
