/* mix.cu - updates of the live parameters after an outer step. Rounds as kernels/ref/mix_ref.c
 * does: no multiplication is fused with an addition. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

struct mixed {
    const float *anchor_new;
    float alpha, rest;
    __device__ __forceinline__ float of(float theta, size_t i) const {
        return __fadd_rn(__fmul_rn(alpha, theta), __fmul_rn(rest, anchor_new[i]));
    }
};

struct shifted {
    const float *anchor_new, *anchor_old;
    __device__ __forceinline__ float of(float theta, size_t i) const {
        return __fadd_rn(theta, __fsub_rn(anchor_new[i], anchor_old[i]));
    }
};

template <typename F> static __global__ void change(float *theta, tw_bf16 *copy, F f, size_t n) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float changed = f.of(theta[i], i);
        theta[i] = changed;
        if (copy != NULL) copy[i] = tw_bf16_of(changed);
    }
}

template <typename F> static void launch(void *stream, float *theta, void *copy, F f, size_t n) {
    if (n == 0) return;
    TW_LAUNCH(change<F>, tw_stream_blocks(n), TW_STREAM_THREADS, 0, stream, theta, (tw_bf16 *)copy,
              f, n);
}

extern "C" void tw_cuda_mix(void *stream, float *theta, void *copy, const float *anchor_new,
                            float alpha, size_t n) {
    launch(stream, theta, copy, mixed{anchor_new, alpha, 1.0f - alpha}, n);
}

extern "C" void tw_cuda_shift(void *stream, float *theta, void *copy, const float *anchor_new,
                              const float *anchor_old, size_t n) {
    launch(stream, theta, copy, shifted{anchor_new, anchor_old}, n);
}

static __global__ void regain(struct tw_regain r) {
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < r.n;
         i += (size_t)gridDim.x * blockDim.x) {
        if (r.merged[i] != 0.0f) continue;
        r.next[i] = __fadd_rn(r.delta[i], __fmul_rn(r.beta, r.residual[i]));
    }
}

extern "C" void tw_cuda_regain(void *stream, const struct tw_regain *r) {
    if (r->n == 0) return;
    TW_LAUNCH(regain, tw_stream_blocks(r->n), TW_STREAM_THREADS, 0, stream, *r);
}
