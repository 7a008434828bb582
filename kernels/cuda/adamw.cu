/* adamw.cu - AdamW, one element per thread and turn: bound by memory. */
#include "kernels/cuda/adamw.h"

#include <cuda_runtime_api.h>

enum { THREADS = 256, BLOCKS_MAX = 4096 };

__global__ static void adamw(float *theta, float *m, float *v, const float *gradient, size_t n,
                             struct tw_adamw cfg) {
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        /* The same roundings as kernels/adamw_ref.c: no multiplication is fused with an addition.
         */
        const float g = __fmul_rn(gradient[i], cfg.gradient_scale);
        const float m_new = __fadd_rn(__fmul_rn(cfg.beta1, m[i]), __fmul_rn(1.0f - cfg.beta1, g));
        const float v_new =
            __fadd_rn(__fmul_rn(cfg.beta2, v[i]), __fmul_rn(__fmul_rn(1.0f - cfg.beta2, g), g));
        const float m_hat = __fdiv_rn(m_new, cfg.correction1);
        const float root = __fsqrt_rn(__fdiv_rn(v_new, cfg.correction2));
        const float direction =
            __fadd_rn(__fdiv_rn(m_hat, __fadd_rn(root, cfg.eps)), __fmul_rn(cfg.decay, theta[i]));
        m[i] = m_new;
        v[i] = v_new;
        theta[i] = __fsub_rn(theta[i], __fmul_rn(cfg.lr, direction));
    }
}

extern "C" enum tw_status tw_cuda_adamw(float *theta, float *m, float *v, const float *gradient,
                                        size_t n, const struct tw_adamw *cfg, void *stream,
                                        struct tw_error *err) {
    if (n == 0) return TW_OK;
    const size_t wanted = (n + THREADS - 1) / THREADS;
    const unsigned blocks = (unsigned)(wanted < BLOCKS_MAX ? wanted : BLOCKS_MAX);
    adamw<<<blocks, THREADS, 0, (cudaStream_t)stream>>>(theta, m, v, gradient, n, *cfg);
    const cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess) return TW_OK;
    return tw_fail(err, TW_DEVICE, "the GPU refused the optimizer step: %s",
                   cudaGetErrorString(status));
}
