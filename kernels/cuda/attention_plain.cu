/* attention_plain.cu - attention for heads of any size and both types, without tensor cores: the
 * same loops over tiles as in attention_flash_*.cu, in float32. A warp keeps 4 own rows and loops
 * over tiles of 32 rows of the other kind. A lane holds the scores of one of these, and every 32nd
 * column of a sum. */
#include "kernels/cuda/attention_view.cuh"

namespace {

enum { WARPS = 4, MINE = 4, OWN = WARPS * MINE, TILE = 32, THREADS = WARPS * 32 };

/* Loads rows [begin, begin + count) as float32, `stride` elements apart. Rows beyond the last
 * become zeros. */
template <typename T>
__device__ __forceinline__ void load(float *to, uint32_t stride,
                                     const tw_attention_rows<const T> &from, uint32_t begin,
                                     uint32_t count) {
    for (uint32_t row = threadIdx.x / 32; row < count; row += WARPS) {
        const bool is_valid = begin + row < from.count;
        const T *at = from.at(is_valid ? begin + row : 0);
        for (uint32_t i = threadIdx.x % 32; i < from.size; i += 32) {
            to[row * stride + i] = is_valid ? tw_load_f32(at, i) : 0.0f;
        }
    }
}

/* Sets d[i] to the dot product of own row i and this lane's row of the tile. */
__device__ __forceinline__ void dots(float (&d)[MINE], const float *own, const float *tile,
                                     uint32_t size) {
    const float *mine = tile + threadIdx.x % 32 * (size | 1);
#pragma unroll
    for (int i = 0; i < MINE; i++) d[i] = 0.0f;
    for (uint32_t c = 0; c < size; c++) {
#pragma unroll
        for (int i = 0; i < MINE; i++) d[i] = fmaf(own[i * size + c], mine[c], d[i]);
    }
}

/* Adds p (MINE, TILE) * tile (TILE, size) to sum (MINE, size). A lane's p[i] is one column of p. */
template <int N>
__device__ __forceinline__ void add(float (&sum)[MINE][N], const float (&p)[MINE],
                                    const float *tile, uint32_t size) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t row = 0; row < TILE; row++) {
        float of_row[MINE];
#pragma unroll
        for (int i = 0; i < MINE; i++) of_row[i] = __shfl_sync(TW_ALL_LANES, p[i], (int)row);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const uint32_t column = n * 32 + lane;
            const float value = column < size ? tile[row * (size | 1) + column] : 0.0f;
#pragma unroll
            for (int i = 0; i < MINE; i++) sum[i][n] = fmaf(of_row[i], value, sum[i][n]);
        }
    }
}

template <typename T, int N>
__device__ __forceinline__ void store(const tw_attention_rows<T> &to, uint32_t row,
                                      const float (&sum)[N], float factor) {
    if (row >= to.count) return;
    T *at = to.at(row);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const uint32_t column = n * 32 + threadIdx.x % 32;
        if (column < to.size) tw_store_f32(at, column, sum[n] * factor);
    }
}

/* N: columns per lane; head_size <= 32 * N. */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS, 4)
    plain_forward(const tw_attention_call call, uint32_t blocks) {
    TW_SHARED_DYNAMIC(float, own);
    const uint32_t size = call.shape.head_size, lane = threadIdx.x % 32;
    float *const keys = own + OWN * size, *const values = keys + TILE * (size | 1);
    const tw_attention_head head = tw_attention_head_of(call, blocks, true);
    const uint32_t begin = head.block * OWN, last = min(begin + OWN, head.rows) - 1;
    const uint32_t mine = threadIdx.x / 32 * MINE, end = tw_attention_seen(call, head, last).y;
    const float scale = 1.0f / sqrtf((float)size);
    load(own, size, tw_attention_queries(call, head, (const T *)call.arrays.q, call.shape.q_stride),
         begin, OWN);
    float out[MINE][N] = {}, most[MINE], sum[MINE] = {};
    for (int i = 0; i < MINE; i++) most[i] = -INFINITY;
    for (uint32_t key = tw_attention_seen(call, head, begin).x; key < end; key += TILE) {
        __syncthreads();
        load(keys, size | 1, tw_attention_keys(call, head, (const T *)call.arrays.k), key, TILE);
        load(values, size | 1, tw_attention_keys(call, head, (const T *)call.arrays.v), key, TILE);
        __syncthreads();
        float p[MINE];
        dots(p, own + mine * size, keys, size);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const uint2 seen = tw_attention_seen(call, head, min(begin + mine + i, last));
            const bool is_seen = key + lane >= seen.x && key + lane < seen.y;
            const float score = is_seen ? p[i] * scale : -INFINITY;
            const float top = tw_max_or_nan(most[i], tw_warp_max(score));
            const float base = top == -INFINITY ? 0.0f : top; /* no key so far */
            const float correction = expf(most[i] - base);
            p[i] = expf(score - base);
            most[i] = top;
            sum[i] = fmaf(sum[i], correction, tw_warp_sum(p[i]));
#pragma unroll
            for (int n = 0; n < N; n++) out[i][n] *= correction;
        }
        add(out, p, values, size);
    }
    const auto to = tw_attention_queries(call, head, (T *)call.arrays.out, call.shape.out_stride);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        const uint32_t row = begin + mine + i;
        store(to, row, out[i], 1.0f / sum[i]);
        if (lane == 0 && row <= last && call.arrays.lse != nullptr) {
            call.arrays.lse[tw_attention_lse_at(call, head, row)] = most[i] + logf(sum[i]);
        }
    }
}

/* The kernel of keys computes dk and dv, the kernel of queries dq. The table in
 * attention_flash_backward.cu names the arrays. */
template <typename T, int N, bool IS_KEYS>
__global__ void __launch_bounds__(THREADS, 4)
    plain_backward(const tw_attention_call call, uint32_t blocks) {
    TW_SHARED_DYNAMIC(float, own1);
    const uint32_t size = call.shape.head_size, lane = threadIdx.x % 32;
    float *const own2 = own1 + OWN * size, *const tile1 = own2 + OWN * size;
    float *const tile2 = tile1 + TILE * (size | 1);
    const tw_attention_head head = tw_attention_head_of(call, blocks, !IS_KEYS);
    const struct tw_cuda_attention_arrays &a = call.arrays;
    const auto q = tw_attention_queries(call, head, (const T *)a.q, call.shape.q_stride);
    const auto dout = tw_attention_queries(call, head, (const T *)a.dout, call.shape.out_stride);
    const auto k = tw_attention_keys(call, head, (const T *)a.k);
    const auto v = tw_attention_keys(call, head, (const T *)a.v);
    const tw_attention_row *const rows = tw_attention_rows_of(call, head);
    const uint32_t begin = head.block * OWN, mine = begin + threadIdx.x / 32 * MINE;
    const uint32_t last = min(begin + OWN, IS_KEYS ? k.count : head.rows) - 1;
    const uint2 others = IS_KEYS ? tw_attention_seers(call, head, begin, last)
                                 : make_uint2(rows[begin].begin, rows[last].end);
    const float scale = 1.0f / sqrtf((float)size);
    load(own1, size, IS_KEYS ? k : q, begin, OWN);
    load(own2, size, IS_KEYS ? v : dout, begin, OWN);
    float sum1[MINE][N] = {}, sum2[MINE][N] = {};
    for (uint32_t other = others.x; other < others.y; other += TILE) {
        __syncthreads();
        load(tile1, size | 1, IS_KEYS ? q : k, other, TILE);
        load(tile2, size | 1, IS_KEYS ? dout : v, other, TILE);
        __syncthreads();
        float p[MINE], ds[MINE];
        dots(p, own1 + (mine - begin) * size, tile1, size);
        dots(ds, own2 + (mine - begin) * size, tile2, size);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            const uint32_t row = IS_KEYS ? other + lane : mine + i;
            const uint32_t key = IS_KEYS ? mine + i : other + lane;
            const tw_attention_row of = rows[min(row, head.rows - 1)];
            const bool is_seen = row < head.rows && key >= of.begin && key < of.end;
            p[i] = is_seen ? expf(p[i] * scale - of.lse) : 0.0f;
            ds[i] = is_seen ? p[i] * (ds[i] - of.delta) : 0.0f;
        }
        add(sum1, ds, tile1, size);
        if (IS_KEYS) add(sum2, p, tile2, size);
    }
    const auto to_q = tw_attention_queries(call, head, (T *)a.dq, call.shape.q_stride);
    const auto to_k = tw_attention_keys(call, head, (T *)a.dk);
    const auto to_v = tw_attention_keys(call, head, (T *)a.dv);
#pragma unroll
    for (int i = 0; i < MINE; i++) {
        store(IS_KEYS ? to_k : to_q, mine + i, sum1[i], scale);
        if (IS_KEYS) store(to_v, mine + i, sum2[i], 1.0f);
    }
}

uint32_t blocks_of(uint32_t rows) {
    return (rows + OWN - 1) / OWN;
}

/* Returns the bytes of shared memory: tiles `own` of OWN rows, and two tiles of TILE rows. */
size_t shared_of(const tw_attention_call &call, uint32_t own) {
    const size_t size = call.shape.head_size;
    return (own * OWN * size + 2 * TILE * (size | 1)) * sizeof(float);
}

template <typename T, int N> void forward(const tw_attention_call &call, void *stream) {
    const uint32_t blocks = blocks_of(call.shape.queries * call.shape.group);
    TW_LAUNCH((plain_forward<T, N>), blocks * call.shape.kv_heads * call.shape.sequences, THREADS,
              shared_of(call, 1), stream, call, blocks);
}

template <typename T, int N> void backward(const tw_attention_call &call, void *stream) {
    const uint32_t heads = call.shape.kv_heads * call.shape.sequences;
    const uint32_t of_keys = blocks_of(call.shape.keys);
    const uint32_t of_rows = blocks_of(call.shape.queries * call.shape.group);
    TW_LAUNCH((plain_backward<T, N, true>), of_keys * heads, THREADS, shared_of(call, 2), stream,
              call, of_keys);
    TW_LAUNCH((plain_backward<T, N, false>), of_rows * heads, THREADS, shared_of(call, 2), stream,
              call, of_rows);
}

template <typename T> void forward_of(const tw_attention_call &call, void *stream) {
    if (call.shape.head_size <= 64)
        forward<T, 2>(call, stream);
    else if (call.shape.head_size <= 128)
        forward<T, 4>(call, stream);
    else
        forward<T, 8>(call, stream);
}

template <typename T> void backward_of(const tw_attention_call &call, void *stream) {
    if (call.shape.head_size <= 64)
        backward<T, 2>(call, stream);
    else if (call.shape.head_size <= 128)
        backward<T, 4>(call, stream);
    else
        backward<T, 8>(call, stream);
}

} // namespace

void tw_attention_plain(const tw_attention_call &call, void *stream) {
    if (call.shape.type == TW_BF16)
        forward_of<tw_bf16>(call, stream);
    else
        forward_of<float>(call, stream);
}

void tw_attention_plain_backward(const tw_attention_call &call, void *stream) {
    if (call.shape.type == TW_BF16)
        backward_of<tw_bf16>(call, stream);
    else
        backward_of<float>(call, stream);
}
