/* matmul_packed.h - reads and writes oneDNN's packed bf16 weights element by element: slow, but
 * without any allocation. matmul_onednn.c uses it when oneDNN finds no memory.
 *
 * Layout of a packed matrix (k, columns), padded with zeros: blocks of 64 columns, each of them
 * split into blocks of 32 rows. Such a block stores pairs of rows, interleaved over its 64 columns.
 */
#ifndef TW_KERNELS_CPU_MATMUL_PACKED_H
#define TW_KERNELS_CPU_MATMUL_PACKED_H

#include "kernels/matmul_library.h"

/* Work like the functions of struct tw_matmul_library, but sum in float64 and cannot fail. */
void tw_matmul_packed_fill(void *packed, const struct tw_weight_panel *panel);
void tw_matmul_packed_multiply(void *y, const void *a, const void *packed,
                               const struct tw_matmul *shape);

#endif
