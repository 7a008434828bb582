/* outer.cu - outer steps, and updates of the live parameters and of the inner momentum after them.
 * Rounds as kernels/outer.c does: no multiplication is fused with an addition. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

/* ---- live parameters ------------------------------------------------------------------------ */

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

template <typename F>
static void mix_launch(void *stream, float *theta, void *copy, F f, size_t n) {
    if (n == 0) return;
    TW_LAUNCH(change<F>, tw_stream_blocks(n), TW_STREAM_THREADS, 0, stream, theta, (tw_bf16 *)copy,
              f, n);
}

extern "C" void tw_cuda_mix(void *stream, float *theta, void *copy, const float *anchor_new,
                            float alpha, size_t n) {
    mix_launch(stream, theta, copy, mixed{anchor_new, alpha, 1.0f - alpha}, n);
}

extern "C" void tw_cuda_shift(void *stream, float *theta, void *copy, const float *anchor_new,
                              const float *anchor_old, size_t n) {
    mix_launch(stream, theta, copy, shifted{anchor_new, anchor_old}, n);
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

/* ---- outer steps ---------------------------------------------------------------------------- */

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

/* ---- the momentum of the inner optimizer ---------------------------------------------------- */

/* Kernels/outer.h in three kernels: sums per block, the scale computed
 * from these, and the new moment. With the same scale, every element has the bits of
 * kernels/outer.c. */

enum : unsigned { lead_THREADS = 256, lead_BLOCKS = 256, lead_PER_BLOCK = 4096 };

/* Layout of the caller's scratch memory. */
struct lead_scratch {
    double own[lead_BLOCKS], merged[lead_BLOCKS]; /* sums per block over elements where m changes:
                                           squares of m / sqrt(v_hat), and squares of delta */
    float scale;                                  /* 0: nothing changes */
};
static_assert(sizeof(struct lead_scratch) <= TW_CUDA_LEAD_SCRATCH, "scratch of lead");

static __global__ void lead_measure(struct lead_scratch *sums, struct tw_cuda_lead lead) {
    double own = 0.0, merged = 0.0;
    for (size_t i = (size_t)blockIdx.x * lead_THREADS + threadIdx.x; i < lead.n;
         i += (size_t)gridDim.x * lead_THREADS) {
        if (!(lead.v[i] > 0.0f) || lead.delta[i] == 0.0f) continue;
        const double step =
            __ddiv_rn((double)lead.m[i], sqrt((double)__fdiv_rn(lead.v[i], lead.cfg.correction2)));
        own += step * step;
        merged += (double)lead.delta[i] * (double)lead.delta[i];
    }
    own = tw_block_sum(own);
    merged = tw_block_sum(merged);
    if (threadIdx.x > 0) return;
    sums->own[blockIdx.x] = own;
    sums->merged[blockIdx.x] = merged;
}

static __global__ void lead_decide(struct lead_scratch *sums, unsigned blocks, float wanted) {
    double own = threadIdx.x < blocks ? sums->own[threadIdx.x] : 0.0;
    double merged = threadIdx.x < blocks ? sums->merged[threadIdx.x] : 0.0;
    own = tw_block_sum(own);
    merged = tw_block_sum(merged);
    if (threadIdx.x > 0) return;
    const float largest = merged > 0.0 ? (float)sqrt(__ddiv_rn(own, merged)) : 0.0f;
    const float scale = wanted < largest ? wanted : largest;
    sums->scale = isfinite(scale) ? scale : 0.0f;
}

static __global__ void lead_follow(struct tw_cuda_lead lead, const struct lead_scratch *sums) {
    const float scale = sums->scale;
    if (scale == 0.0f) return;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < lead.n;
         i += (size_t)gridDim.x * blockDim.x) {
        const float v = lead.v[i], delta = lead.delta[i], m = lead.m[i];
        if (!(v > 0.0f) || delta == 0.0f) continue;
        const float root = __fsqrt_rn(__fdiv_rn(v, lead.cfg.correction2));
        const float led = __fmul_rn(__fmul_rn(root, delta), scale);
        lead.m[i] = __fadd_rn(m, __fmul_rn(lead.cfg.share, __fsub_rn(led, m)));
    }
}

extern "C" void tw_cuda_lead(void *stream, const struct tw_cuda_lead *lead) {
    const size_t pieces = (lead->n + lead_PER_BLOCK - 1) / lead_PER_BLOCK;
    const unsigned blocks = pieces < lead_BLOCKS ? (unsigned)pieces : lead_BLOCKS;
    struct lead_scratch *const sums = (struct lead_scratch *)lead->scratch;
    static_assert(lead_BLOCKS <= lead_THREADS, "one thread a block");
    if (lead->n == 0) return;
    TW_LAUNCH(lead_measure, blocks, lead_THREADS, 0, stream, sums, *lead);
    TW_LAUNCH(lead_decide, 1, lead_THREADS, 0, stream, sums, blocks,
              1.0f / (lead->cfg.lr * lead->cfg.steps));
    TW_LAUNCH(lead_follow, tw_stream_blocks(lead->n), TW_STREAM_THREADS, 0, stream, *lead,
              (const struct lead_scratch *)sums);
}
