/* attention_few.c - attention of a few queries (decoding with a cache): each key and value is read
 * once for up to four rows of queries, so the time is that of reading k and v. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/exp2.h"

enum { ROWS = 4 };

/* Up to ROWS rows of queries: row i is query i % queries of query head i / queries. */
struct rows {
    size_t first, count;
    float *q;      /* (ROWS, width), zero beyond count */
    float *scores; /* (ROWS, stride): scores, then their softmax */
    size_t stride; /* keys rounded up to TW_KEYS */
    float *o;      /* (ROWS, width) */
    float *block;  /* (TW_KEYS, width): keys or values as floats */
};

/* Sum of each of TW_VEC vectors: pairs are zipped and added until one vector is left. */
TW_INLINE tw_vec sums_of(tw_vec part[TW_VEC]) {
    TW_UNROLL for (size_t half = TW_VEC / 2; half > 0; half /= 2) {
        TW_UNROLL for (size_t i = 0; i < half; i++) {
            part[i] =
                tw_vec_zip_low(part[i], part[i + half]) + tw_vec_zip_high(part[i], part[i + half]);
        }
    }
    return part[0];
}

/* scores [key, key + TW_VEC) of every row */
static void scores_of(const struct rows *rows, const float *k, size_t key,
                      const struct tw_head *head) {
    tw_vec part[ROWS][TW_VEC];
    for (size_t s = 0; s < TW_VEC; s++) {
        tw_vec sum[ROWS] = {{0}};
        for (size_t i = 0; i < head->width; i += TW_VEC) {
            const tw_vec row = tw_vec_load(k + s * head->width + i);
            TW_UNROLL for (size_t r = 0; r < ROWS; r++) {
                sum[r] += row * tw_vec_load(rows->q + r * head->width + i);
            }
        }
        TW_UNROLL for (size_t r = 0; r < ROWS; r++) part[r][s] = sum[r];
    }
    for (size_t r = 0; r < rows->count; r++) {
        tw_vec_store(rows->scores + r * rows->stride + key, sums_of(part[r]));
    }
}

/* One row over the `seen` keys its query sees, zero up to `keys`. Returns its log sum exp. */
static float softmax_of(float *row, size_t seen, size_t keys, const struct tw_head *head) {
    const tw_vec scale = tw_vec_all(head->scale2);
    for (size_t s = seen; s < tw_round_up(keys, TW_VEC); s++) row[s] = -INFINITY;
    tw_vec max = tw_vec_load(row), sum = {0};
    for (size_t s = 0; s < seen; s += TW_VEC) max = tw_vec_max(tw_vec_load(row + s), max);
    const float largest = tw_vec_largest(max);
    const tw_vec offset = tw_vec_all(largest) * scale;
    for (size_t s = 0; s < seen; s += TW_VEC) {
        tw_vec p = tw_vec_exp2(tw_vec_load(row + s) * scale - offset);
        if (s + TW_VEC > seen) {
            tw_vec_store(row + s, p);
            p = tw_vec_load_part(row + s, seen - s);
        }
        tw_vec_store(row + s, p);
        sum += p;
    }
    const float total = tw_vec_sum(sum);
    const tw_vec factor = tw_vec_all(1.0f / total);
    for (size_t s = 0; s < seen; s += TW_VEC) {
        tw_vec_store(row + s, tw_vec_load(row + s) * factor);
    }
    for (size_t s = tw_round_up(seen, TW_VEC); s < keys; s++) row[s] = 0.0f;
    return largest * head->scale + logf(total);
}

static void rows_attend(const struct rows *rows, float *lse, const tw_act *k, const tw_act *v,
                        const struct tw_attention *shape, const struct tw_head *head) {
    for (size_t key = 0; key < head->keys; key += TW_KEYS) {
        const size_t keys = tw_least(TW_KEYS, head->keys - key);
        tw_pack_floats(rows->block, k + key * shape->kv_stride, shape->kv_stride, keys, head);
        for (size_t s = 0; s < keys; s += TW_VEC) {
            scores_of(rows, rows->block + s * head->width, key + s, head);
        }
    }
    for (size_t r = 0; r < rows->count; r++) {
        const size_t row = rows->first + r, seen = head->first + row % head->queries + 1;
        const float sum = softmax_of(rows->scores + r * rows->stride, seen, head->keys, head);
        if (lse != NULL) lse[row] = sum;
    }
    struct tw_tile tile = {.m = rows->count,
                           .n = head->width,
                           .a_row = rows->stride,
                           .a_col = 1,
                           .b_row = head->width,
                           .y_row = head->width};
    for (size_t key = 0; key < head->keys; key += TW_KEYS) {
        tile.k = tw_least(TW_KEYS, head->keys - key);
        tile.is_added = key > 0;
        tw_pack_floats(rows->block, v + key * shape->kv_stride, shape->kv_stride, tile.k, head);
        tw_tile_multiply_floats(rows->o, rows->scores + key, rows->block, &tile);
    }
}

void TW_CPU(attention_few)(void *out, float *lse, const void *q, const void *k, const void *v,
                           float *scratch, const struct tw_attention *shape) {
    const struct tw_head head = tw_head_of(shape);
    struct rows rows = {.stride = tw_round_up(head.keys, TW_KEYS)};
    float *at = tw_aligned(scratch);
    rows.q = tw_take(&at, ROWS * head.width);
    rows.scores = tw_take(&at, ROWS * rows.stride);
    rows.o = tw_take(&at, ROWS * head.width);
    rows.block = tw_take(&at, TW_KEYS * head.width);
    const size_t count = shape->group * head.queries;
    for (; rows.first < count; rows.first += ROWS) {
        rows.count = tw_least(ROWS, count - rows.first);
        memset(rows.q, 0, ROWS * head.width * sizeof(float));
        for (size_t r = 0; r < rows.count; r++) {
            const size_t row = rows.first + r, i = row % head.queries, g = row / head.queries;
            const tw_act *from = (const tw_act *)q + i * shape->q_stride + g * head.size;
            tw_pack_floats(rows.q + r * head.width, from, 0, 1, &head);
        }
        rows_attend(&rows, lse, k, v, shape, &head);
        for (size_t r = 0; r < rows.count; r++) {
            const size_t row = rows.first + r, i = row % head.queries, g = row / head.queries;
            tw_act *to = (tw_act *)out + i * shape->out_stride + g * head.size;
            for (size_t j = 0; j < head.width; j += TW_VEC) {
                tw_row_store(to, j, head.size, tw_vec_load(rows.o + r * head.width + j));
            }
        }
    }
}
