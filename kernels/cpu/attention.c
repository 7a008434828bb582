/* attention.c - attention in tiles, forward and backward, and decoding with a cache. */
#include <math.h>

#include "kernels/cpu/vec.h"

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Small matrix products inside attention: y (m, n) = or += a * b, with operands in the
 * first- and second-level caches. a is read one unit at a time, at any stride, and broadcast to a
 * vector; rows of b are read as vectors.
 *
 * A unit is four bytes of an operand along the inner dimension: one float, or two adjacent bf16
 * values (TW_UNIT 2) if the processor multiplies bf16 at twice the rate. Sums are float32 in both
 * cases. */

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

/* ---- blocks of queries and keys ------------------------------------------------------------- */

/* Shared parts of the attention passes: sizes of one key/value head, and packing of
 * its rows into units before multiplication.
 *
 * Scores are stored transposed, (keys, queries): a vector holds one key and TW_VEC queries. A
 * softmax thus needs no sum across a vector, and only blocks of queries must be transposed. */

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
static inline size_t tw_unmasked_keys(const struct tw_block *block, size_t lane) {
    const ptrdiff_t unmasked = block->edge + (ptrdiff_t)lane;
    return unmasked < 0 ? 0 : tw_least((size_t)unmasked, block->keys);
}

/* Masks a vector whose first lane is query `lane`. Returns x in lanes whose query attends to key s,
 * and `otherwise` in the other lanes. */
TW_INLINE tw_vec tw_causal_mask(const struct tw_block *block, size_t s, size_t lane, tw_vec x,
                                float otherwise) {
    static const int32_t index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    tw_ivec lanes;
    memcpy(&lanes, index, sizeof(lanes));
    const tw_ivec is_unmasked = lanes > (int32_t)((ptrdiff_t)s - block->edge - (ptrdiff_t)lane);
    return (tw_vec)(((tw_ivec)x & is_unmasked) | ((tw_ivec)tw_vec_all(otherwise) & ~is_unmasked));
}

/* Computes scores (TW_KEYS, TW_BLOCK) = keys * queries (length, TW_BLOCK), with the keys in rows
 * (all keys, length). A vector is not written if none of its queries attends to the key. */
static inline void tw_scores_of(float *scores, const float *rows, const float *queries,
                                const struct tw_block *block, const struct tw_head *head) {
    struct tw_tile tile = {.m = tw_unmasked_keys(block, 0),
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

/* ---- decoding: a few queries
 * -------------------------------------------------------------------------- */

/* Up to this many queries are computed one row at a time, because reading k and v takes most of the
 * time. */
enum { TW_DECODE_QUERIES = 4 };

/* Attention of a few queries (decoding with a cache). Each key and value is read
 * once for up to four rows of queries, because reading k and v determines the time. */

enum {
    ROWS = 4,
    /* vectors of a row of values that are processed together */
    VECS = TW_VEC_REGISTERS == 32 ? 4 : 2,
};

/* Up to ROWS rows of queries: row i is query i % queries of query head i / queries. */
struct decode_work {
    struct tw_head head;
    const tw_act *k, *v;
    size_t kv_stride;
    size_t first, count; /* first row being computed, and number of such rows */
    float *q;            /* (ROWS, width) */
    float *scores;       /* (ROWS, stride): scores, then their softmax */
    size_t stride;       /* number of keys, rounded up to whole vectors */
    float *o;            /* (ROWS, width) */
};

/* Returns the sums of TW_VEC vectors, one per lane: pairs are zipped and added until one vector is
 * left. */
TW_INLINE tw_vec sums_of(tw_vec part[TW_VEC]) {
    TW_UNROLL for (size_t half = TW_VEC / 2; half > 0; half /= 2) {
        TW_UNROLL for (size_t i = 0; i < half; i++) {
            part[i] =
                tw_vec_zip_low(part[i], part[i + half]) + tw_vec_zip_high(part[i], part[i + half]);
        }
    }
    return part[0];
}

/* Computes scores [key, key + TW_VEC) of `count` rows; scores beyond the last key are 0. count must
 * be a literal. */
TW_INLINE void scores_at(const struct decode_work *work, size_t key, const size_t count) {
    const struct tw_head *head = &work->head;
    const size_t keys = tw_least(TW_VEC, head->keys - key);
    tw_vec part[ROWS][TW_VEC];
    for (size_t s = 0; s < keys; s++) {
        const tw_act *k = work->k + (key + s) * work->kv_stride;
        tw_vec sum[ROWS];
        TW_UNROLL for (size_t r = 0; r < count; r++) sum[r] = (tw_vec){0};
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            const tw_vec row = tw_row_load(k, i, head->size);
            TW_UNROLL for (size_t r = 0; r < count; r++) {
                sum[r] += row * tw_vec_load(work->q + r * head->width + i);
            }
        }
        TW_UNROLL for (size_t r = 0; r < count; r++) part[r][s] = sum[r];
    }
    TW_UNROLL for (size_t r = 0; r < count; r++) {
        for (size_t s = keys; s < TW_VEC; s++) part[r][s] = (tw_vec){0};
        tw_vec_store(work->scores + r * work->stride + key, sums_of(part[r]));
    }
}

/* Adds p * v over keys [key, key + TW_KEYS) to o, in `vecs` vectors from element i on, for `count`
 * rows. count and vecs must be literals. */
TW_INLINE void values_at(const struct decode_work *work, size_t key, size_t i, const size_t count,
                         const size_t vecs) {
    const struct tw_head *head = &work->head;
    const size_t end = tw_least(key + TW_KEYS, head->keys);
    tw_vec sum[ROWS][VECS];
    TW_UNROLL for (size_t r = 0; r < count; r++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            sum[r][j] =
                key == 0 ? (tw_vec){0} : tw_vec_load(work->o + r * head->width + i + j * TW_VEC);
        }
    }
    for (size_t s = key; s < end; s++) {
        const tw_act *v = work->v + s * work->kv_stride;
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            const tw_vec row = tw_row_load(v, i + j * TW_VEC, head->size);
            TW_UNROLL for (size_t r = 0; r < count; r++) {
                sum[r][j] += work->scores[r * work->stride + s] * row;
            }
        }
    }
    TW_UNROLL for (size_t r = 0; r < count; r++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            tw_vec_store(work->o + r * head->width + i + j * TW_VEC, sum[r][j]);
        }
    }
}

/* Computes the softmax of one row over the `visible` keys that its query attends to, and zeros up
 * to `keys`. Returns the row's log-sum-exp. */
static float decode_softmax_of(float *row, size_t visible, size_t keys,
                               const struct tw_head *head) {
    const tw_vec scale = tw_vec_all(head->scale2);
    for (size_t s = visible; s < tw_round_up(keys, TW_VEC); s++) row[s] = -INFINITY;
    tw_vec max = tw_vec_load(row), sum = {0};
    for (size_t s = 0; s < visible; s += TW_VEC) max = tw_vec_max(tw_vec_load(row + s), max);
    const float largest = tw_vec_largest(max);
    const tw_vec offset = tw_vec_all(largest) * scale;
    for (size_t s = 0; s < visible; s += TW_VEC) {
        tw_vec p = tw_vec_exp2(tw_vec_load(row + s) * scale - offset);
        if (s + TW_VEC > visible) {
            tw_vec_store(row + s, p);
            p = tw_vec_load_part(row + s, visible - s);
        }
        tw_vec_store(row + s, p);
        sum += p;
    }
    const float total = tw_vec_sum(sum);
    const tw_vec factor = tw_vec_all(1.0f / total);
    for (size_t s = 0; s < visible; s += TW_VEC) {
        tw_vec_store(row + s, tw_vec_load(row + s) * factor);
    }
    for (size_t s = tw_round_up(visible, TW_VEC); s < keys; s++) row[s] = 0.0f;
    return largest * head->scale + logf(total);
}

/* count is a literal */
TW_INLINE void rows_attend(const struct decode_work *work, float *lse, const size_t count) {
    const struct tw_head *head = &work->head;
    for (size_t key = 0; key < head->keys; key += TW_VEC) scores_at(work, key, count);
    for (size_t r = 0; r < work->count; r++) {
        const size_t row = work->first + r, visible = head->first + row % head->queries + 1;
        const float sum =
            decode_softmax_of(work->scores + r * work->stride, visible, head->keys, head);
        if (lse != NULL) lse[row] = sum;
    }
    for (size_t key = 0; key < head->keys; key += TW_KEYS) {
        size_t i = 0;
        for (; i + VECS * TW_VEC <= head->width; i += VECS * TW_VEC) {
            values_at(work, key, i, count, VECS);
        }
        for (; i < head->width; i += TW_VEC) values_at(work, key, i, count, 1);
    }
}

static void attention_decode(const struct tw_attention *shape,
                             const struct tw_attention_arrays *arrays) {
    struct decode_work work = {
        .head = tw_head_of(shape), .k = arrays->k, .v = arrays->v, .kv_stride = shape->kv_stride};
    const struct tw_head *head = &work.head;
    float *at = tw_aligned(arrays->scratch);
    work.stride = tw_round_up(head->keys, TW_VEC);
    work.q = tw_take(&at, ROWS * head->width);
    work.o = tw_take(&at, ROWS * head->width);
    work.scores = tw_take(&at, ROWS * work.stride);
    memset(work.q, 0, ROWS * head->width * sizeof(float));
    const size_t rows = shape->group * head->queries;
    for (; work.first < rows; work.first += ROWS) {
        work.count = tw_least(ROWS, rows - work.first);
        for (size_t r = 0; r < work.count; r++) {
            const size_t i = (work.first + r) % head->queries, g = (work.first + r) / head->queries;
            const tw_act *from = (const tw_act *)arrays->q + i * shape->q_stride + g * head->size;
            tw_pack_floats(work.q + r * head->width, from, 0, 1, head);
        }
        if (work.count == 1) {
            rows_attend(&work, arrays->lse, 1);
        } else {
            rows_attend(&work, arrays->lse, ROWS);
        }
        for (size_t r = 0; r < work.count; r++) {
            const size_t i = (work.first + r) % head->queries, g = (work.first + r) / head->queries;
            tw_act *to = (tw_act *)arrays->out + i * shape->out_stride + g * head->size;
            for (size_t j = 0; j < head->width; j += TW_VEC) {
                tw_row_store(to, j, head->size, tw_vec_load(work.o + r * head->width + j));
            }
        }
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Causal attention of one key/value head: one block of queries against one block of
 * keys at a time, with the running maximum and sum of each query's softmax (online softmax, arXiv
 * 1805.02867; blocks as in arXiv 2205.14135, Algorithm 1). */

struct work {
    struct tw_head head;
    float *k;                  /* (keys, length): keys, with units along rows */
    float *v;                  /* (keys / TW_UNIT, width): values, with units across rows */
    float *q_rows;             /* (TW_BLOCK, length): queries, with units along rows */
    float *q;                  /* (length, TW_BLOCK): the queries transposed */
    float *p;                  /* (TW_KEYS, TW_BLOCK): scores, then their softmax, with units across
                                  rows */
    float *o;                  /* (TW_BLOCK, width): output before it is divided by the softmax's
                                  sum */
    float *max, *sum, *factor; /* (TW_BLOCK) */
};

/* Computes the softmax of `vecs` vectors of queries from `lane` on. vecs and is_first must be
 * literals. */
TW_INLINE void softmax_lanes(const struct work *work, const struct tw_block *block, size_t lane,
                             const size_t vecs, const bool is_first) {
    const size_t keys = block->keys, unmasked = tw_unmasked_keys(block, lane);
    const tw_vec scale = tw_vec_all(work->head.scale2);
    tw_vec max[4], sum[4];
    float *p = work->p + lane;
    TW_UNROLL for (size_t j = 0; j < vecs; j++) {
        max[j] =
            is_first ? tw_vec_load(p + j * TW_VEC) : tw_vec_load(work->max + lane + j * TW_VEC);
    }
    for (size_t s = 0; s < unmasked; s++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            max[j] = tw_vec_max(tw_vec_load(p + s * TW_BLOCK + j * TW_VEC), max[j]);
        }
    }
    for (size_t s = unmasked; s < keys; s++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            const tw_vec x = tw_vec_load(p + s * TW_BLOCK + j * TW_VEC);
            max[j] = tw_vec_max(tw_causal_mask(block, s, lane + j * TW_VEC, x, -INFINITY), max[j]);
        }
    }
    TW_UNROLL for (size_t j = 0; j < vecs; j++) {
        sum[j] = (tw_vec){0};
        if (!is_first) {
            const tw_vec old = tw_vec_load(work->max + lane + j * TW_VEC);
            const tw_vec factor = tw_vec_exp2((old - max[j]) * scale);
            tw_vec_store(work->factor + lane + j * TW_VEC, factor);
            sum[j] = tw_vec_load(work->sum + lane + j * TW_VEC) * factor;
        }
        tw_vec_store(work->max + lane + j * TW_VEC, max[j]);
        max[j] *= scale;
    }
    for (size_t s = 0; s < keys; s += TW_UNIT) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            tw_vec unit[TW_UNIT];
            TW_UNROLL for (size_t u = 0; u < TW_UNIT; u++) {
                const tw_vec x = tw_vec_load(p + (s + u) * TW_BLOCK + j * TW_VEC);
                unit[u] = tw_vec_exp2(x * scale - max[j]);
                if (s + u >= unmasked)
                    unit[u] = tw_causal_mask(block, s + u, lane + j * TW_VEC, unit[u], 0);
                sum[j] += unit[u];
            }
            tw_vec_store(p + s / TW_UNIT * TW_BLOCK + j * TW_VEC, tw_unit_of(unit));
        }
    }
    TW_UNROLL for (size_t j = 0; j < vecs; j++) {
        tw_vec_store(work->sum + lane + j * TW_VEC, sum[j]);
    }
}

static void softmax_of(const struct work *work, const struct tw_block *block) {
    size_t lane = 0;
    for (; lane + 4 * TW_VEC <= block->lanes; lane += 4 * TW_VEC) {
        if (block->key == 0) {
            softmax_lanes(work, block, lane, 4, true);
        } else {
            softmax_lanes(work, block, lane, 4, false);
        }
    }
    for (; lane < block->lanes; lane += TW_VEC) {
        if (block->key == 0) {
            softmax_lanes(work, block, lane, 1, true);
        } else {
            softmax_lanes(work, block, lane, 1, false);
        }
    }
}

/* o = factor o + p v */
static void values_of(const struct work *work, const struct tw_block *block) {
    const struct tw_head *head = &work->head;
    struct tw_tile tile = {.n = head->width,
                           .a_row = 1,
                           .a_col = TW_BLOCK,
                           .b_row = head->width,
                           .y_row = head->width,
                           .is_added = block->key > 0};
    for (size_t r = 0; tile.is_added && r < block->rows; r++) {
        const tw_vec factor = tw_vec_all(work->factor[r]);
        float *o = work->o + r * head->width;
        if (work->factor[r] == 1.0f) continue;
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            tw_vec_store(o + i, tw_vec_load(o + i) * factor);
        }
    }
    const float *v = work->v + block->key / TW_UNIT * head->width;
    const size_t step = tw_unmasked_keys(block, 0) == block->keys ? TW_BLOCK : TW_STEP;
    for (size_t r = 0; r < block->rows; r += step) {
        tile.m = tw_least(step, block->rows - r);
        tile.k = (tw_unmasked_keys(block, r + tile.m - 1) + TW_UNIT - 1) / TW_UNIT;
        if (tile.k > 0) tw_tile_multiply(work->o + r * head->width, work->p + r, v, &tile);
    }
}

/* Computes one block of queries of one head. out and q point to its first row. lse: (rows), or
 * NULL. */
static void block_forward(tw_act *out, float *lse, const tw_act *q, const struct work *work,
                          const struct tw_attention *shape, struct tw_block block) {
    const struct tw_head *head = &work->head;
    tw_pack_rows(work->q_rows, q, shape->q_stride, block.rows, head);
    memset(work->q_rows + block.rows * head->length, 0,
           (block.lanes - block.rows) * head->length * sizeof(float));
    tw_transpose(work->q, work->q_rows, block.lanes, head);
    const size_t visible = head->first + block.query + block.rows;
    for (size_t key = 0; key < visible; key += TW_KEYS) {
        tw_block_move(&block, key, head);
        tw_scores_of(work->p, work->k, work->q, &block, head);
        softmax_of(work, &block);
        values_of(work, &block);
    }
    for (size_t r = 0; r < block.rows; r++) {
        const tw_vec factor = tw_vec_all(1.0f / work->sum[r]);
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            const tw_vec o = tw_vec_load(work->o + r * head->width + i) * factor;
            tw_row_store(out + r * shape->out_stride, i, head->size, o);
        }
        if (lse != NULL) lse[r] = work->max[r] * head->scale + logf(work->sum[r]);
    }
}

static struct work work_of(float *scratch, const struct tw_attention *shape) {
    struct work work = {.head = tw_head_of(shape)};
    const struct tw_head *head = &work.head;
    float *at = tw_aligned(scratch);
    work.k = tw_take(&at, head->keys * head->length);
    work.v = tw_take(&at, (head->keys + TW_UNIT - 1) / TW_UNIT * head->width);
    work.q_rows = tw_take(&at, TW_BLOCK * head->length);
    work.q = tw_take(&at, TW_BLOCK * head->length);
    work.p = tw_take(&at, TW_KEYS * TW_BLOCK);
    work.o = tw_take(&at, TW_BLOCK * head->width);
    work.max = tw_take(&at, TW_BLOCK);
    work.sum = tw_take(&at, TW_BLOCK);
    work.factor = tw_take(&at, TW_BLOCK);
    return work;
}

void TW_CPU(attention)(const struct tw_attention *shape, const struct tw_attention_arrays *arrays) {
    if (shape->queries <= TW_DECODE_QUERIES) {
        attention_decode(shape, arrays);
        return;
    }
    const struct work work = work_of(arrays->scratch, shape);
    const struct tw_head *head = &work.head;
    float *lse = arrays->lse;
    tw_pack_rows(work.k, arrays->k, shape->kv_stride, head->keys, head);
    tw_pack_across(work.v, arrays->v, shape->kv_stride, head->keys, head);
    for (size_t g = 0; g < shape->group; g++) {
        for (size_t query = 0; query < head->queries; query += TW_BLOCK) {
            const size_t rows = tw_least(TW_BLOCK, head->queries - query), at = g * head->size;
            const struct tw_block block = {
                .query = query, .rows = rows, .lanes = tw_round_up(rows, TW_VEC)};
            block_forward((tw_act *)arrays->out + query * shape->out_stride + at,
                          lse == NULL ? NULL : lse + g * head->queries + query,
                          (const tw_act *)arrays->q + query * shape->q_stride + at, &work, shape,
                          block);
        }
    }
}

/* ---- backward ------------------------------------------------------------------------------- */

/* The backward pass of attention.c. The softmax P of a block is computed
 * again from the stored log-sum-exp (arXiv 2205.14135, Algorithm 4; D as in its appendix B.4):
 *
 *     P  = exp(scale * q * k^T - lse),  dP = dout * v^T,  dS = P .* (dP - D)
 *     D  = row sums of dout .* out      (.* is elementwise)
 *     dv = P^T * dout,  dk = scale * dS^T * q,  dq = scale * dS * k */

/* Rows of a block of queries, stored in three layouts. */
struct operand {
    float *rows;       /* (TW_BLOCK, length), with units along rows */
    float *transposed; /* (length, TW_BLOCK): the same rows */
    float *across;     /* (TW_BLOCK / TW_UNIT, width): the same rows, with units across them */
};

struct backward_work {
    struct tw_head head;
    float *k, *v;    /* (keys, length), with units along rows */
    float *k_across; /* (keys / TW_UNIT, width), with units across rows */
    float *dk, *dv;  /* (keys, width): gradients summed so far */
    struct operand q, dout;
    float *dq;      /* (TW_BLOCK, width): gradient summed so far */
    float *lse, *d; /* (TW_BLOCK): log-sum-exp to base 2, and D */
    float *p, *dp;  /* (TW_KEYS, TW_BLOCK): scores and dP, later P and dS, with units along rows */
    float *ds_across; /* (TW_KEYS / TW_UNIT, TW_BLOCK): dS, with units across rows */
};

static void operand_pack(const struct operand *to, const tw_act *from, size_t stride,
                         const struct tw_block *block, const struct tw_head *head) {
    tw_pack_rows(to->rows, from, stride, block->rows, head);
    memset(to->rows + block->rows * head->length, 0,
           (block->lanes - block->rows) * head->length * sizeof(float));
    tw_transpose(to->transposed, to->rows, block->lanes, head);
    if (to->across != to->rows) tw_pack_across(to->across, from, stride, block->rows, head);
}

/* Computes P and dS from scores and dP, for `vecs` vectors of queries from `lane` on. vecs must be
 * a literal. */
TW_INLINE void backward_softmax_lanes(const struct backward_work *work,
                                      const struct tw_block *block, size_t lane,
                                      const size_t vecs) {
    const size_t unmasked = tw_unmasked_keys(block, lane);
    const tw_vec scale = tw_vec_all(work->head.scale2);
    tw_vec lse[4], d[4];
    TW_UNROLL for (size_t j = 0; j < vecs; j++) {
        lse[j] = tw_vec_load(work->lse + lane + j * TW_VEC);
        d[j] = tw_vec_load(work->d + lane + j * TW_VEC);
    }
    for (size_t s = 0; s < block->keys; s += TW_UNIT) {
        tw_vec p[TW_UNIT][4], ds[TW_UNIT][4];
        TW_UNROLL for (size_t u = 0; u < TW_UNIT; u++) {
            TW_UNROLL for (size_t j = 0; j < vecs; j++) {
                const size_t at = (s + u) * TW_BLOCK + lane + j * TW_VEC;
                p[u][j] = tw_vec_exp2(tw_vec_load(work->p + at) * scale - lse[j]);
                ds[u][j] = p[u][j] * (tw_vec_load(work->dp + at) - d[j]);
                if (s + u >= unmasked) {
                    p[u][j] = tw_causal_mask(block, s + u, lane + j * TW_VEC, p[u][j], 0.0f);
                    ds[u][j] = tw_causal_mask(block, s + u, lane + j * TW_VEC, ds[u][j], 0.0f);
                }
            }
        }
        TW_UNROLL for (size_t u = 0; u < TW_UNIT; u++) {
            TW_UNROLL for (size_t j = 0; j < vecs; j++) {
                const size_t row = (s + u) * TW_BLOCK;
                tw_units_store(work->p + row, lane + j * TW_VEC, p[u][j]);
                tw_units_store(work->dp + row, lane + j * TW_VEC, ds[u][j]);
            }
        }
        TW_UNROLL for (size_t j = 0; TW_UNIT > 1 && j < vecs; j++) {
            tw_vec pair[TW_UNIT];
            TW_UNROLL for (size_t u = 0; u < TW_UNIT; u++) pair[u] = ds[u][j];
            tw_vec_store(work->ds_across + s / TW_UNIT * TW_BLOCK + lane + j * TW_VEC,
                         tw_unit_of(pair));
        }
    }
}

/* Adds a (keys, TW_BLOCK units) * b (queries across, width) to y (keys, width), for dk and dv. */
static void add_to_keys(float *y, const float *a, const float *b, const struct tw_block *block,
                        const struct tw_head *head) {
    const size_t units = (block->rows + TW_UNIT - 1) / TW_UNIT;
    struct tw_tile tile = {.m = tw_unmasked_keys(block, 0),
                           .k = units,
                           .n = head->width,
                           .a_row = TW_BLOCK,
                           .a_col = 1,
                           .b_row = head->width,
                           .y_row = head->width,
                           .is_added = true};
    y += block->key * head->width;
    tw_tile_multiply(y, a, b, &tile);
    for (size_t s = tile.m; s < block->keys; s += tile.m) {
        const size_t from = (size_t)((ptrdiff_t)s + 1 - block->edge) / TW_UNIT;
        tile.m = tw_least(TW_STEP, block->keys - s);
        tile.k = units - from;
        tw_tile_multiply(y + s * head->width, a + s * TW_BLOCK + from, b + from * head->width,
                         &tile);
    }
}

/* dq += dS k */
static void add_to_queries(const struct backward_work *work, const struct tw_block *block) {
    const struct tw_head *head = &work->head;
    struct tw_tile tile = {.n = head->width,
                           .a_row = 1,
                           .a_col = TW_BLOCK,
                           .b_row = head->width,
                           .y_row = head->width,
                           .is_added = block->key > 0};
    const float *k = work->k_across + block->key / TW_UNIT * head->width;
    const size_t step = tw_unmasked_keys(block, 0) == block->keys ? TW_BLOCK : TW_STEP;
    for (size_t r = 0; r < block->rows; r += step) {
        tile.m = tw_least(step, block->rows - r);
        tile.k = (tw_unmasked_keys(block, r + tile.m - 1) + TW_UNIT - 1) / TW_UNIT;
        if (tile.k == 0) continue;
        tw_tile_multiply(work->dq + r * head->width, work->ds_across + r, k, &tile);
    }
}

static void block_backward(const struct backward_work *work, struct tw_block block) {
    const struct tw_head *head = &work->head;
    const size_t visible = head->first + block.query + block.rows;
    for (size_t key = 0; key < visible; key += TW_KEYS) {
        tw_block_move(&block, key, head);
        tw_scores_of(work->p, work->k, work->q.transposed, &block, head);
        tw_scores_of(work->dp, work->v, work->dout.transposed, &block, head);
        size_t lane = 0;
        for (; lane + 4 * TW_VEC <= block.lanes; lane += 4 * TW_VEC) {
            backward_softmax_lanes(work, &block, lane, 4);
        }
        for (; lane < block.lanes; lane += TW_VEC) backward_softmax_lanes(work, &block, lane, 1);
        add_to_keys(work->dv, work->p, work->dout.across, &block, head);
        add_to_keys(work->dk, work->dp, work->q.across, &block, head);
        add_to_queries(work, &block);
    }
}

/* Multiplies rows of sums by `factor` and stores them as activations. */
static void store_rows(tw_act *to, size_t stride, const float *from, size_t rows, float factor,
                       const struct tw_head *head) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            tw_row_store(to + r * stride, i, head->size,
                         tw_vec_load(from + r * head->width + i) * tw_vec_all(factor));
        }
    }
}

static void operand_take(struct operand *operand, float **at, const struct tw_head *head) {
    operand->rows = tw_take(at, TW_BLOCK * head->length);
    operand->transposed = tw_take(at, TW_BLOCK * head->length);
    operand->across = TW_UNIT == 1 ? operand->rows : tw_take(at, TW_BLOCK / TW_UNIT * head->width);
}

static struct backward_work backward_work_of(float *scratch, const struct tw_attention *shape) {
    struct backward_work work = {.head = tw_head_of(shape)};
    const struct tw_head *head = &work.head;
    float *at = tw_aligned(scratch);
    work.k = tw_take(&at, head->keys * head->length);
    work.v = tw_take(&at, head->keys * head->length);
    work.k_across = work.k;
    if (TW_UNIT > 1) {
        work.k_across = tw_take(&at, (head->keys + TW_UNIT - 1) / TW_UNIT * head->width);
    }
    work.dk = tw_take(&at, head->keys * head->width);
    work.dv = tw_take(&at, head->keys * head->width);
    operand_take(&work.q, &at, head);
    operand_take(&work.dout, &at, head);
    work.dq = tw_take(&at, TW_BLOCK * head->width);
    work.lse = tw_take(&at, TW_BLOCK);
    work.d = tw_take(&at, TW_BLOCK);
    work.p = tw_take(&at, TW_KEYS * TW_BLOCK);
    work.dp = tw_take(&at, TW_KEYS * TW_BLOCK);
    work.ds_across = TW_UNIT == 1 ? work.dp : tw_take(&at, TW_KEYS / TW_UNIT * TW_BLOCK);
    return work;
}

/* Writes lse and D of the block's queries to `work`, with zeros in lanes beyond the block's last
 * row. */
static void block_begin(const struct backward_work *work, const struct tw_block *block,
                        const tw_act *dout, const tw_act *out, const float *lse, size_t stride) {
    for (size_t r = 0; r < block->lanes; r++) {
        tw_vec sum = {0};
        for (size_t i = 0; r < block->rows && i < work->head.size; i += TW_VEC) {
            sum += tw_row_load(dout + r * stride, i, work->head.size) *
                   tw_row_load(out + r * stride, i, work->head.size);
        }
        work->d[r] = tw_vec_sum(sum);
        work->lse[r] = r < block->rows ? lse[r] * TW_LOG2E : 0.0f;
    }
}

void TW_CPU(attention_backward)(const struct tw_attention *shape,
                                const struct tw_attention_arrays *arrays) {
    const struct backward_work work = backward_work_of(arrays->scratch, shape);
    const struct tw_head *head = &work.head;
    tw_pack_rows(work.k, arrays->k, shape->kv_stride, head->keys, head);
    tw_pack_rows(work.v, arrays->v, shape->kv_stride, head->keys, head);
    if (work.k_across != work.k) {
        tw_pack_across(work.k_across, arrays->k, shape->kv_stride, head->keys, head);
    }
    memset(work.dk, 0, head->keys * head->width * sizeof(float));
    memset(work.dv, 0, head->keys * head->width * sizeof(float));
    for (size_t g = 0; g < shape->group; g++) {
        for (size_t query = 0; query < head->queries; query += TW_BLOCK) {
            const size_t rows = tw_least(TW_BLOCK, head->queries - query);
            const struct tw_block block = {
                .query = query, .rows = rows, .lanes = tw_round_up(rows, TW_VEC)};
            const size_t at_q = query * shape->q_stride + g * head->size;
            const size_t at_out = query * shape->out_stride + g * head->size;
            const tw_act *d = (const tw_act *)arrays->dout + at_out;
            operand_pack(&work.q, (const tw_act *)arrays->q + at_q, shape->q_stride, &block, head);
            operand_pack(&work.dout, d, shape->out_stride, &block, head);
            block_begin(&work, &block, d, (const tw_act *)arrays->out + at_out,
                        arrays->lse + g * head->queries + query, shape->out_stride);
            block_backward(&work, block);
            store_rows((tw_act *)arrays->dq + at_q, shape->q_stride, work.dq, rows, head->scale,
                       head);
        }
    }
    store_rows(arrays->dk, shape->kv_stride, work.dk, head->keys, head->scale, head);
    store_rows(arrays->dv, shape->kv_stride, work.dv, head->keys, 1.0f, head);
}
