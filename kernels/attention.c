/* attention.c - helpers of the attention passes: the scratch size that is enough for every table of
 * operators (ops.h), and the arrays of one document. */
#include "kernels/ops.h"

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The fast tables need up to five arrays of all keys, and ten arrays of 64 rows of the head or of
 * scores. The reference needs two floats per query. */
size_t tw_attention_scratch(const struct tw_attention *shape) {
    const size_t width = round_up(shape->head_size, 16), keys = round_up(shape->keys, 64);
    const size_t fast = 5 * keys * width + 10 * 64 * (width + 64) + 64;
    const size_t plain = 2 * (size_t)shape->group * shape->queries;
    return fast > plain ? fast : plain;
}

/* Returns the address of row `begin`. NULL stands for an array that the pass does not use, and
 * stays NULL. */
static void *row(const void *x, size_t begin, size_t stride, uint32_t type_bytes) {
    return x == NULL ? NULL : (uint8_t *)(uintptr_t)x + begin * stride * type_bytes;
}

struct tw_attention_arrays tw_attention_document(const struct tw_attention *shape,
                                                 const struct tw_attention_arrays *window,
                                                 uint32_t type_bytes, uint32_t begin) {
    const size_t q = shape->q_stride, kv = shape->kv_stride, out = shape->out_stride;
    return (struct tw_attention_arrays){
        .q = row(window->q, begin, q, type_bytes),
        .k = row(window->k, begin, kv, type_bytes),
        .v = row(window->v, begin, kv, type_bytes),
        .out = row(window->out, begin, out, type_bytes),
        .lse = row(window->lse, begin, shape->group, sizeof(float)),
        .scratch = window->scratch,
        .dout = row(window->dout, begin, out, type_bytes),
        .dq = row(window->dq, begin, q, type_bytes),
        .dk = row(window->dk, begin, kv, type_bytes),
        .dv = row(window->dv, begin, kv, type_bytes),
    };
}
