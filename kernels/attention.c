/* attention.c - the scratch of attention, enough for every table. */
#include "kernels/ops.h"

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The fast tables keep up to five arrays of all keys and ten of a block of 64 (rows of the head, or
 * scores), the reference two floats of each query. */
size_t tw_attention_scratch(const struct tw_attention *shape) {
    const size_t width = round_up(shape->head_size, 16), keys = round_up(shape->keys, 64);
    const size_t fast = 5 * keys * width + 10 * 64 * (width + 64) + 64;
    const size_t plain = 2 * (size_t)shape->group * shape->queries;
    return fast > plain ? fast : plain;
}
