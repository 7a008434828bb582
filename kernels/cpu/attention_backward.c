/* attention_backward.c - the backward pass of attention.c. The softmax P of a block is computed
 * again from the stored log-sum-exp (arXiv 2205.14135, Algorithm 4; D as in its appendix B.4):
 *
 *     P  = exp(scale * q * k^T - lse),  dP = dout * v^T,  dS = P .* (dP - D)
 *     D  = row sums of dout .* out      (.* is elementwise)
 *     dv = P^T * dout,  dk = scale * dS^T * q,  dq = scale * dS * k */
#include "kernels/cpu/attention.h"
#include "kernels/cpu/exp2.h"

/* Rows of a block of queries, stored in three layouts. */
struct operand {
    float *rows;   /* (TW_BLOCK, length), with units along rows */
    float *turned; /* (length, TW_BLOCK): the same rows, transposed */
    float *across; /* (TW_BLOCK / TW_UNIT, width): the same rows, with units across them */
};

struct work {
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
    tw_transpose(to->turned, to->rows, block->lanes, head);
    if (to->across != to->rows) tw_pack_across(to->across, from, stride, block->rows, head);
}

/* Computes P and dS from scores and dP, for `vecs` vectors of queries from `lane` on. vecs must be
 * a literal. */
TW_INLINE void softmax_lanes(const struct work *work, const struct tw_block *block, size_t lane,
                             const size_t vecs) {
    const size_t clear = tw_clear_keys(block, lane);
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
                if (s + u >= clear) {
                    p[u][j] = tw_seen(block, s + u, lane + j * TW_VEC, p[u][j], 0.0f);
                    ds[u][j] = tw_seen(block, s + u, lane + j * TW_VEC, ds[u][j], 0.0f);
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
    struct tw_tile tile = {.m = tw_clear_keys(block, 0),
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
static void add_to_queries(const struct work *work, const struct tw_block *block) {
    const struct tw_head *head = &work->head;
    struct tw_tile tile = {.n = head->width,
                           .a_row = 1,
                           .a_col = TW_BLOCK,
                           .b_row = head->width,
                           .y_row = head->width,
                           .is_added = block->key > 0};
    const float *k = work->k_across + block->key / TW_UNIT * head->width;
    const size_t step = tw_clear_keys(block, 0) == block->keys ? TW_BLOCK : TW_STEP;
    for (size_t r = 0; r < block->rows; r += step) {
        tile.m = tw_least(step, block->rows - r);
        tile.k = (tw_clear_keys(block, r + tile.m - 1) + TW_UNIT - 1) / TW_UNIT;
        if (tile.k == 0) continue;
        tw_tile_multiply(work->dq + r * head->width, work->ds_across + r, k, &tile);
    }
}

static void block_backward(const struct work *work, struct tw_block block) {
    const struct tw_head *head = &work->head;
    const size_t seen = head->first + block.query + block.rows;
    for (size_t key = 0; key < seen; key += TW_KEYS) {
        tw_block_move(&block, key, head);
        tw_scores_of(work->p, work->k, work->q.turned, &block, head);
        tw_scores_of(work->dp, work->v, work->dout.turned, &block, head);
        size_t lane = 0;
        for (; lane + 4 * TW_VEC <= block.lanes; lane += 4 * TW_VEC) {
            softmax_lanes(work, &block, lane, 4);
        }
        for (; lane < block.lanes; lane += TW_VEC) softmax_lanes(work, &block, lane, 1);
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
    operand->turned = tw_take(at, TW_BLOCK * head->length);
    operand->across = TW_UNIT == 1 ? operand->rows : tw_take(at, TW_BLOCK / TW_UNIT * head->width);
}

static struct work work_of(float *scratch, const struct tw_attention *shape) {
    struct work work = {.head = tw_head_of(shape)};
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
static void block_begin(const struct work *work, const struct tw_block *block, const tw_act *dout,
                        const tw_act *out, const float *lse, size_t stride) {
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
    const struct work work = work_of(arrays->scratch, shape);
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
