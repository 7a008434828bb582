/* tile.h - small matrix products inside attention: y (m, n) = or += a * b, with operands in the
 * first- and second-level caches. a is read one unit at a time, at any stride, and broadcast to a
 * vector; rows of b are read as vectors.
 *
 * A unit is four bytes of an operand along the inner dimension: one float, or two adjacent bf16
 * values (TW_UNIT 2) if the processor multiplies bf16 at twice the rate. Sums are float32 in both
 * cases. */
#ifndef TW_KERNELS_CPU_TILE_H
#define TW_KERNELS_CPU_TILE_H

#include "kernels/cpu/vec.h"

#if defined(TW_ACT_BF16) && defined(__AVX512BF16__)
enum { TW_UNIT = 2 };
#else
enum { TW_UNIT = 1 };
#endif

#if defined(__clang__)
#define TW_UNROLL _Pragma("unroll")
#else
#define TW_UNROLL _Pragma("GCC unroll 8")
#endif

struct tw_tile {
    size_t m, k, n;      /* k counts units; n is a multiple of TW_VEC */
    size_t a_row, a_col; /* unit (i, l) of a is at i * a_row + l * a_col */
    size_t b_row, y_row; /* strides of the rows of b and y */
    bool is_added;
};

/* Returns sum + a * b, where a is one unit. */
TW_INLINE tw_vec tw_unit_multiply(tw_vec sum, const float *a, tw_vec b) {
#if defined(TW_ACT_BF16) && defined(__AVX512BF16__)
    int pair;
    memcpy(&pair, a, sizeof(pair));
    return (tw_vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
#else
    return sum + *a * b;
#endif
}

/* Computes a block of `rows` by `vecs` vectors of y in registers. rows and vecs must be literals.
 */
TW_INLINE void tw_tile_block(float *y, const float *a, const float *b, const struct tw_tile *t,
                             const size_t rows, const size_t vecs) {
    tw_vec sum[6][4];
    TW_UNROLL for (size_t i = 0; i < rows; i++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            sum[i][j] = (tw_vec){0};
            if (t->is_added) sum[i][j] = tw_vec_load(y + i * t->y_row + j * TW_VEC);
        }
    }
    const size_t k = t->k, a_row = t->a_row, a_col = t->a_col, b_row = t->b_row;
    for (size_t l = 0; l < k; l++) {
        tw_vec row[4];
        TW_UNROLL for (size_t j = 0; j < vecs; j++) row[j] = tw_vec_load(b + j * TW_VEC);
        TW_UNROLL for (size_t i = 0; i < rows; i++) {
            TW_UNROLL for (size_t j = 0; j < vecs; j++) {
                sum[i][j] = tw_unit_multiply(sum[i][j], a + i * a_row, row[j]);
            }
        }
        a += a_col;
        b += b_row;
    }
    TW_UNROLL for (size_t i = 0; i < rows; i++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            tw_vec_store(y + i * t->y_row + j * TW_VEC, sum[i][j]);
        }
    }
}

/* Computes all columns of `rows` rows of y. */
TW_INLINE void tw_tile_rows(float *y, const float *a, const float *b, const struct tw_tile *t,
                            const size_t rows) {
    enum { VECS = TW_VEC_REGISTERS == 32 ? 4 : 2 };
    size_t j = 0;
    for (; j + VECS * TW_VEC <= t->n; j += VECS * TW_VEC) {
        tw_tile_block(y + j, a, b + j, t, rows, VECS);
    }
    for (; j + 2 * TW_VEC <= t->n; j += 2 * TW_VEC) {
        tw_tile_block(y + j, a, b + j, t, rows, 2);
    }
    if (j < t->n) tw_tile_block(y + j, a, b + j, t, rows, 1);
}

static inline void tw_tile_multiply(float *y, const float *a, const float *b,
                                    const struct tw_tile *t) {
    size_t i = 0;
    for (; i + 6 <= t->m; i += 6) {
        tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, 6);
    }
    if (i + 4 <= t->m) {
        tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, 4);
        i += 4;
    }
    if (i + 2 <= t->m) {
        tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, 2);
        i += 2;
    }
    if (i < t->m) tw_tile_rows(y + i * t->y_row, a + i * t->a_row, b, t, 1);
}

#endif
