/* sums.cu - sums in double of long arrays, in a fixed order. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ops.h"

enum : unsigned { THREADS = 256, BLOCKS = 512, PER_BLOCK = 4096 };
static_assert(BLOCKS * sizeof(double) <= TW_CUDA_SUM_SCRATCH, "a part of each block");

struct plain {
    const float *x;
    __device__ __forceinline__ double of(size_t i) const {
        return (double)x[i];
    }
};

struct squared {
    const float *x;
    __device__ __forceinline__ double of(size_t i) const {
        return (double)x[i] * (double)x[i];
    }
};

struct apart {
    const float *a, *b;
    __device__ __forceinline__ double of(size_t i) const {
        const double d = (double)a[i] - (double)b[i];
        return d * d;
    }
};

template <typename F> static __global__ void sum_parts(double *parts, F f, size_t n) {
    double sum = 0.0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (size_t)gridDim.x * THREADS)
        sum += f.of(i);
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
    if (blocks > 0) TW_LAUNCH(sum_parts<F>, blocks, THREADS, 0, stream, parts, f, n);
    TW_LAUNCH(sum_join, 1, THREADS, 0, stream, sum, (const double *)parts, blocks, is_added);
}

extern "C" void tw_cuda_sum(void *stream, double *sum, const float *x, size_t n, bool is_added,
                            void *scratch) {
    launch(stream, sum, plain{x}, n, is_added, scratch);
}

extern "C" void tw_cuda_sum_squares(void *stream, double *sum, const float *x, size_t n,
                                    bool is_added, void *scratch) {
    launch(stream, sum, squared{x}, n, is_added, scratch);
}

extern "C" void tw_cuda_sum_distances(void *stream, double *sum, const float *a, const float *b,
                                      size_t n, void *scratch) {
    launch(stream, sum, apart{a, b}, n, false, scratch);
}
