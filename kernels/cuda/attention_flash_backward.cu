/* attention_flash_backward.cu - the backward pass of attention on tensor cores: FlashAttention-2,
 * arXiv 2307.08691, Algorithm 2, without its atomic sums.
 *
 *     P = exp(q * k^T * scale - lse),  dS = P .* (dout * v^T - delta)
 *     delta = row sums of dout .* out      (.* is elementwise)
 *     dv = P^T * dout,  dk = dS^T * q * scale,  dq = dS * k * scale
 *
 * dk and dv are sums over queries, dq is a sum over keys, so one loop over tiles cannot keep all of
 * them in registers. Two kernels each compute P and dS: 7 matrix products instead of 5, but nothing
 * is accumulated in memory, and the same inputs give the same bits. Both are one template: a block
 * keeps 128 of its own rows (keys, or queries) and loops over tiles of 32 rows of the other kind. s
 * and dp are the products own1 * tile1^T and own2 * tile2^T:
 *
 *                        own1  own2  tile1  tile2   s     sum1 += dS' tile1   sum2 += P' tile2
 *     kernel of keys     k     v     q      dout    S^T   dk                  dv
 *     kernel of queries  q     dout  k      v       S     dq                  -
 *
 * P and dS thus never leave the registers: each product's result there is the left factor of the
 * next product. */
#include "kernels/cuda/attention_backward.cuh"

namespace {

template <int SIZE> struct backward_plan {
    /* Heads of size 128 have sums twice as wide, so a warp has half the rows, and a block twice the
     * warps. */
    static constexpr int M = SIZE == 64 ? 2 : 1, WARPS = SIZE == 64 ? 4 : 8;
    static constexpr int THREADS = WARPS * 32, OWN = WARPS * M * 16, TILE = 32;
    static constexpr int BLOCKS =
        SIZE == 64 ? 2 : 1; /* least number of blocks per multiprocessor */
    static constexpr int ROWS =
        2 * TILE *
        SIZE; /* elements before the row data in a stage (one of the buffers for tiles) */
    static constexpr int STAGE = ROWS + TILE * (int)(sizeof(tw_attention_row) / sizeof(tw_bf16));
    static constexpr size_t SHARED = (2 * OWN * SIZE + 2 * STAGE) * sizeof(tw_bf16);
};

/* Pointers to a block's tiles, and the data of a warp's own rows. */
template <int SIZE> struct backward_block {
    tw_bf16 *own1, *own2, *stages;
    uint32_t warp_row; /* first row of the warp in own1 and own2 */
    tw_attention_own<backward_plan<SIZE>::M> own;
};

/* Starts loading a tile: rows [from, from + TILE) of the other kind (queries or keys). */
template <int SIZE, bool IS_KEYS>
__device__ __forceinline__ void load_stage(const tw_attention_call &call,
                                           const tw_attention_head &head, tw_bf16 *stage,
                                           uint32_t from) {
    using plan = backward_plan<SIZE>;
    const struct tw_cuda_attention_arrays &a = call.arrays;
    if (IS_KEYS) {
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(
            stage, tw_attention_queries(call, head, (const tw_bf16 *)a.q, call.shape.q_stride),
            from);
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(
            stage + plan::TILE * SIZE,
            tw_attention_queries(call, head, (const tw_bf16 *)a.dout, call.shape.out_stride), from);
        const uint32_t row = from + threadIdx.x;
        if (threadIdx.x < plan::TILE) {
            tw_copy_async16((tw_attention_row *)(stage + plan::ROWS) + threadIdx.x,
                            tw_attention_rows_of(call, head) + (row < head.rows ? row : 0),
                            row < head.rows);
        }
    } else {
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(
            stage, tw_attention_keys(call, head, (const tw_bf16 *)a.k), from);
        tw_tile_load<SIZE, plan::TILE, plan::THREADS>(
            stage + plan::TILE * SIZE, tw_attention_keys(call, head, (const tw_bf16 *)a.v), from);
    }
    tw_copy_commit();
}

/* Starts loading the block's own rows. */
template <int SIZE, bool IS_KEYS>
__device__ __forceinline__ void load_own(const tw_attention_call &call,
                                         const tw_attention_head &head, tw_bf16 *own1,
                                         tw_bf16 *own2) {
    using plan = backward_plan<SIZE>;
    const struct tw_cuda_attention_arrays &a = call.arrays;
    const uint32_t begin = head.block * plan::OWN;
    if (IS_KEYS) {
        tw_tile_load<SIZE, plan::OWN, plan::THREADS>(
            own1, tw_attention_keys(call, head, (const tw_bf16 *)a.k), begin);
        tw_tile_load<SIZE, plan::OWN, plan::THREADS>(
            own2, tw_attention_keys(call, head, (const tw_bf16 *)a.v), begin);
    } else {
        tw_tile_load<SIZE, plan::OWN, plan::THREADS>(
            own1, tw_attention_queries(call, head, (const tw_bf16 *)a.q, call.shape.q_stride),
            begin);
        tw_tile_load<SIZE, plan::OWN, plan::THREADS>(
            own2, tw_attention_queries(call, head, (const tw_bf16 *)a.dout, call.shape.out_stride),
            begin);
    }
}

/* Adds one tile to the warp's sums. The kernel of keys adds it in two halves, because its two sums
 * alone occupy 128 registers per lane. */
template <int SIZE, bool IS_KEYS, int M>
__device__ __forceinline__ void
add_tile(float (&sum1)[M][SIZE / 8][4], float (&sum2)[M][SIZE / 8][4],
         const backward_block<SIZE> &block, const tw_bf16 *stage, bool is_hiding,
         const tw_attention_row *rows, uint32_t most, uint32_t key) {
    constexpr uint32_t TILE = backward_plan<SIZE>::TILE, PART = IS_KEYS ? 16 : TILE;
#pragma unroll 1
    for (uint32_t part = 0; part < TILE; part += PART) {
        const tw_bf16 *tile1 = stage + part * SIZE, *tile2 = tile1 + TILE * SIZE;
        const tw_attention_row *part_rows = rows + (IS_KEYS ? part : 0);
        float p[M][PART / 8][4] = {}, ds[M][PART / 8][4] = {};
        uint32_t left[M][PART / 16][4];
        tw_tile_product_transposed<SIZE>(p, block.own1, block.warp_row, tile1);
        tw_attention_soften<SIZE, IS_KEYS>(p, block.own, part_rows);
        if (is_hiding) tw_attention_hide<IS_KEYS>(p, part_rows, most, key + (IS_KEYS ? 0 : part));
        tw_tile_product_transposed<SIZE>(ds, block.own2, block.warp_row, tile2);
        tw_attention_differentiate<IS_KEYS>(ds, p, block.own, part_rows);
        if (IS_KEYS) {
            tw_tile_round(left, p);
            tw_tile_product<SIZE>(sum2, left, tile2);
        }
        tw_tile_round(left, ds);
        tw_tile_product<SIZE>(sum1, left, tile1);
    }
}

template <int SIZE>
__global__ void __launch_bounds__(backward_plan<SIZE>::THREADS, backward_plan<SIZE>::BLOCKS)
    flash_backward_keys(const tw_attention_call call, uint32_t blocks) {
    using plan = backward_plan<SIZE>;
    constexpr int M = plan::M;
    TW_SHARED_DYNAMIC(tw_bf16, shared);
    const tw_attention_head head = tw_attention_head_of(call, blocks, false);
    const uint32_t begin = head.block * plan::OWN;
    backward_block<SIZE> block = {shared,
                                  shared + plan::OWN * SIZE,
                                  shared + 2 * plan::OWN * SIZE,
                                  threadIdx.x / 32 * M * 16,
                                  {}};
    load_own<SIZE, true>(call, head, block.own1, block.own2);
    const uint2 seers =
        tw_attention_seers(call, head, begin, min(begin + plan::OWN, call.shape.keys) - 1);
    uint32_t row = seers.x;
    load_stage<SIZE, true>(call, head, block.stages, row);

    float dk[M][SIZE / 8][4] = {}, dv[M][SIZE / 8][4] = {};
    const uint32_t key = begin + block.warp_row;
    for (uint32_t stage = 0; row < seers.y; row += plan::TILE, stage ^= 1) {
        tw_copy_wait<0>();
        __syncthreads(); /* the tile has arrived, and no warp still reads the other stage */
        if (row + plan::TILE < seers.y) {
            load_stage<SIZE, true>(call, head, block.stages + (stage ^ 1) * plan::STAGE,
                                   row + plan::TILE);
        }
        const tw_bf16 *tile = block.stages + stage * plan::STAGE;
        const tw_attention_row *rows = (const tw_attention_row *)(tile + plan::ROWS);
        /* Rows beyond the last are zeros and add zero. */
        const uint32_t last = min(row + plan::TILE, head.rows) - row - 1;
        const tw_attention_keys_seen seen(rows, last);
        if (key >= call.shape.keys || seen.has_none(key, M * 16)) continue;
        add_tile<SIZE, true>(dk, dv, block, tile, !seen.has_all(key, M * 16), rows, plan::TILE - 1,
                             key);
    }
    tw_copy_wait<0>();
    __syncthreads(); /* loads are still in flight here if no row attends to these keys */
    float scale[M][2], one[M][2];
#pragma unroll
    for (int i = 0; i < M * 2; i++) {
        scale[i / 2][i % 2] = TW_ATTENTION_SCALE<SIZE>;
        one[i / 2][i % 2] = 1.0f;
    }
    tw_tile_store<SIZE, M>(tw_attention_keys(call, head, (tw_bf16 *)call.arrays.dk), begin,
                           block.own1, block.warp_row, dk, scale);
    tw_tile_store<SIZE, M>(tw_attention_keys(call, head, (tw_bf16 *)call.arrays.dv), begin,
                           block.own2, block.warp_row, dv, one);
}

template <int SIZE>
__global__ void __launch_bounds__(backward_plan<SIZE>::THREADS, backward_plan<SIZE>::BLOCKS)
    flash_backward_queries(const tw_attention_call call, uint32_t blocks) {
    using plan = backward_plan<SIZE>;
    constexpr int M = plan::M;
    TW_SHARED_DYNAMIC(tw_bf16, shared);
    const tw_attention_head head = tw_attention_head_of(call, blocks, true);
    const uint32_t begin = head.block * plan::OWN, last = min(begin + plan::OWN, head.rows) - 1;
    const tw_attention_row *const head_rows = tw_attention_rows_of(call, head);
    backward_block<SIZE> block = {shared,
                                  shared + plan::OWN * SIZE,
                                  shared + 2 * plan::OWN * SIZE,
                                  threadIdx.x / 32 * M * 16,
                                  {}};
    load_own<SIZE, false>(call, head, block.own1, block.own2);
    uint32_t key = head_rows[begin].begin;
    const uint32_t end = head_rows[last].end;
    load_stage<SIZE, false>(call, head, block.stages, key);

    /* A warp without rows reads the last row's data and skips all tiles. */
    const bool has_rows = begin + block.warp_row <= last;
    const uint32_t row = min(begin + block.warp_row, last);
    const uint32_t most = min(row + M * 16 - 1, last) - row;
    const tw_attention_row *const rows = head_rows + row;
    const tw_attention_keys_seen seen(rows, most);
    block.own.read(rows, most);
    float dq[M][SIZE / 8][4] = {};
    for (uint32_t stage = 0; key < end; key += plan::TILE, stage ^= 1) {
        tw_copy_wait<0>();
        __syncthreads(); /* the tile has arrived, and no warp still reads the other stage */
        if (key + plan::TILE < end) {
            load_stage<SIZE, false>(call, head, block.stages + (stage ^ 1) * plan::STAGE,
                                    key + plan::TILE);
        }
        if (!has_rows || seen.has_none(key, plan::TILE)) continue;
        add_tile<SIZE, false>(dq, dq, block, block.stages + stage * plan::STAGE,
                              !seen.has_all(key, plan::TILE), rows, most, key);
    }
    float scale[M][2];
#pragma unroll
    for (int i = 0; i < M * 2; i++) scale[i / 2][i % 2] = TW_ATTENTION_SCALE<SIZE>;
    tw_tile_store<SIZE, M>(
        tw_attention_queries(call, head, (tw_bf16 *)call.arrays.dq, call.shape.q_stride), begin,
        block.own1, block.warp_row, dq, scale);
}

template <int SIZE> void launch(const tw_attention_call &call, void *stream) {
    using plan = backward_plan<SIZE>;
    const uint32_t heads = call.shape.kv_heads * call.shape.sequences;
    const uint32_t of_keys = (call.shape.keys + plan::OWN - 1) / plan::OWN;
    const uint32_t of_rows = (call.shape.queries * call.shape.group + plan::OWN - 1) / plan::OWN;
    TW_LAUNCH(flash_backward_keys<SIZE>, of_keys * heads, plan::THREADS, plan::SHARED, stream, call,
              of_keys);
    TW_LAUNCH(flash_backward_queries<SIZE>, of_rows * heads, plan::THREADS, plan::SHARED, stream,
              call, of_rows);
}

} // namespace

void tw_attention_flash_backward(const tw_attention_call &call, void *stream) {
    if (call.shape.head_size == 64)
        launch<64>(call, stream);
    else
        launch<128>(call, stream);
}
