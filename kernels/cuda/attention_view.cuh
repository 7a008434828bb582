/* attention_view.cuh - the data of one block of an attention kernel: one key/value head of one
 * sequence, and some of its rows or keys.
 *
 * Query heads of a group share keys, so a block treats them as rows of one matrix: row r is query r
 * / group of the group's head r % group. */
#ifndef TW_KERNELS_CUDA_ATTENTION_VIEW_CUH
#define TW_KERNELS_CUDA_ATTENTION_VIEW_CUH

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.cuh"

/* The arguments of a call, as passed to kernels. */
struct tw_attention_call {
    struct tw_cuda_attention shape;
    struct tw_cuda_attention_arrays arrays;
};

/* The values that the backward pass needs per row of scores. They are in scratch: (sequences,
 * kv_heads, rows). */
struct alignas(16) tw_attention_row {
    float lse;
    float delta;         /* dout . out */
    uint32_t begin, end; /* range [begin, end) of the keys that this row attends to */
};

/* The block's head. */
struct tw_attention_head {
    uint32_t sequence, head; /* head: index of the key/value head */
    uint32_t block;          /* index of the block of rows, or of keys */
    uint32_t rows;
};

/* Finds the head of this block. Blocks of a head are adjacent in the grid, so that shared data is
 * read from memory once. With is_falling the last block comes first, because late rows attend to
 * more keys and take longer. */
static __device__ __forceinline__ tw_attention_head
tw_attention_head_of(const tw_attention_call &call, uint32_t blocks, bool is_falling) {
    const uint32_t block = blockIdx.x % blocks, rest = blockIdx.x / blocks;
    return {rest / call.shape.kv_heads, rest % call.shape.kv_heads,
            is_falling ? blocks - 1 - block : block, call.shape.queries * call.shape.group};
}

/* Returns the range [x, y) of the keys that a row attends to. */
static __device__ __forceinline__ uint2 tw_attention_seen(const tw_attention_call &call,
                                                          const tw_attention_head &head,
                                                          uint32_t row) {
    const uint32_t query = row / call.shape.group;
    const uint32_t *begin = call.arrays.begin;
    return make_uint2(
        begin == nullptr ? 0 : __ldg(begin + (size_t)head.sequence * call.shape.queries + query),
        call.shape.keys - call.shape.queries + query + 1);
}

/* Returns the index of a row's lse. */
static __device__ __forceinline__ size_t tw_attention_lse_at(const tw_attention_call &call,
                                                             const tw_attention_head &head,
                                                             uint32_t row) {
    const size_t first = ((size_t)head.sequence * call.shape.kv_heads + head.head) * head.rows;
    return first + (size_t)(row % call.shape.group) * call.shape.queries + row / call.shape.group;
}

static __device__ __forceinline__ tw_attention_row *
tw_attention_rows_of(const tw_attention_call &call, const tw_attention_head &head) {
    return (tw_attention_row *)call.arrays.scratch +
           ((size_t)head.sequence * call.shape.kv_heads + head.head) * head.rows;
}

/* Rows of a head: in q or out with the call's group, in k or v with group = 1. */
template <typename T> struct tw_attention_rows {
    T *first;
    size_t stride;
    uint32_t group, size, count;

    __device__ __forceinline__ T *at(uint32_t row) const {
        if (group == 1) return first + row * stride;
        return first + row / group * stride + row % group * size;
    }
};

/* Returns the head's rows of an array shaped like q or out. */
template <typename T>
static __device__ __forceinline__ tw_attention_rows<T>
tw_attention_queries(const tw_attention_call &call, const tw_attention_head &head, T *array,
                     size_t stride) {
    const struct tw_cuda_attention &shape = call.shape;
    return {array + (size_t)head.sequence * shape.queries * stride +
                (size_t)head.head * shape.group * shape.head_size,
            stride, shape.group, shape.head_size, head.rows};
}

/* Returns the head's rows of an array shaped like k. */
template <typename T>
static __device__ __forceinline__ tw_attention_rows<T>
tw_attention_keys(const tw_attention_call &call, const tw_attention_head &head, T *array) {
    const struct tw_cuda_attention &shape = call.shape;
    return {array + (size_t)head.sequence * shape.kv_rows * shape.kv_stride +
                (size_t)head.head * shape.head_size,
            shape.kv_stride, 1, shape.head_size, shape.keys};
}

/* Returns the rows [x, y) that attend to at least one of the keys [key, last]. */
static __device__ __forceinline__ uint2 tw_attention_seers(const tw_attention_call &call,
                                                           const tw_attention_head &head,
                                                           uint32_t key, uint32_t last) {
    const uint32_t hidden =
        call.shape.keys - call.shape.queries; /* keys before the first query's position */
    uint32_t from = key > hidden ? key - hidden : 0, to = call.shape.queries;
    const uint32_t first = from;
    if (call.arrays.begin != nullptr) {
        const uint32_t *begin = call.arrays.begin + (size_t)head.sequence * call.shape.queries;
        while (from < to) { /* finds the first query whose document begins after `last` */
            const uint32_t middle = from + (to - from) / 2;
            if (__ldg(begin + middle) <= last)
                from = middle + 1;
            else
                to = middle;
        }
    }
    return make_uint2(first * call.shape.group, to * call.shape.group);
}

/* Launch the kernels of attention_flash_*.cu, attention_hopper_backward.cu and attention_plain.cu.
 */
void tw_attention_flash(const tw_attention_call &call, void *stream);
void tw_attention_flash_backward(const tw_attention_call &call, void *stream);
void tw_attention_hopper_backward(const tw_attention_call &call, void *stream);
void tw_attention_plain(const tw_attention_call &call, void *stream);
void tw_attention_plain_backward(const tw_attention_call &call, void *stream);

#endif
