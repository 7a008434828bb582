/* tile.h - small matrix products inside attention: y (m, n) = or += a b with a read one element at
 * a time at any stride and the rows of b read as vectors. Operands sit in the second-level cache.
 */
#ifndef TW_KERNELS_CPU_TILE_H
#define TW_KERNELS_CPU_TILE_H

#include "kernels/cpu/vec.h"

struct tw_tile {
    size_t m, k, n;      /* n a multiple of TW_VEC is fast, any n is right */
    size_t a_row, a_col; /* element (i, l) of a at i * a_row + l * a_col */
    size_t b_row, y_row; /* strides of the rows of b and y */
    bool is_added;
};

/* A block of `rows` by `vecs` vectors of y held in registers. rows, vecs are literals. */
TW_INLINE void tw_tile_block(float *y, const float *a, const float *b, const struct tw_tile *t,
                             const size_t rows, const size_t vecs) {
    tw_vec sum[8][3];
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < vecs; j++) {
            sum[i][j] = (tw_vec){0};
            if (t->is_added) sum[i][j] = tw_vec_load(y + i * t->y_row + j * TW_VEC);
        }
    }
    for (size_t l = 0; l < t->k; l++) {
        tw_vec row[3];
        for (size_t j = 0; j < vecs; j++) row[j] = tw_vec_load(b + l * t->b_row + j * TW_VEC);
        for (size_t i = 0; i < rows; i++) {
            const float value = a[i * t->a_row + l * t->a_col];
            for (size_t j = 0; j < vecs; j++) sum[i][j] += value * row[j];
        }
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < vecs; j++) tw_vec_store(y + i * t->y_row + j * TW_VEC, sum[i][j]);
    }
}

/* All columns of `rows` rows of y. */
TW_INLINE void tw_tile_rows(float *y, const float *a, const float *b, const struct tw_tile *t,
                            const size_t rows) {
    size_t j = 0;
    for (; j + 2 * TW_VEC <= t->n; j += 2 * TW_VEC) tw_tile_block(y + j, a, b + j, t, rows, 2);
    for (; j + TW_VEC <= t->n; j += TW_VEC) tw_tile_block(y + j, a, b + j, t, rows, 1);
    for (; j < t->n; j++) {
        for (size_t i = 0; i < rows; i++) {
            float sum = t->is_added ? y[i * t->y_row + j] : 0.0f;
            for (size_t l = 0; l < t->k; l++) {
                sum += a[i * t->a_row + l * t->a_col] * b[l * t->b_row + j];
            }
            y[i * t->y_row + j] = sum;
        }
    }
}

static inline void tw_tile_multiply(float *y, const float *a, const float *b,
                                    const struct tw_tile *t) {
    enum { ROWS = TW_VEC_REGISTERS == 32 ? 8 : 4 };
    size_t i = 0;
    for (; i + ROWS <= t->m; i += ROWS) {
        tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, ROWS);
    }
    for (; i < t->m; i++) tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, 1);
}

#endif
