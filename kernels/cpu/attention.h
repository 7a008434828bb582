/* attention.h - shared parts of the attention passes: sizes of one key/value head, and packing of
 * its rows into units (tile.h) before multiplication.
 *
 * Scores are stored transposed, (keys, queries): a vector holds one key and TW_VEC queries. A
 * softmax thus needs no sum across a vector, and only blocks of queries must be transposed. */
#ifndef TW_KERNELS_CPU_ATTENTION_H
#define TW_KERNELS_CPU_ATTENTION_H

#include <math.h>

#include "kernels/cpu/tile.h"

enum {
    TW_BLOCK = 64, /* queries per block, which is also the length of a row of scores */
    TW_KEYS = 64,  /* keys of a block */
    TW_STEP = 16,  /* rows that are skipped at a time beyond the diagonal */
};

struct tw_head {
    size_t queries, keys, size;
    size_t first;  /* query i attends to keys [0, first + i] */
    size_t units;  /* units per row */
    size_t length; /* length of a row of units in memory, padded with zeros to whole vectors */
    size_t width; /* width of a row of floats in memory: size, padded with zeros to whole vectors */
    float scale;  /* factor of scores: 1 / sqrt(size) */
    float scale2; /* factor of scores for a softmax computed with 2^x */
};

#define TW_LOG2E 1.44269504f
#define TW_LN2 0.693147181f

TW_INLINE size_t tw_round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static inline struct tw_head tw_head_of(const struct tw_attention *shape) {
    const size_t units = (shape->head_size + TW_UNIT - 1u) / TW_UNIT;
    const float scale = 1.0f / sqrtf((float)shape->head_size);
    return (struct tw_head){.queries = shape->queries,
                            .keys = shape->keys,
                            .size = shape->head_size,
                            .first = shape->keys - shape->queries,
                            .units = units,
                            .length = tw_round_up(units, TW_VEC),
                            .width = tw_round_up(shape->head_size, TW_VEC),
                            .scale = scale,
                            .scale2 = scale * TW_LOG2E};
}

static inline size_t tw_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Returns the next n floats of scratch, aligned to a cache line. */
static inline float *tw_take(float **scratch, size_t n) {
    float *taken = *scratch;
    *scratch += tw_round_up(n, 16);
    return taken;
}

static inline float *tw_aligned(float *scratch) {
    return scratch + (64 - (uintptr_t)scratch % 64) % 64 / sizeof(float);
}

/* ---- vectors -------------------------------------------------------------------------------- */

/* Interleaves a and b: a[0] b[0] a[1] b[1] ..., for their lower or their upper halves. */
#if defined(TW_ISA_AVX512)
#define TW_ZIP(a, b, i)                                                                            \
    __builtin_shufflevector(a, b, i, i + 16, i + 1, i + 17, i + 2, i + 18, i + 3, i + 19, i + 4,   \
                            i + 20, i + 5, i + 21, i + 6, i + 22, i + 7, i + 23)
#elif defined(TW_ISA_AVX2)
#define TW_ZIP(a, b, i)                                                                            \
    __builtin_shufflevector(a, b, i, i + 8, i + 1, i + 9, i + 2, i + 10, i + 3, i + 11)
#else
#define TW_ZIP(a, b, i) __builtin_shufflevector(a, b, i, i + 4, i + 1, i + 5)
#endif

TW_INLINE tw_vec tw_vec_zip_low(tw_vec a, tw_vec b) {
    return TW_ZIP(a, b, 0);
}

TW_INLINE tw_vec tw_vec_zip_high(tw_vec a, tw_vec b) {
    return TW_ZIP(a, b, TW_VEC / 2);
}

/* Rounds TW_UNIT vectors of floats to the type that is multiplied, packed into one vector. */
TW_INLINE tw_vec tw_unit_of(const tw_vec part[TW_UNIT]) {
#if defined(TW_ACT_BF16) && defined(__AVX512BF16__)
    static const uint16_t zip[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)part[1], (__m512)part[0]);
    return (tw_vec)_mm512_permutexvar_epi16(_mm512_loadu_si512(zip), (__m512i)both);
#else
    return part[0];
#endif
}

/* Stores one vector of floats in a row of units (TW_UNIT elements each), from element `lane` on. */
TW_INLINE void tw_units_store(float *row, size_t lane, tw_vec value) {
#if defined(TW_ACT_BF16) && defined(__AVX512BF16__)
    const __m256bh half = _mm512_cvtneps_pbh((__m512)value);
    memcpy(row + lane / TW_UNIT, &half, sizeof(half));
#else
    tw_vec_store(row + lane, value);
#endif
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* A block of scores: queries [query, query + rows) of one head and keys [key, key + keys). */
struct tw_block {
    size_t query, rows, lanes; /* lanes: `rows` rounded up to whole vectors */
    size_t key, keys;
    ptrdiff_t edge; /* query i attends to the block's keys [0, edge + i) */
};

/* Moves the block to the keys from `key` on, up to the last key that its last query attends to. */
static inline void tw_block_move(struct tw_block *block, size_t key, const struct tw_head *head) {
    block->key = key;
    block->edge = (ptrdiff_t)(head->first + block->query + 1) - (ptrdiff_t)key;
    block->keys = tw_least(TW_KEYS, (size_t)(block->edge + (ptrdiff_t)block->rows - 1));
}

/* Returns how many of the block's keys query `lane` and all later queries attend to. */
static inline size_t tw_clear_keys(const struct tw_block *block, size_t lane) {
    const ptrdiff_t clear = block->edge + (ptrdiff_t)lane;
    return clear < 0 ? 0 : tw_least((size_t)clear, block->keys);
}

/* Masks a vector whose first lane is query `lane`. Returns x in lanes whose query attends to key s,
 * and `otherwise` in the other lanes. */
TW_INLINE tw_vec tw_seen(const struct tw_block *block, size_t s, size_t lane, tw_vec x,
                         float otherwise) {
    static const int32_t index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    tw_ivec lanes;
    memcpy(&lanes, index, sizeof(lanes));
    const tw_ivec is_seen = lanes > (int32_t)((ptrdiff_t)s - block->edge - (ptrdiff_t)lane);
    return (tw_vec)(((tw_ivec)x & is_seen) | ((tw_ivec)tw_vec_all(otherwise) & ~is_seen));
}

/* Computes scores (TW_KEYS, TW_BLOCK) = keys * queries (length, TW_BLOCK), with the keys in rows
 * (all keys, length). A vector is not written if none of its queries attends to the key. */
static inline void tw_scores_of(float *scores, const float *rows, const float *queries,
                                const struct tw_block *block, const struct tw_head *head) {
    struct tw_tile tile = {.m = tw_clear_keys(block, 0),
                           .k = head->units,
                           .n = block->lanes,
                           .a_row = head->length,
                           .a_col = 1,
                           .b_row = TW_BLOCK,
                           .y_row = TW_BLOCK};
    const float *k = rows + block->key * head->length;
    tw_tile_multiply(scores, k, queries, &tile);
    for (size_t s = tile.m; s < block->keys; s += tile.m) {
        const size_t blind =
            (size_t)((ptrdiff_t)s + 1 - block->edge); /* queries that do not attend to key s */
        const size_t from = blind / TW_VEC * TW_VEC;
        tile.m = tw_least(TW_STEP, block->keys - s);
        tile.n = block->lanes - from;
        tw_tile_multiply(scores + s * TW_BLOCK + from, k + s * head->length, queries + from, &tile);
    }
}

/* ---- packing ------------------------------------------------------------------------------- */

/* Loads one vector of a row of activations, from element i on, as floats. Elements beyond the row's
 * end are 0. */
TW_INLINE tw_vec tw_row_load(const tw_act *from, size_t i, size_t size) {
    return i + TW_VEC <= size ? tw_act_load(from + i) : tw_act_load_part(from + i, size - i);
}

/* Stores a vector of floats to a row of activations. Elements beyond the row's end are not written.
 */
TW_INLINE void tw_row_store(tw_act *to, size_t i, size_t size, tw_vec value) {
    if (i + TW_VEC <= size) {
        tw_act_store(to + i, value);
    } else {
        tw_act_store_part(to + i, value, size - i);
    }
}

/* Converts rows of activations to floats, in `to` (rows, width). */
static inline void tw_pack_floats(float *restrict to, const tw_act *restrict from, size_t stride,
                                  size_t rows, const struct tw_head *head) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            tw_vec_store(to + r * head->width + i, tw_row_load(from + r * stride, i, head->size));
        }
    }
}

/* Packs rows of activations into `to` (rows, length), with units along the rows. */
static inline void tw_pack_rows(float *restrict to, const tw_act *restrict from, size_t stride,
                                size_t rows, const struct tw_head *head) {
    if (TW_UNIT == 1) {
        tw_pack_floats(to, from, stride, rows, head);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        float *row = to + r * head->length;
        memset(row + head->size / TW_UNIT, 0, (head->length - head->size / TW_UNIT) * sizeof(*row));
        memcpy(row, from + r * stride, head->size * sizeof(*from));
    }
}

/* Packs rows of activations into `to` (rows / TW_UNIT rounded up, width), with units across the
 * rows. */
static inline void tw_pack_across(float *restrict to, const tw_act *restrict from, size_t stride,
                                  size_t rows, const struct tw_head *head) {
    if (TW_UNIT == 1) {
        tw_pack_floats(to, from, stride, rows, head);
        return;
    }
    for (size_t r = 0; r < rows; r += 2) {
        const tw_act *low = from + r * stride, *high = low + stride;
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            const tw_uvec a = (tw_uvec)tw_row_load(low, i, head->size); /* upper halves: bf16 */
            const tw_uvec b =
                r + 1 < rows ? (tw_uvec)tw_row_load(high, i, head->size) : (tw_uvec){0};
            tw_vec_store(to + r / 2 * head->width + i, (tw_vec)(a >> 16 | b));
        }
    }
}

/* Transposes `from` (rows, length) into `to` (units rounded up to vectors, TW_BLOCK); rows is a
 * multiple of TW_VEC. Works on squares of TW_VEC vectors: a perfect shuffle of row i with row i +
 * TW_VEC / 2, repeated log2(TW_VEC) times. */
static inline void tw_transpose(float *restrict to, const float *restrict from, size_t rows,
                                const struct tw_head *head) {
    for (size_t r = 0; r < rows; r += TW_VEC) {
        for (size_t u = 0; u < head->length; u += TW_VEC) {
            tw_vec a[TW_VEC], b[TW_VEC];
            for (size_t i = 0; i < TW_VEC; i++) {
                a[i] = tw_vec_load(from + (r + i) * head->length + u);
            }
            for (size_t round = 1; round < TW_VEC; round *= 2) {
                for (size_t i = 0; i < TW_VEC / 2; i++) {
                    b[2 * i] = tw_vec_zip_low(a[i], a[i + TW_VEC / 2]);
                    b[2 * i + 1] = tw_vec_zip_high(a[i], a[i + TW_VEC / 2]);
                }
                memcpy(a, b, sizeof(a));
            }
            for (size_t i = 0; i < TW_VEC; i++) tw_vec_store(to + (u + i) * TW_BLOCK + r, a[i]);
        }
    }
}

/* ---- few queries ---------------------------------------------------------------------------- */

/* Up to this many queries are computed one row at a time (attention_few.c), because reading k and v
 * takes most of the time. */
enum { TW_FEW = 4 };
__typeof__(*((const struct tw_ops *)0)->attention) TW_CPU(attention_few);

#endif
