/* sums.cu - sums of long arrays in double, in a fixed order. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

enum : unsigned { THREADS = 256, BLOCKS = 512, PER_BLOCK = 4096 };
static_assert(BLOCKS * sizeof(double) <= TW_CUDA_SUM_SCRATCH, "a part of each block");

/* The arrays to sum over; y is NULL if there is only one. */
struct arrays {
    const float *x, *y;
};

struct plain : arrays {
    static __device__ __forceinline__ double of(float x, float) {
        return (double)x;
    }
};

struct squared : arrays {
    static __device__ __forceinline__ double of(float x, float) {
        return (double)x * (double)x;
    }
};

struct apart : arrays {
    static __device__ __forceinline__ double of(float x, float y) {
        const double d = (double)x - (double)y;
        return d * d;
    }
};

/* Each thread sums groups of eight elements, then remaining elements one by one. */
template <typename F>
static __global__ void sum_parts(double *parts, F f, size_t n, bool is_octets) {
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    const size_t threads = (size_t)gridDim.x * THREADS, whole = is_octets ? n / 8 * 8 : 0;
    double sum = 0.0;
#pragma unroll 2
    for (size_t i = first * 8; i < whole; i += threads * 8) {
        float a[8], b[8] = {0};
        tw_vec8_load(a, f.x + i);
        if (f.y != NULL) tw_vec8_load(b, f.y + i);
        for (int j = 0; j < 8; j++) sum += F::of(a[j], b[j]);
    }
    for (size_t i = whole + first; i < n; i += threads)
        sum += F::of(f.x[i], f.y != NULL ? f.y[i] : 0.0f);
    sum = tw_block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static __global__ void sum_join(double *to, const double *parts, unsigned count, bool is_added) {
    double sum = 0.0;
    for (unsigned i = threadIdx.x; i < count; i += THREADS) sum += parts[i];
    sum = tw_block_sum(sum);
    if (threadIdx.x == 0) *to = is_added ? *to + sum : sum;
}

template <typename F>
static void launch(void *stream, double *sum, F f, size_t n, bool is_added, void *scratch) {
    const size_t wanted = (n + PER_BLOCK - 1) / PER_BLOCK;
    const unsigned blocks = wanted < BLOCKS ? (unsigned)wanted : BLOCKS;
    double *const parts = (double *)scratch;
    const bool is_octets = tw_is_octets(f.x) && tw_is_octets(f.y);
    if (blocks > 0) TW_LAUNCH(sum_parts<F>, blocks, THREADS, 0, stream, parts, f, n, is_octets);
    TW_LAUNCH(sum_join, 1, THREADS, 0, stream, sum, (const double *)parts, blocks, is_added);
}

extern "C" void tw_cuda_sum(void *stream, double *sum, const float *x, size_t n, bool is_added,
                            void *scratch) {
    launch(stream, sum, plain{{x, NULL}}, n, is_added, scratch);
}

extern "C" void tw_cuda_sum_squares(void *stream, double *sum, const float *x, size_t n,
                                    bool is_added, void *scratch) {
    launch(stream, sum, squared{{x, NULL}}, n, is_added, scratch);
}

extern "C" void tw_cuda_sum_distances(void *stream, double *sum, const float *a, const float *b,
                                      size_t n, void *scratch) {
    launch(stream, sum, apart{{a, b}}, n, false, scratch);
}
