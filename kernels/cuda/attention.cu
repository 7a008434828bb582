/* attention.cu - chooses the kernels for a call, and computes the per-row inputs of the backward
 * pass. */
extern "C" {
#include "base/assert.h"
}
#include "kernels/cuda/attention_view.cuh"

namespace {

enum { THREADS = 256, LANES = 8, ROWS = THREADS / LANES }; /* LANES threads share a row */

/* Returns this lane's partial sum of the dot product of a row of dout and a row of out. */
template <typename T, bool IS_PACKED>
__device__ __forceinline__ float part_of(const T *a, const T *b, uint32_t size, uint32_t lane) {
    constexpr uint32_t COUNT = IS_PACKED ? tw_pack<T>::COUNT : 1;
    float sum = 0.0f;
    for (uint32_t i = lane * COUNT; i < size; i += LANES * COUNT) {
        if (IS_PACKED) {
            const tw_pack<T> x = tw_pack<T>::load(a + i), y = tw_pack<T>::load(b + i);
#pragma unroll
            for (uint32_t j = 0; j < COUNT; j++) sum = fmaf(x.get(j), y.get(j), sum);
        } else {
            sum = fmaf(tw_load_f32(a, i), tw_load_f32(b, i), sum);
        }
    }
    return sum;
}

template <typename T, bool IS_PACKED>
__global__ void __launch_bounds__(THREADS)
    describe_rows(const tw_attention_call call, uint32_t blocks) {
    const tw_attention_head head = tw_attention_head_of(call, blocks, false);
    const uint32_t row = head.block * ROWS + threadIdx.x / LANES;
    const uint32_t at = min(row, head.rows - 1);
    const size_t stride = call.shape.out_stride;
    const auto out = tw_attention_queries(call, head, (const T *)call.arrays.out, stride);
    const auto dout = tw_attention_queries(call, head, (const T *)call.arrays.dout, stride);
    float delta =
        part_of<T, IS_PACKED>(dout.at(at), out.at(at), call.shape.head_size, threadIdx.x % LANES);
#pragma unroll
    for (int by = LANES / 2; by > 0; by /= 2) delta += __shfl_xor_sync(TW_ALL_LANES, delta, by);
    if (threadIdx.x % LANES != 0 || row >= head.rows) return;
    const uint2 seen = tw_attention_seen(call, head, row);
    tw_attention_rows_of(call, head)[row] = {call.arrays.lse[tw_attention_lse_at(call, head, row)],
                                             delta, seen.x, seen.y};
}

template <typename T, bool IS_PACKED> void describe(const tw_attention_call &call, void *stream) {
    const uint32_t blocks = (call.shape.queries * call.shape.group + ROWS - 1) / ROWS;
    TW_LAUNCH((describe_rows<T, IS_PACKED>), blocks * call.shape.kv_heads * call.shape.sequences,
              THREADS, 0, stream, call, blocks);
}

bool is_aligned(const void *array, size_t stride) {
    return (uintptr_t)array % 16 == 0 && stride % 8 == 0;
}

/* Returns whether the fast kernels can run: bf16, heads of 64 or 128, and arrays (or NULL) aligned
 * to 16 bytes. */
bool is_fast(const tw_attention_call &call) {
    const struct tw_cuda_attention &s = call.shape;
    const struct tw_cuda_attention_arrays &a = call.arrays;
    return s.type == TW_BF16 && (s.head_size == 64 || s.head_size == 128) &&
           is_aligned(a.q, s.q_stride) && is_aligned(a.k, s.kv_stride) &&
           is_aligned(a.v, s.kv_stride) && is_aligned(a.out, s.out_stride) &&
           is_aligned(a.dout, s.out_stride) && is_aligned(a.dq, s.q_stride) &&
           is_aligned(a.dk, s.kv_stride) && is_aligned(a.dv, s.kv_stride);
}

bool is_hopper(const struct tw_cuda_attention *shape) {
    if (shape->flash == TW_CUDA_FLASH_BEST) return tw_cuda_attention_has_hopper();
    return shape->flash == TW_CUDA_FLASH_HOPPER;
}

/* Checks the shape, and returns false if there is nothing to compute. */
bool is_work(const struct tw_cuda_attention *shape) {
    TW_ASSERT(shape->head_size > 0 && shape->head_size <= TW_CUDA_HEAD_MAX);
    TW_ASSERT(shape->kv_heads > 0 && shape->group > 0);
    TW_ASSERT(shape->queries <= shape->keys && shape->keys <= shape->kv_rows);
    /* A launch has fewer than 2^31 blocks, and a row index has 32 bits. */
    TW_ASSERT((uint64_t)shape->keys * shape->group * shape->kv_heads * shape->sequences < 1u << 31);
    return shape->sequences > 0 && shape->queries > 0;
}

} // namespace

void tw_cuda_attention(void *stream, const struct tw_cuda_attention *shape,
                       const struct tw_cuda_attention_arrays *arrays) {
    if (!is_work(shape)) return;
    tw_attention_call call = {*shape, *arrays};
    call.arrays.dout = call.arrays.dq = call.arrays.dk = call.arrays.dv = nullptr;
    if (is_fast(call))
        tw_attention_flash(call, stream);
    else
        tw_attention_plain(call, stream);
}

void tw_cuda_attention_backward(void *stream, const struct tw_cuda_attention *shape,
                                const struct tw_cuda_attention_arrays *arrays) {
    if (!is_work(shape)) return;
    TW_ASSERT((uintptr_t)arrays->scratch % 16 == 0);
    const tw_attention_call call = {*shape, *arrays};
    if (is_fast(call)) {
        describe<tw_bf16, true>(call, stream);
        if (is_hopper(shape))
            tw_attention_hopper_backward(call, stream);
        else
            tw_attention_flash_backward(call, stream);
        return;
    }
    if (shape->type == TW_BF16)
        describe<tw_bf16, false>(call, stream);
    else
        describe<float, false>(call, stream);
    tw_attention_plain_backward(call, stream);
}

size_t tw_cuda_attention_scratch(const struct tw_cuda_attention *shape) {
    return (size_t)shape->sequences * shape->kv_heads * shape->group * shape->queries *
           sizeof(struct tw_attention_row);
}
