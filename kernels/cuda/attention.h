/* attention.h - causal attention on a device, forward and backward, for all heads of all sequences
 * of a batch in one call.
 *
 *     P = softmax(q * k^T / sqrt(head_size)) over the keys a query attends to,  out = P * v
 *
 * FlashAttention-2, arXiv 2307.08691: no (queries, keys) matrix is stored, and the backward pass
 * computes P again from the log-sum-exp of each row. bfloat16 runs on tensor cores if heads have a
 * size of 64 or 128 (fast heads) and every row begins at a multiple of 16 bytes. All other cases,
 * with heads up to TW_CUDA_HEAD_MAX, run on plain kernels. Tiles that no query attends to are
 * neither read nor multiplied. Sums are float32. With bfloat16, P and dS are rounded to bfloat16
 * before they are multiplied.
 *
 * No sum depends on the order of threads: the same inputs give the same bits on one kind of device.
 * Calls queue work on `stream` and return; tw_cuda_finish reports failures. All pointers of
 * `arrays` are device memory and must not overlap. */
#ifndef TW_KERNELS_CUDA_ATTENTION_H
#define TW_KERNELS_CUDA_ATTENTION_H

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/type.h"

enum { TW_CUDA_HEAD_MAX = 256 };

/* Kernels to choose from for a backward pass with fast heads. */
enum tw_cuda_flash {
    TW_CUDA_FLASH_BEST,   /* the fastest kernel that this device supports */
    TW_CUDA_FLASH_WARP,   /* matrix products by single warps: every device */
    TW_CUDA_FLASH_HOPPER, /* matrix products by warpgroups: compute capability 9.0 */
};

/* Keys that a forward pass with heads of 128 reads at a time. */
enum tw_cuda_tile {
    TW_CUDA_TILE_BEST, /* the faster for this device */
    TW_CUDA_TILE_WHOLE,
    TW_CUDA_TILE_HALF, /* for devices with little shared memory */
};

/* Query i of a sequence attends to its keys [begin, keys - queries + i]; queries <= keys. Heads are
 * adjacent in a row; `group` query heads share a key/value head. */
struct tw_cuda_attention {
    enum tw_type type;
    uint32_t sequences, queries, keys;
    uint32_t kv_heads, group, head_size;
    /* Elements between rows. Each gradient has the same stride as its operand. */
    size_t q_stride, kv_stride, out_stride;
    enum tw_cuda_flash flash;
    enum tw_cuda_tile tile;
    size_t kv_rows; /* rows of k and v per sequence: `keys`, or the capacity of a cache */
};

struct tw_cuda_attention_arrays {
    const void *q; /* (sequences, queries, kv_heads * group * head_size) */
    /* (sequences, kv_rows, kv_heads * head_size), of which the first `keys` rows are read */
    const void *k, *v;
    void *out;  /* same shape as q; input of the backward pass */
    float *lse; /* (sequences, kv_heads * group, queries): log-sum-exp of each row of scores; input
                   of the backward pass. NULL if no backward pass follows */
    /* (sequences, queries): the first key that each query attends to, where its document begins.
     * Never smaller than for the query before, nor above the last key that the query attends to.
     * NULL: 0 for all. */
    const uint32_t *begin;
    const void *dout;   /* backward pass only; same shape as out */
    void *dq, *dk, *dv; /* backward pass only; same shapes as q, k, v; overwritten */
    void *scratch; /* backward pass only: tw_cuda_attention_scratch() bytes, aligned to 16 bytes */
};

void tw_cuda_attention(void *stream, const struct tw_cuda_attention *shape,
                       const struct tw_cuda_attention_arrays *arrays);
/* Computes dq, dk, dv from dout. out and lse must be as the forward pass wrote them. */
void tw_cuda_attention_backward(void *stream, const struct tw_cuda_attention *shape,
                                const struct tw_cuda_attention_arrays *arrays);

/* Returns whether the current device multiplies by warpgroups (compute capability 9.0). */
bool tw_cuda_attention_has_hopper(void);

/* Returns the best tile for a device whose multiprocessors have this much shared memory, of which
 * each block occupies reserved_bytes more than it uses. */
enum tw_cuda_tile tw_cuda_attention_tile(size_t shared_bytes, size_t reserved_bytes);

/* Returns the scratch bytes of a backward pass. */
size_t tw_cuda_attention_scratch(const struct tw_cuda_attention *shape);

#ifdef __cplusplus
}
#endif

#endif
