/* outer.cu - outer steps on the device. Rounds as kernels/ref/outer_ref.c does: no multiplication
 * is fused with an addition. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

static __global__ void nesterov(struct tw_cuda_outer step) {
    const struct tw_outer rule = step.rule;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < step.n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float delta = step.delta[i];
        const float u = __fadd_rn(__fmul_rn(rule.momentum, step.momentum[i]), delta);
        const float direction = __fadd_rn(delta, __fmul_rn(rule.momentum, u));
        step.momentum[i] = u;
        step.anchor[i] = __fsub_rn(step.anchor[i], __fmul_rn(rule.lr, direction));
    }
}

static __global__ void heavyball(struct tw_cuda_outer step) {
    const struct tw_outer rule = step.rule;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < step.n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float taken = __fmul_rn(rule.lr, __fmul_rn(rule.gain, step.delta[i]));
        float u = __fadd_rn(__fmul_rn(rule.momentum, step.momentum[i]), taken);
        u = u > rule.limit ? rule.limit : u;
        u = u < -rule.limit ? -rule.limit : u;
        step.momentum[i] = u;
        step.anchor[i] = __fsub_rn(step.anchor[i], u);
    }
}

extern "C" void tw_cuda_outer_nesterov(void *stream, const struct tw_cuda_outer *step) {
    if (step->n == 0) return;
    TW_LAUNCH(nesterov, tw_stream_blocks(step->n), TW_STREAM_THREADS, 0, stream, *step);
}

extern "C" void tw_cuda_outer_heavyball(void *stream, const struct tw_cuda_outer *step) {
    if (step->n == 0) return;
    TW_LAUNCH(heavyball, tw_stream_blocks(step->n), TW_STREAM_THREADS, 0, stream, *step);
}
