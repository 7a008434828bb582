#include "kernels/cpu/matmul_packed.h"

#include <string.h>

enum { BLOCK = TW_MATMUL_PAD_K * TW_MATMUL_PAD_N };

static size_t blocks_of(uint32_t n, size_t unit) {
    return (n + unit - 1) / unit;
}

/* Returns the index of element (l, j) of a packed matrix with k rows. */
static size_t place(uint32_t k, size_t l, size_t j) {
    const size_t block = j / TW_MATMUL_PAD_N * blocks_of(k, TW_MATMUL_PAD_K) + l / TW_MATMUL_PAD_K;
    const size_t pair = l % TW_MATMUL_PAD_K / 2;
    return block * BLOCK + (pair * TW_MATMUL_PAD_N + j % TW_MATMUL_PAD_N) * 2 + l % 2;
}

void tw_matmul_packed_fill(void *packed, const struct tw_weight_panel *panel) {
    const size_t blocks =
        blocks_of(panel->k, TW_MATMUL_PAD_K) * blocks_of(panel->columns, TW_MATMUL_PAD_N);
    uint16_t *const to = packed;
    memset(packed, 0, blocks * BLOCK * sizeof(*to));
    for (size_t l = 0; l < panel->k; l++) {
        for (size_t j = 0; j < panel->columns; j++) {
            const size_t at = panel->form == TW_MATMUL_NT ? j * panel->master_stride + l
                                                          : l * panel->master_stride + j;
            to[place(panel->k, l, j)] = tw_bf16_from_f32(panel->master[at]);
        }
    }
}

void tw_matmul_packed_multiply(void *y, const void *a, const void *packed,
                               const struct tw_matmul *shape) {
    const uint16_t *const weights = packed;
    for (size_t i = 0; i < shape->m; i++) {
        const uint16_t *const row = (const uint16_t *)a + i * shape->a_stride;
        for (size_t j = 0; j < shape->n; j++) {
            const size_t at = i * shape->y_stride + j;
            double sum = shape->is_added ? (double)((const float *)y)[at] : 0.0;
            for (size_t l = 0; l < shape->k; l++) {
                sum += (double)tw_bf16_to_f32(row[l]) *
                       (double)tw_bf16_to_f32(weights[place(shape->k, l, j)]);
            }
            if (shape->y_type == TW_F32)
                ((float *)y)[at] = (float)sum;
            else
                ((uint16_t *)y)[at] = tw_bf16_from_f32((float)sum);
        }
    }
}
