/* momentum_lead.cu - kernels/momentum_lead.h in three kernels: sums per block, the scale computed
 * from these, and the new moment. With the same scale, every element has the bits of
 * kernels/momentum_lead.c. */
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec8.cuh"

enum : unsigned { THREADS = 256, BLOCKS = 256, PER_BLOCK = 4096 };

/* Layout of the caller's scratch memory. */
struct scratch {
    double own[BLOCKS], merged[BLOCKS]; /* sums per block over elements where m changes: squares of
                                           m / sqrt(v_hat), and squares of delta */
    float scale;                        /* 0: nothing changes */
};
static_assert(sizeof(struct scratch) <= TW_CUDA_LEAD_SCRATCH, "scratch of lead");

static __global__ void measure(struct scratch *sums, struct tw_cuda_lead lead) {
    double own = 0.0, merged = 0.0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < lead.n;
         i += (size_t)gridDim.x * THREADS) {
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

static __global__ void decide(struct scratch *sums, unsigned blocks, float wanted) {
    double own = threadIdx.x < blocks ? sums->own[threadIdx.x] : 0.0;
    double merged = threadIdx.x < blocks ? sums->merged[threadIdx.x] : 0.0;
    own = tw_block_sum(own);
    merged = tw_block_sum(merged);
    if (threadIdx.x > 0) return;
    const float largest = merged > 0.0 ? (float)sqrt(__ddiv_rn(own, merged)) : 0.0f;
    const float scale = wanted < largest ? wanted : largest;
    sums->scale = isfinite(scale) ? scale : 0.0f;
}

static __global__ void follow(struct tw_cuda_lead lead, const struct scratch *sums) {
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
    const size_t pieces = (lead->n + PER_BLOCK - 1) / PER_BLOCK;
    const unsigned blocks = pieces < BLOCKS ? (unsigned)pieces : BLOCKS;
    struct scratch *const sums = (struct scratch *)lead->scratch;
    static_assert(BLOCKS <= THREADS, "one thread a block");
    if (lead->n == 0) return;
    TW_LAUNCH(measure, blocks, THREADS, 0, stream, sums, *lead);
    TW_LAUNCH(decide, 1, THREADS, 0, stream, sums, blocks, 1.0f / (lead->cfg.lr * lead->cfg.steps));
    TW_LAUNCH(follow, tw_stream_blocks(lead->n), TW_STREAM_THREADS, 0, stream, *lead,
              (const struct scratch *)sums);
}
