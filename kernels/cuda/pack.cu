/* pack.cu - computes Delta and its energies; pack_codes.cu encodes Delta. Each operation is rounded
 * separately, as on the host. */
#include "kernels/cuda/pack.h"

#include "kernels/cuda/device.cuh"

enum { THREADS = 256, BLOCKS_MAX = 2048, ENERGY_PARTS = 16 };

#define EACH(i, n)                                                                                 \
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < (n); i += gridDim.x * THREADS)

static unsigned blocks_for(size_t n) {
    return (unsigned)min((n + THREADS - 1) / THREADS, (size_t)BLOCKS_MAX);
}

/* ---- Delta ---- */

static __global__ void make_delta(struct tw_cuda_delta d) {
    EACH(i, d.n) {
        float value = __fsub_rn(d.phi[i], d.theta[i]);
        if (d.ahead != nullptr) value = __fadd_rn(value, d.ahead[i]);
        if (d.given != nullptr) d.given[i] = value;
        if (d.residual != nullptr) value = __fadd_rn(value, __fmul_rn(d.beta, d.residual[i]));
        d.v[i] = value;
    }
}

static __global__ void multiply(float *x, float factor, size_t n) {
    EACH(i, n) x[i] = __fmul_rn(x[i], factor);
}

/* Computes parts (TW_OUTLIER_BLOCKS, ENERGY_PARTS): the energy of part blockIdx.x of block
 * blockIdx.y of v. */
static __global__ void energy_parts(double *parts, const float *v, size_t n) {
    const size_t begin = n * blockIdx.y / TW_OUTLIER_BLOCKS,
                 end = n * (blockIdx.y + 1) / TW_OUTLIER_BLOCKS;
    double sum = 0.0;
    for (size_t i = begin + blockIdx.x * THREADS + threadIdx.x; i < end;
         i += ENERGY_PARTS * THREADS)
        sum += (double)v[i] * (double)v[i];
    sum = tw_block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.y * ENERGY_PARTS + blockIdx.x] = sum;
}

static __global__ void energy_sums(double *energies, const double *parts) {
    double sum = 0.0;
    for (int part = 0; part < ENERGY_PARTS; part++) sum += parts[threadIdx.x * ENERGY_PARTS + part];
    energies[threadIdx.x] = sum;
}

extern "C" void tw_cuda_delta(void *stream, const struct tw_cuda_delta *delta) {
    if (delta->n == 0) return;
    TW_LAUNCH(make_delta, blocks_for(delta->n), THREADS, 0, stream, *delta);
}

extern "C" void tw_cuda_scale(void *stream, float *x, float factor, size_t n) {
    if (n == 0) return;
    TW_LAUNCH(multiply, blocks_for(n), THREADS, 0, stream, x, factor, n);
}

extern "C" void tw_cuda_energies(void *stream, double *energies, const float *v, size_t n,
                                 void *scratch) {
    static_assert(TW_CUDA_ENERGIES_SCRATCH >= TW_OUTLIER_BLOCKS * ENERGY_PARTS * sizeof(double),
                  "scratch of energies");
    TW_LAUNCH(energy_parts, dim3(ENERGY_PARTS, TW_OUTLIER_BLOCKS), THREADS, 0, stream,
              (double *)scratch, v, n);
    TW_LAUNCH(energy_sums, 1, TW_OUTLIER_BLOCKS, 0, stream, energies, (const double *)scratch);
}

static __global__ void merge_add(float *sum, const float *x, float weight, size_t n) {
    EACH(i, n) sum[i] = __fadd_rn(sum[i], __fmul_rn(weight, x[i]));
}

extern "C" void tw_cuda_merge_add(void *stream, float *sum, const float *x, float weight,
                                  size_t n) {
    if (n == 0) return;
    TW_LAUNCH(merge_add, blocks_for(n), THREADS, 0, stream, sum, x, weight, n);
}
