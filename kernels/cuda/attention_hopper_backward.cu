/* attention_hopper_backward.cu - attention_flash_backward.cu for Hopper: the same two kernels and
 * sums, with warpgroup matrix products (wgmma.cuh) that read both factors from shared memory. In
 * attention_flash_backward.cu, ldmatrix of the block's own rows is the bottleneck; these kernels
 * load only lse and delta into registers.
 *
 * A block has 128 own rows (keys, or queries), 64 for each of two warpgroups, and loops over tiles
 * of 64 rows of the other kind. While one warpgroup computes P and dS, the tensor cores work for
 * the other one. While a warpgroup waits for a tile's scores, the tensor cores finish its sums of
 * the previous tile. All threads copy tiles, one tile ahead. */
#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace {

template <int SIZE> struct hopper_plan {
    static constexpr int THREADS = 256, OWN = 128, TILE = 64, STEPS = SIZE / 16;
    static constexpr int STAGES = 3; /* three buffers for tiles: one being added to sums, one being
                                        multiplied, one being copied */
    static constexpr int ROWS = 2 * TILE * SIZE; /* elements before the row data in a stage */
    static constexpr int STAGE = ROWS + TILE * (int)(sizeof(tw_attention_row) / sizeof(tw_bf16));
    static constexpr size_t SHARED =
        TW_PANEL_ALIGN + (2 * OWN * SIZE + STAGES * STAGE) * sizeof(tw_bf16);
    static_assert(STAGE * sizeof(tw_bf16) % TW_PANEL_ALIGN == 0, "panels begin where they must");
};

struct hopper_tiles {
    tw_bf16 *own1, *own2, *stages;
    uint32_t group_row, warp_row; /* first own row of this warpgroup, and of this warp */

    __device__ __forceinline__ hopper_tiles(tw_bf16 *shared, int own_elements) {
        own1 =
            (tw_bf16 *)(((uintptr_t)shared + TW_PANEL_ALIGN - 1) / TW_PANEL_ALIGN * TW_PANEL_ALIGN);
        own2 = own1 + own_elements;
        stages = own2 + own_elements;
        group_row = threadIdx.x / TW_WG_THREADS * TW_WG_ROWS;
        warp_row = threadIdx.x / 32 * 16;
    }
};

/* Starts copying rows [begin, begin + ROWS) of `from` into panels. Rows beyond the last become
 * zeros. */
template <int SIZE, int ROWS>
__device__ __forceinline__ void
load_panels(tw_bf16 *tile, const tw_attention_rows<const tw_bf16> &from, uint32_t begin) {
    constexpr uint32_t CHUNKS = SIZE / 8, THREADS = hopper_plan<SIZE>::THREADS;
    static_assert(ROWS * CHUNKS % THREADS == 0, "every thread copies as much");
#pragma unroll
    for (uint32_t i = 0; i < ROWS * CHUNKS / THREADS; i++) {
        const uint32_t at = i * THREADS + threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
        const bool is_valid = begin + row < from.count;
        tw_copy_async16(tw_panel_at<ROWS>(tile, row, chunk),
                        from.at(is_valid ? begin + row : 0) + chunk * 8, is_valid);
    }
}

/* Writes the warp's d (16, SIZE) * scale to rows [begin + row, ...) of `to`. Rows [row, row + 16)
 * of `tile`, which is no longer in use, serve as buffer. */
template <int SIZE>
__device__ __forceinline__ void store_panels(const tw_attention_rows<tw_bf16> &to, uint32_t begin,
                                             tw_bf16 *tile, uint32_t row,
                                             const float (&d)[SIZE / 8][4], float scale) {
    constexpr uint32_t CHUNKS = SIZE / 8, OWN = hopper_plan<SIZE>::OWN;
    const uint32_t lane = tw_lane();
#pragma unroll
    for (uint32_t n = 0; n < CHUNKS; n++) {
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            tw_bf16 *at = tw_panel_at<OWN>(tile, row + half * 8 + lane / 4, n);
            *(uint32_t *)(at + lane % 4 * 2) =
                tw_bf16_pair(d[n][half * 2] * scale, d[n][half * 2 + 1] * scale);
        }
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < 16 * CHUNKS / 32; i++) {
        const uint32_t at = row + (i * 32 + lane) / CHUNKS, chunk = (i * 32 + lane) % CHUNKS;
        if (begin + at < to.count) {
            *(uint4 *)(to.at(begin + at) + chunk * 8) =
                *(const uint4 *)tw_panel_at<OWN>(tile, at, chunk);
        }
    }
}

/* Starts copying a pair of arrays, for the own rows or a tile: keys and values, or queries and
 * dout. */
template <int SIZE, int ROWS, bool IS_KEYS>
__device__ __forceinline__ void load_pair(const tw_attention_call &call,
                                          const tw_attention_head &head, tw_bf16 *first,
                                          tw_bf16 *second, uint32_t begin) {
    const struct tw_cuda_attention_arrays &a = call.arrays;
    if (IS_KEYS) {
        load_panels<SIZE, ROWS>(first, tw_attention_keys(call, head, (const tw_bf16 *)a.k), begin);
        load_panels<SIZE, ROWS>(second, tw_attention_keys(call, head, (const tw_bf16 *)a.v), begin);
    } else {
        load_panels<SIZE, ROWS>(
            first, tw_attention_queries(call, head, (const tw_bf16 *)a.q, call.shape.q_stride),
            begin);
        load_panels<SIZE, ROWS>(
            second,
            tw_attention_queries(call, head, (const tw_bf16 *)a.dout, call.shape.out_stride),
            begin);
    }
}

/* Starts copying a tile: rows [from, from + TILE) of the other kind, with their row data if they
 * are queries. */
template <int SIZE, bool IS_KEYS>
__device__ __forceinline__ void load_stage(const tw_attention_call &call,
                                           const tw_attention_head &head, tw_bf16 *stage,
                                           uint32_t from) {
    using plan = hopper_plan<SIZE>;
    load_pair<SIZE, plan::TILE, !IS_KEYS>(call, head, stage, stage + plan::TILE * SIZE, from);
    if (IS_KEYS && threadIdx.x < plan::TILE) {
        const uint32_t row = from + threadIdx.x;
        tw_copy_async16((tw_attention_row *)(stage + plan::ROWS) + threadIdx.x,
                        tw_attention_rows_of(call, head) + (row < head.rows ? row : 0),
                        row < head.rows);
    }
    tw_copy_commit();
}

/* Starts d (64, 64) = the warpgroup's own rows * (rows of a tile)^T. */
template <int SIZE>
__device__ __forceinline__ void multiply_rows(float (&d)[8][4], const tw_bf16 *own, uint32_t row,
                                              const tw_bf16 *tile) {
    using plan = hopper_plan<SIZE>;
    tw_wg_product_64<false>(d, tw_wg_rows<plan::OWN>(own, row, 0),
                            tw_wg_rows<plan::TILE>(tile, 0, 0));
#pragma unroll
    for (uint32_t step = 1; step < plan::STEPS; step++)
        tw_wg_product_64<true>(d, tw_wg_rows<plan::OWN>(own, row, step),
                               tw_wg_rows<plan::TILE>(tile, 0, step));
}

/* Starts d (64, SIZE) = left (64, 64) * a tile, plus d if keeps_d. */
template <int SIZE>
__device__ __forceinline__ void multiply_columns(float (&d)[SIZE / 8][4],
                                                 const uint32_t (&left)[1][4][4],
                                                 const tw_bf16 *tile, bool keeps_d) {
#pragma unroll
    for (uint32_t step = 0; step < 4; step++)
        tw_wg_product_of(d, left[0][step], tw_wg_columns<hopper_plan<SIZE>::TILE>(tile, step),
                         step > 0 || keeps_d);
}

/* A warpgroup's sums over tiles, and the left factors of products that may still be running. The
 * first products overwrite the sums, later ones add to them. */
template <int SIZE> struct hopper_sums {
    float first[SIZE / 8][4], second[SIZE / 8][4]; /* `second` is used only in the kernel of keys */
    uint32_t left_p[1][4][4], left_ds[1][4][4];
    bool is_begun;

    /* Waits for all products. Sums to which no product was added become 0. */
    __device__ __forceinline__ void settle() {
        tw_wg_wait<0>();
        tw_wg_settle(first);
        tw_wg_settle(second);
#pragma unroll
        for (int n = 0; n < SIZE / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                first[n][i] = is_begun ? first[n][i] : 0.0f;
                second[n][i] = is_begun ? second[n][i] : 0.0f;
            }
        }
    }
};

/* One tile as one warp needs it: its two factors, and row data as in tw_attention_hide. */
struct hopper_view {
    const tw_bf16 *tile;
    const tw_attention_row *rows;
    uint32_t most, key;
    bool is_hiding;
};

/* Adds one tile to the sums, without waiting for the last products. The tensor cores run these
 * while the next tile's first products are queued. They are done when the next call has waited for
 * its scores, or after settle(). */
template <int SIZE, bool IS_KEYS>
__device__ __forceinline__ void add_tile(hopper_sums<SIZE> &sums, const hopper_tiles &tiles,
                                         const tw_attention_own<1> &own, const hopper_view &view) {
    const tw_bf16 *tile1 = view.tile, *tile2 = tile1 + hopper_plan<SIZE>::TILE * SIZE;
    float p[1][8][4], ds[1][8][4];
    tw_wg_begin();
    multiply_rows<SIZE>(p[0], tiles.own1, tiles.group_row, tile1);
    tw_wg_commit();
    multiply_rows<SIZE>(ds[0], tiles.own2, tiles.group_row, tile2);
    tw_wg_commit();
    tw_wg_wait<1>(); /* waits for the scores, and thus for the sums of the previous tile */
    tw_wg_settle(p[0]);
    if (IS_KEYS) tw_wg_settle(sums.left_p[0]);
    tw_wg_settle(sums.left_ds[0]);
    tw_attention_soften<SIZE, IS_KEYS>(p, own, view.rows);
    if (view.is_hiding) tw_attention_hide<IS_KEYS>(p, view.rows, view.most, view.key);
    tw_wg_wait<0>();
    tw_wg_settle(ds[0]);
    if (IS_KEYS) tw_tile_round(sums.left_p, p);
    tw_attention_differentiate<IS_KEYS>(ds, p, own, view.rows);
    tw_tile_round(sums.left_ds, ds);
    tw_wg_begin();
    if (IS_KEYS) multiply_columns<SIZE>(sums.second, sums.left_p, tile2, sums.is_begun);
    multiply_columns<SIZE>(sums.first, sums.left_ds, tile1, sums.is_begun);
    tw_wg_commit();
    sums.is_begun = true;
}

__device__ __forceinline__ uint32_t next_stage(uint32_t stage) {
    return stage == 2 ? 0 : stage + 1;
}

/* Waits until this tile has arrived for all threads, and no thread still reads the last tile but
 * one. */
__device__ __forceinline__ void await_tile() {
    tw_copy_wait<0>();
    tw_wg_show_shared();
    __syncthreads();
}

template <int SIZE>
__global__ void __launch_bounds__(hopper_plan<SIZE>::THREADS, 1)
    hopper_backward_keys(const tw_attention_call call, uint32_t blocks) {
    using plan = hopper_plan<SIZE>;
    TW_SHARED_DYNAMIC(tw_bf16, shared);
    const tw_attention_head head = tw_attention_head_of(call, blocks, false);
    const uint32_t begin = head.block * plan::OWN;
    const hopper_tiles tiles(shared, plan::OWN * SIZE);
    load_pair<SIZE, plan::OWN, true>(call, head, tiles.own1, tiles.own2, begin);
    const uint2 seers =
        tw_attention_seers(call, head, begin, min(begin + plan::OWN, call.shape.keys) - 1);
    uint32_t row = seers.x;
    load_stage<SIZE, true>(call, head, tiles.stages, row);

    const tw_attention_own<1> unused = {};
    hopper_sums<SIZE> sums; /* dk, dv */
    sums.is_begun = false;
    const uint32_t group_key = begin + tiles.group_row;
    for (uint32_t stage = 0; row < seers.y; row += plan::TILE, stage = next_stage(stage)) {
        await_tile();
        if (row + plan::TILE < seers.y)
            load_stage<SIZE, true>(call, head, tiles.stages + next_stage(stage) * plan::STAGE,
                                   row + plan::TILE);
        const tw_bf16 *tile = tiles.stages + stage * plan::STAGE;
        const tw_attention_row *rows = (const tw_attention_row *)(tile + plan::ROWS);
        /* Rows beyond the last are zeros and add zero. */
        const tw_attention_keys_seen seen(rows, min(row + plan::TILE, head.rows) - row - 1);
        /* Skips the tile if no query in it attends to a key of the whole warpgroup. */
        if (group_key >= call.shape.keys || seen.has_none(group_key, TW_WG_ROWS)) {
            tw_wg_wait<0>(); /* the next copy overwrites the previous tile, so its products must be
                                done */
            continue;
        }
        add_tile<SIZE, true>(sums, tiles, unused,
                             {tile, rows, plan::TILE - 1, begin + tiles.warp_row,
                              !seen.has_all(group_key, TW_WG_ROWS)});
    }
    sums.settle();
    tw_copy_wait<0>();
    __syncthreads(); /* loads are still in flight here if no row attends to these keys */
    store_panels<SIZE>(tw_attention_keys(call, head, (tw_bf16 *)call.arrays.dk), begin, tiles.own1,
                       tiles.warp_row, sums.first, TW_ATTENTION_SCALE<SIZE>);
    store_panels<SIZE>(tw_attention_keys(call, head, (tw_bf16 *)call.arrays.dv), begin, tiles.own2,
                       tiles.warp_row, sums.second, 1.0f);
}

template <int SIZE>
__global__ void __launch_bounds__(hopper_plan<SIZE>::THREADS, 1)
    hopper_backward_queries(const tw_attention_call call, uint32_t blocks) {
    using plan = hopper_plan<SIZE>;
    TW_SHARED_DYNAMIC(tw_bf16, shared);
    const tw_attention_head head = tw_attention_head_of(call, blocks, true);
    const uint32_t begin = head.block * plan::OWN, last = min(begin + plan::OWN, head.rows) - 1;
    const tw_attention_row *const head_rows = tw_attention_rows_of(call, head);
    const hopper_tiles tiles(shared, plan::OWN * SIZE);
    load_pair<SIZE, plan::OWN, false>(call, head, tiles.own1, tiles.own2, begin);
    uint32_t key = head_rows[begin].begin;
    const uint32_t end = head_rows[last].end;
    load_stage<SIZE, false>(call, head, tiles.stages, key);

    /* A warpgroup without rows skips all tiles; a warp without rows reads the last row's data. */
    const bool has_rows = begin + tiles.group_row <= last;
    const uint32_t group_row = min(begin + tiles.group_row, last);
    const tw_attention_keys_seen seen(head_rows + group_row,
                                      min(group_row + TW_WG_ROWS - 1, last) - group_row);
    const uint32_t row = min(begin + tiles.warp_row, last), most = min(row + 15, last) - row;
    tw_attention_own<1> own;
    own.read(head_rows + row, most);
    hopper_sums<SIZE> sums; /* dq */
    sums.is_begun = false;
    for (uint32_t stage = 0; key < end; key += plan::TILE, stage = next_stage(stage)) {
        await_tile();
        if (key + plan::TILE < end)
            load_stage<SIZE, false>(call, head, tiles.stages + next_stage(stage) * plan::STAGE,
                                    key + plan::TILE);
        if (!has_rows || seen.has_none(key, plan::TILE)) {
            tw_wg_wait<0>(); /* the next copy overwrites the previous tile, so its products must be
                                done */
            continue;
        }
        add_tile<SIZE, false>(sums, tiles, own,
                              {tiles.stages + stage * plan::STAGE, head_rows + row, most, key,
                               !seen.has_all(key, plan::TILE)});
    }
    sums.settle();
    tw_copy_wait<0>();
    __syncthreads(); /* all threads of a warpgroup read its own rows */
    store_panels<SIZE>(
        tw_attention_queries(call, head, (tw_bf16 *)call.arrays.dq, call.shape.q_stride), begin,
        tiles.own1, tiles.warp_row, sums.first, TW_ATTENTION_SCALE<SIZE>);
}

template <int SIZE> void launch(const tw_attention_call &call, void *stream) {
    using plan = hopper_plan<SIZE>;
    const uint32_t heads = call.shape.kv_heads * call.shape.sequences;
    const uint32_t of_keys = (call.shape.keys + plan::OWN - 1) / plan::OWN;
    const uint32_t of_rows = (call.shape.queries * call.shape.group + plan::OWN - 1) / plan::OWN;
    TW_LAUNCH(hopper_backward_keys<SIZE>, of_keys * heads, plan::THREADS, plan::SHARED, stream,
              call, of_keys);
    TW_LAUNCH(hopper_backward_queries<SIZE>, of_rows * heads, plan::THREADS, plan::SHARED, stream,
              call, of_rows);
}

} // namespace

void tw_attention_hopper_backward(const tw_attention_call &call, void *stream) {
    if (call.shape.head_size == 64)
        launch<64>(call, stream);
    else
        launch<128>(call, stream);
}

bool tw_cuda_attention_has_hopper(void) {
#ifdef TW_CUDA_EMULATED
    return false; /* these kernels are slow on this device, and run only if a test requests them */
#else
    int device = 0, major = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess)
        (void)cudaGetLastError(); /* clears CUDA's error, which the next launch would otherwise
                                     report as its own */
    return major == 9;
#endif
}
