/* matmul_packed.h - reads and writes oneDNN's packed bf16 weights element by element: slow, but
 * without memory of its own. matmul_onednn.c uses it when oneDNN finds no memory.
 *
 * Layout of packed (k, columns): blocks of 64 columns; in each, blocks of 32 k; in each, pairs of k
 * of 64 columns; padded with zeros. */
#ifndef TW_KERNELS_CPU_MATMUL_PACKED_H
#define TW_KERNELS_CPU_MATMUL_PACKED_H

#include "kernels/matmul_library.h"

/* Like the functions of struct tw_matmul_library. Sums in float64. Cannot fail. */
void tw_matmul_packed_fill(void *packed, const struct tw_weight_panel *panel);
void tw_matmul_packed_multiply(void *y, const void *a, const void *packed,
                               const struct tw_matmul *shape);

#endif
