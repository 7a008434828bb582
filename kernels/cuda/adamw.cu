/* adamw.cu - AdamW, and the decisions of a step (clipping, skipping) on the device. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

static __global__ void decide(struct tw_cuda_step *step) {
    const double norm = sqrt(step->squares);
    const bool is_finite = isfinite(step->loss) && isfinite(norm);
    step->norm = norm;
    step->gradient_scale =
        step->clip > 0.0 && norm > step->clip ? (float)(step->clip / norm) : 1.0f;
    step->is_skipped = is_finite ? 0 : 1;
}

extern "C" void tw_cuda_step_decide(void *stream, struct tw_cuda_step *step) {
    TW_LAUNCH(decide, 1, 1, 0, stream, step);
}

/* Updates one element, rounding as kernels/ops_ref.c does: no multiplication is fused with an
 * addition. */
static __device__ __forceinline__ void update(float *theta, float *m, float *v, float gradient,
                                              const struct tw_cuda_adamw &a,
                                              const struct tw_cuda_step &s) {
    const float g = __fmul_rn(gradient, s.gradient_scale);
    const float decay = a.has_decay ? s.decay : 0.0f;
    *m = __fadd_rn(__fmul_rn(a.beta1, *m), __fmul_rn(1.0f - a.beta1, g));
    *v = __fadd_rn(__fmul_rn(a.beta2, *v), __fmul_rn(__fmul_rn(1.0f - a.beta2, g), g));
    const float m_hat = __fdiv_rn(*m, s.correction1);
    const float root = __fsqrt_rn(__fdiv_rn(*v, s.correction2));
    const float direction =
        __fadd_rn(__fdiv_rn(m_hat, __fadd_rn(root, a.eps)), __fmul_rn(decay, *theta));
    *theta = __fsub_rn(*theta, __fmul_rn(s.lr, direction));
}

static __global__ void adamw(struct tw_cuda_adamw a, const struct tw_cuda_step *step,
                             bool is_octets) {
    const struct tw_cuda_step s = *step;
    const size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    const size_t threads = (size_t)gridDim.x * blockDim.x, whole = is_octets ? a.n / 8 * 8 : 0;
    tw_bf16 *const copy = (tw_bf16 *)a.copy;
    if (s.is_skipped) return;
    for (size_t i = first * 8; i < whole; i += threads * 8) {
        float theta[8], m[8], v[8], g[8];
        tw_vec8_load(theta, a.theta + i);
        tw_vec8_load(m, a.m + i);
        tw_vec8_load(v, a.v + i);
        tw_vec8_load(g, a.gradient + i);
        for (int j = 0; j < 8; j++) update(&theta[j], &m[j], &v[j], g[j], a, s);
        tw_vec8_store(a.theta + i, theta);
        tw_vec8_store(a.m + i, m);
        tw_vec8_store(a.v + i, v);
        if (copy != NULL) tw_vec8_store(copy + i, theta);
    }
    for (size_t i = whole + first; i < a.n; i += threads) {
        update(&a.theta[i], &a.m[i], &a.v[i], a.gradient[i], a, s);
        if (copy != NULL) copy[i] = tw_bf16_of(a.theta[i]);
    }
}

extern "C" void tw_cuda_adamw(void *stream, const struct tw_cuda_adamw *arrays,
                              const struct tw_cuda_step *step) {
    const bool is_octets = tw_is_octets(arrays->theta) && tw_is_octets(arrays->m) &&
                           tw_is_octets(arrays->v) && tw_is_octets(arrays->gradient) &&
                           tw_is_octets(arrays->copy);
    if (arrays->n == 0) return;
    TW_LAUNCH(adamw, tw_stream_blocks(is_octets ? arrays->n / 8 + 7 : arrays->n), TW_STREAM_THREADS,
              0, stream, *arrays, step, is_octets);
}
