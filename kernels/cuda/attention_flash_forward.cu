/* attention_flash_forward.cu - attention on tensor cores: FlashAttention-2, arXiv 2307.08691,
 * Algorithm 1. A block keeps 128 rows of queries and loops over the keys they attend to. */
#include "kernels/cuda/attention_tile.cuh"

namespace {

template <int SIZE, int KEYS> struct forward_plan {
    static constexpr int M =
        2; /* blocks of 16 rows per warp; two halve the reads of each tile of keys */
    static constexpr int WARPS = 4, THREADS = WARPS * 32, OWN = WARPS * M * 16;
    static constexpr int TILE = KEYS;
    static constexpr int STAGE = 2 * TILE * SIZE; /* elements: k and v */
    static constexpr size_t SHARED = (OWN * SIZE + 2 * STAGE) * sizeof(tw_bf16);
};

/* Keys per tile with heads of 128: as many as fit into registers and, with two blocks per
 * multiprocessor, into shared memory. Where a multiprocessor has 100 KiB, that is half as many. Two
 * blocks of four warps hide each other's waits for softmax, barriers and memory. */
constexpr int WHOLE = 32, HALF = 16;

/* Results so far of a warp's rows. `sum` covers only the columns of one lane. */
template <int SIZE, int M> struct forward_rows {
    float out[M][SIZE / 8][4];
    float max[M][2], sum[M][2];
};

/* Sets scores to -infinity where the row does not attend to the key. */
template <int M, int N>
__device__ __forceinline__ void hide(float (&s)[M][N][4], const tw_attention_call &call,
                                     const tw_attention_head &head, uint32_t row, uint32_t key) {
    const uint32_t lane = tw_lane();
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t own = row + m * 16 + half * 8 + lane / 4;
            const uint2 seen = tw_attention_seen(call, head, min(own, head.rows - 1));
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                const uint32_t at = key + i / 2 * 8 + lane % 4 * 2 + i % 2;
                if (at < seen.x || at >= seen.y) s[m][i / 2][half * 2 + i % 2] = -INFINITY;
            }
        }
    }
}

/* Online softmax, computed with 2^x: scores become exp(score - max), and earlier results are
 * rescaled to the new max. A row without any key so far has max = -infinity. */
template <int SIZE, int M, int N>
__device__ __forceinline__ void soften(forward_rows<SIZE, M> &rows, float (&s)[M][N][4],
                                       float scale) {
    float correction[M][2];
    bool is_same = true;
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = rows.max[m][half], sum = 0.0f;
#pragma unroll
            for (int i = 0; i < 2 * N; i++) top = fmaxf(top, s[m][i / 2][half * 2 + i % 2]);
            top = fmaxf(top, __shfl_xor_sync(TW_ALL_LANES, top, 1));
            top = fmaxf(top, __shfl_xor_sync(TW_ALL_LANES, top, 2));
            const float base = top == -INFINITY ? 0.0f : top * scale;
            correction[m][half] = tw_exp2(rows.max[m][half] * scale - base);
            is_same = is_same && correction[m][half] == 1.0f;
            rows.max[m][half] = top;
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                float &value = s[m][i / 2][half * 2 + i % 2];
                value = tw_exp2(fmaf(value, scale, -base));
                sum += value;
            }
            rows.sum[m][half] = fmaf(rows.sum[m][half], correction[m][half], sum);
        }
    }
    if (__all_sync(TW_ALL_LANES, is_same))
        return; /* usually the largest score comes early, so nothing must be rescaled */
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int i = 0; i < SIZE / 2; i++) rows.out[m][i / 4][i % 4] *= correction[m][i / 2 % 2];
    }
}

/* Divides the warp's rows by their sums, and writes out and lse. */
template <int SIZE, typename plan>
__device__ __forceinline__ void finish(forward_rows<SIZE, plan::M> &rows,
                                       const tw_attention_call &call, const tw_attention_head &head,
                                       tw_bf16 *own, uint32_t warp_row) {
    const uint32_t begin = head.block * plan::OWN, lane = tw_lane();
    float factor[plan::M][2];
#pragma unroll
    for (int m = 0; m < plan::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = rows.sum[m][half];
            sum += __shfl_xor_sync(TW_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(TW_ALL_LANES, sum, 2);
            factor[m][half] = 1.0f / sum;
            const uint32_t row = begin + warp_row + m * 16 + half * 8 + lane / 4;
            if (call.arrays.lse != nullptr && lane % 4 == 0 && row < head.rows) {
                call.arrays.lse[tw_attention_lse_at(call, head, row)] =
                    rows.max[m][half] * TW_ATTENTION_SCALE<SIZE> + logf(sum);
            }
        }
    }
    tw_tile_store<SIZE, plan::M>(
        tw_attention_queries(call, head, (tw_bf16 *)call.arrays.out, call.shape.out_stride), begin,
        own, warp_row, rows.out, factor);
}

template <int SIZE, int KEYS>
__global__ void __launch_bounds__(forward_plan<SIZE, KEYS>::THREADS, 2)
    flash_forward(const tw_attention_call call, uint32_t blocks) {
    using plan = forward_plan<SIZE, KEYS>;
    TW_SHARED_DYNAMIC(tw_bf16, own);
    tw_bf16 *const stages = own + plan::OWN * SIZE;
    const tw_attention_head head = tw_attention_head_of(call, blocks, true);
    const auto q =
        tw_attention_queries(call, head, (const tw_bf16 *)call.arrays.q, call.shape.q_stride);
    const auto k = tw_attention_keys(call, head, (const tw_bf16 *)call.arrays.k);
    const auto v = tw_attention_keys(call, head, (const tw_bf16 *)call.arrays.v);
    const uint32_t begin = head.block * plan::OWN, last = min(begin + plan::OWN, head.rows) - 1;
    uint32_t key = tw_attention_seen(call, head, begin).x;
    const uint32_t end = tw_attention_seen(call, head, last).y;
    const auto load = [&](uint32_t stage, uint32_t from) {
        tw_bf16 *to = stages + stage * plan::STAGE;
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(to, k, from);
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(to + plan::TILE * SIZE, v, from);
        tw_copy_commit();
    };
    tw_tile_load<SIZE, plan::OWN, plan::THREADS>(own, q, begin);
    load(0, key);

    const uint32_t warp_row = threadIdx.x / 32 * plan::M * 16, row = begin + warp_row;
    const bool has_rows = row < head.rows;
    const uint2 first_sees = tw_attention_seen(call, head, min(row, last));
    const uint2 last_sees = tw_attention_seen(call, head, min(row + plan::M * 16 - 1, last));
    const float scale = TW_ATTENTION_SCALE<SIZE> * TW_LOG2_E;
    forward_rows<SIZE, plan::M> rows = {};
#pragma unroll
    for (int i = 0; i < plan::M * 2; i++) rows.max[i / 2][i % 2] = -INFINITY;
    for (uint32_t stage = 0; key < end; key += plan::TILE, stage ^= 1) {
        tw_copy_wait<0>();
        __syncthreads(); /* the tile has arrived, and no warp still reads the other stage */
        if (key + plan::TILE < end) load(stage ^ 1, key + plan::TILE);
        if (!has_rows || key >= last_sees.y || key + plan::TILE <= first_sees.x) continue;
        const tw_bf16 *keys = stages + stage * plan::STAGE;
        float s[plan::M][plan::TILE / 8][4] = {};
        tw_tile_product_transposed<SIZE>(s, own, warp_row, keys);
        if (key + plan::TILE > first_sees.y || key < last_sees.x) hide(s, call, head, row, key);
        soften(rows, s, scale);
        uint32_t p[plan::M][plan::TILE / 16][4];
        tw_tile_round(p, s);
        tw_tile_product<SIZE>(rows.out, p, keys + plan::TILE * SIZE);
    }
    finish<SIZE, plan>(rows, call, head, own, warp_row);
}

template <int SIZE, int KEYS> void launch(const tw_attention_call &call, void *stream) {
    using plan = forward_plan<SIZE, KEYS>;
    const uint32_t rows = call.shape.queries * call.shape.group;
    const uint32_t blocks = (rows + plan::OWN - 1) / plan::OWN;
    TW_LAUNCH((flash_forward<SIZE, KEYS>),
              dim3(blocks * call.shape.kv_heads * call.shape.sequences), dim3(plan::THREADS),
              plan::SHARED, stream, call, blocks);
}

/* Returns the tile for the current device. */
enum tw_cuda_tile best_tile() {
#ifdef TW_CUDA_EMULATED
    return TW_CUDA_TILE_WHOLE;
#else
    int device = 0, shared = 0, reserved = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device) !=
            cudaSuccess)
        (void)cudaGetLastError(); /* clears CUDA's error, which the next launch would otherwise
                                     report as its own */
    return tw_cuda_attention_tile((size_t)shared, (size_t)reserved);
#endif
}

} // namespace

enum tw_cuda_tile tw_cuda_attention_tile(size_t shared_bytes, size_t reserved_bytes) {
    const size_t two_blocks = 2 * (forward_plan<128, WHOLE>::SHARED + reserved_bytes);
    return two_blocks <= shared_bytes ? TW_CUDA_TILE_WHOLE : TW_CUDA_TILE_HALF;
}

void tw_attention_flash(const tw_attention_call &call, void *stream) {
    const enum tw_cuda_tile asked = call.shape.tile;
    if (call.shape.head_size == 64) {
        launch<64, 64>(call, stream);
    } else if ((asked == TW_CUDA_TILE_BEST ? best_tile() : asked) == TW_CUDA_TILE_WHOLE) {
        launch<128, WHOLE>(call, stream);
    } else {
        launch<128, HALF>(call, stream);
    }
}
