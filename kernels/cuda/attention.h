/* attention.h - causal attention on a device, both passes, for all heads of all sequences of a
 * batch in one call.
 *
 *     P = softmax(q k^T / sqrt(head_size)) over the keys a query sees,  out = P v
 *
 * FlashAttention-2, arXiv 2307.08691: never (queries, keys) of anything, the backward pass computes
 * P again from the log sum of each row. bfloat16 with heads of 64 or 128 runs on the tensor cores
 * where every row begins at 16 bytes (pointers, and strides in multiples of 8); all else, and any
 * head up to TW_CUDA_HEAD_MAX, on plain kernels. Tiles that no query may see are neither read nor
 * multiplied. Sums are float32; bfloat16 rounds P (and dS) to bfloat16 before it multiplies them.
 *
 * No sum depends on the order in which threads run: the same inputs give the same bits on one kind
 * of device. Calls queue work on `stream` and return; what fails is told by tw_cuda_finish.
 * Everything `arrays` points to is device memory and must not overlap. */
#ifndef TW_KERNELS_CUDA_ATTENTION_H
#define TW_KERNELS_CUDA_ATTENTION_H

#ifdef __cplusplus
extern "C" { /* around the headers of the project, too: they are plain C */
#endif

#include <stddef.h>
#include <stdint.h>

#include "kernels/type.h"

enum { TW_CUDA_HEAD_MAX = 256 };

/* Query i of a sequence sees its keys [begin, keys - queries + i]; queries <= keys. Heads lie next
 * to each other in a row; `group` query heads share a key/value head. */
struct tw_cuda_attention {
    enum tw_type type;
    uint32_t sequences, queries, keys;
    uint32_t kv_heads, group, head_size;
    /* Elements between rows; those of gradients are those of what they are gradients of. */
    size_t q_stride, kv_stride, out_stride;
    size_t kv_rows; /* rows of k and v from one sequence to the next: keys, or those of a cache */
};

struct tw_cuda_attention_arrays {
    const void *q; /* (sequences, queries, kv_heads * group * head_size) */
    /* (sequences, kv_rows, kv_heads * head_size), of which the first `keys` rows are read */
    const void *k, *v;
    void *out;  /* as q; input of the backward pass */
    float *lse; /* (sequences, kv_heads * group, queries): log sum exp of each row of scores;
                   likewise. NULL: not wanted by a forward pass that none follows */
    /* (sequences, queries): the first key each query sees, which is that of its document; never
     * less than that of the query before it, nor more than the last key it sees. NULL: 0 for all */
    const uint32_t *begin;
    const void *dout;   /* of the backward pass alone, as out */
    void *dq, *dk, *dv; /* likewise, as q, k, v; overwritten */
    void *scratch;      /* likewise: tw_cuda_attention_scratch() bytes, on a multiple of 16 */
};

void tw_cuda_attention(void *stream, const struct tw_cuda_attention *shape,
                       const struct tw_cuda_attention_arrays *arrays);
/* dq, dk, dv = dL/d from dout; out and lse as the forward pass left them. */
void tw_cuda_attention_backward(void *stream, const struct tw_cuda_attention *shape,
                                const struct tw_cuda_attention_arrays *arrays);

/* Of a backward pass. */
size_t tw_cuda_attention_scratch(const struct tw_cuda_attention *shape);

#ifdef __cplusplus
}
#endif

#endif
