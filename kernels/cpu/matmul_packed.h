/* matmul_packed.h - what oneDNN's packed bf16 weights are, element by element: slow, without memory
 * of its own. matmul_onednn.c does this itself where oneDNN finds no memory.
 *
 * Packed (k, columns): columns in blocks of 64 one after another, in each of them k in blocks of
 * 32, in each pairs of k of 64 columns; padded with zeros. */
#ifndef TW_KERNELS_CPU_MATMUL_PACKED_H
#define TW_KERNELS_CPU_MATMUL_PACKED_H

#include "kernels/matmul_library.h"

/* As the functions of struct tw_matmul_library. Sums in float64. Cannot fail. */
void tw_matmul_packed_fill(void *packed, const struct tw_weight_panel *panel);
void tw_matmul_packed_multiply(void *y, const void *a, const void *packed,
                               const struct tw_matmul *shape);

#endif
