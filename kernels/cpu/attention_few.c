/* attention_few.c - attention of a few queries (decoding with a cache). Each key and value is read
 * once for up to four rows of queries, because reading k and v determines the time. */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/exp2.h"

enum {
    ROWS = 4,
    /* vectors of a row of values that are processed together */
    VECS = TW_VEC_REGISTERS == 32 ? 4 : 2,
};

/* Up to ROWS rows of queries: row i is query i % queries of query head i / queries. */
struct work {
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
TW_INLINE void scores_at(const struct work *work, size_t key, const size_t count) {
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
TW_INLINE void values_at(const struct work *work, size_t key, size_t i, const size_t count,
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

/* Computes the softmax of one row over the `seen` keys that its query attends to, and zeros up to
 * `keys`. Returns the row's log-sum-exp. */
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

/* count is a literal */
TW_INLINE void rows_attend(const struct work *work, float *lse, const size_t count) {
    const struct tw_head *head = &work->head;
    for (size_t key = 0; key < head->keys; key += TW_VEC) scores_at(work, key, count);
    for (size_t r = 0; r < work->count; r++) {
        const size_t row = work->first + r, seen = head->first + row % head->queries + 1;
        const float sum = softmax_of(work->scores + r * work->stride, seen, head->keys, head);
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

void TW_CPU(attention_few)(const struct tw_attention *shape,
                           const struct tw_attention_arrays *arrays) {
    struct work work = {
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
