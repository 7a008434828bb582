/* attention.c - causal attention of one key/value head: one block of queries against one block of
 * keys at a time, with the running maximum and sum of each query's softmax (online softmax, arXiv
 * 1805.02867; blocks as in arXiv 2205.14135, Algorithm 1). */
#include "kernels/cpu/attention.h"

#include "kernels/cpu/exp2.h"

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
    const size_t keys = block->keys, clear = tw_clear_keys(block, lane);
    const tw_vec scale = tw_vec_all(work->head.scale2);
    tw_vec max[4], sum[4];
    float *p = work->p + lane;
    TW_UNROLL for (size_t j = 0; j < vecs; j++) {
        max[j] =
            is_first ? tw_vec_load(p + j * TW_VEC) : tw_vec_load(work->max + lane + j * TW_VEC);
    }
    for (size_t s = 0; s < clear; s++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            max[j] = tw_vec_max(tw_vec_load(p + s * TW_BLOCK + j * TW_VEC), max[j]);
        }
    }
    for (size_t s = clear; s < keys; s++) {
        TW_UNROLL for (size_t j = 0; j < vecs; j++) {
            const tw_vec x = tw_vec_load(p + s * TW_BLOCK + j * TW_VEC);
            max[j] = tw_vec_max(tw_seen(block, s, lane + j * TW_VEC, x, -INFINITY), max[j]);
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
                if (s + u >= clear) unit[u] = tw_seen(block, s + u, lane + j * TW_VEC, unit[u], 0);
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
    const size_t step = tw_clear_keys(block, 0) == block->keys ? TW_BLOCK : TW_STEP;
    for (size_t r = 0; r < block->rows; r += step) {
        tile.m = tw_least(step, block->rows - r);
        tile.k = (tw_clear_keys(block, r + tile.m - 1) + TW_UNIT - 1) / TW_UNIT;
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
    const size_t seen = head->first + block.query + block.rows;
    for (size_t key = 0; key < seen; key += TW_KEYS) {
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
    if (shape->queries <= TW_FEW) {
        TW_CPU(attention_few)(shape, arrays);
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
