/* attention.c - causal attention, a block of 32 queries of one head at a time: the scores of the
 * block against the keys it may see, their softmax, and the product with the values. The backward
 * pass recomputes the scores from the stored log-sum-exp (arXiv 2205.14135, section 3.1). */
#include <math.h>

#include "kernels/cpu/exp.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile.h"

enum { QUERIES = 32 };

struct head {
    size_t context, size, stride; /* stride between tokens in qkv */
    size_t padded;                /* context rounded up to a vector: row length of scratch */
    size_t width;                 /* stride between tokens in out */
    const float *q, *k, *v;
    float *scores, *dscores; /* (QUERIES, padded) */
    float *k_t, *v_t;        /* (size, padded): transposed, so that scores are row vectors */
    float scale;
};

static struct head head_of(const float *qkv, float *scratch, const struct tw_attention *shape,
                           size_t b, size_t h) {
    const size_t width = shape->width, size = width / shape->heads;
    const size_t padded = (shape->context + 15u) / 16u * 16u;
    const float *q = qkv + b * shape->context * 3 * width + h * size;
    return (struct head){
        .context = shape->context,
        .size = size,
        .stride = 3 * width,
        .padded = padded,
        .width = width,
        .q = q,
        .k = q + width,
        .v = q + 2 * width,
        .scores = scratch,
        .dscores = scratch + QUERIES * padded,
        .k_t = scratch + 2 * QUERIES * padded,
        .v_t = scratch + 2 * QUERIES * padded + size * padded,
        .scale = 1.0f / sqrtf((float)size),
    };
}

/* to (size, padded) = from (context, size)^T, zero beyond the context. */
static void transpose(float *restrict to, const float *restrict from, const struct head *head) {
    for (size_t i = 0; i < head->size; i++) {
        float *row = to + i * head->padded;
        for (size_t t = 0; t < head->context; t++) row[t] = from[t * head->stride + i];
        for (size_t t = head->context; t < head->padded; t++) row[t] = 0.0f;
    }
}

/* Keys the block of queries [first, first + rows) may see, rounded up to whole vectors. */
static size_t keys_of(size_t first, size_t rows) {
    return (first + rows + TW_VEC - 1u) / TW_VEC * TW_VEC;
}

/* scores (rows, keys) = x (rows, size) y_t (size, keys) */
static void scores_of(float *scores, const float *x, size_t x_stride, const float *y_t,
                      const struct head *head, size_t rows, size_t keys) {
    const struct tw_tile tile = {.m = rows,
                                 .k = head->size,
                                 .n = keys,
                                 .a_row = x_stride,
                                 .a_col = 1,
                                 .b_row = head->padded,
                                 .y_row = head->padded};
    tw_tile_multiply(scores, x, y_t, &tile);
}

/* Row of scores -> probabilities over [0, seen), zero over [seen, keys). Returns log sum exp. */
static float softmax_row(float *restrict row, size_t seen, size_t keys, float scale) {
    float max = row[0], sum = 0.0f;
#pragma omp simd reduction(max : max)
    for (size_t s = 0; s < seen; s++) max = row[s] > max ? row[s] : max;
#pragma omp simd reduction(+ : sum)
    for (size_t s = 0; s < seen; s++) {
        row[s] = tw_exp((row[s] - max) * scale);
        sum += row[s];
    }
    const float factor = 1.0f / sum;
#pragma omp simd
    for (size_t s = 0; s < seen; s++) row[s] *= factor;
    for (size_t s = seen; s < keys; s++) row[s] = 0.0f;
    return max * scale + logf(sum);
}

static void head_forward(float *out, float *lse, const struct head *head) {
    transpose(head->k_t, head->k, head);
    for (size_t first = 0; first < head->context; first += QUERIES) {
        const size_t left = head->context - first, rows = left < QUERIES ? left : QUERIES;
        const size_t keys = keys_of(first, rows);
        scores_of(head->scores, head->q + first * head->stride, head->stride, head->k_t, head, rows,
                  keys);
        for (size_t r = 0; r < rows; r++) {
            float *row = head->scores + r * head->padded;
            lse[first + r] = softmax_row(row, first + r + 1, keys, head->scale);
        }
        const struct tw_tile tile = {.m = rows,
                                     .k = first + rows,
                                     .n = head->size,
                                     .a_row = head->padded,
                                     .a_col = 1,
                                     .b_row = head->stride,
                                     .y_row = head->width};
        tw_tile_multiply(out + first * head->width, head->scores, head->v, &tile);
    }
}

void TW_CPU(attention)(float *out, float *lse, const float *qkv, float *scratch,
                       const struct tw_attention *shape) {
    for (size_t b = 0; b < shape->sequences; b++) {
        for (size_t h = 0; h < shape->heads; h++) {
            const struct head head = head_of(qkv, scratch, shape, b, h);
            head_forward(out + b * shape->context * head.width + h * head.size,
                         lse + (b * shape->heads + h) * shape->context, &head);
        }
    }
}

/* One row: p = exp(score - lse) and dscore = p (dp - dout . out) scale, in place. */
static void softmax_row_backward(float *restrict p, float *restrict dp, size_t seen, size_t keys,
                                 float lse, float row_sum, float scale) {
#pragma omp simd
    for (size_t s = 0; s < seen; s++) {
        p[s] = tw_exp(p[s] * scale - lse);
        dp[s] = p[s] * (dp[s] - row_sum) * scale;
    }
    for (size_t s = seen; s < keys; s++) {
        p[s] = 0.0f;
        dp[s] = 0.0f;
    }
}

/* dq of the block, and its share of dk and dv. The last block comes first: it sees every key, so
 * it writes dk and dv and the others add. */
static void block_backward(float *dq, const float *dout, const struct head *head, size_t first,
                           size_t rows) {
    const bool is_first_visit = first + rows == head->context;
    float *dk = dq + head->width, *dv = dk + head->width;
    const struct tw_tile to_query = {.m = rows,
                                     .k = first + rows,
                                     .n = head->size,
                                     .a_row = head->padded,
                                     .a_col = 1,
                                     .b_row = head->stride,
                                     .y_row = head->stride};
    tw_tile_multiply(dq + first * head->stride, head->dscores, head->k, &to_query);
    struct tw_tile to_key = {.m = first + rows,
                             .k = rows,
                             .n = head->size,
                             .a_row = 1,
                             .a_col = head->padded,
                             .b_row = head->stride,
                             .y_row = head->stride,
                             .is_added = !is_first_visit};
    tw_tile_multiply(dk, head->dscores, head->q + first * head->stride, &to_key);
    to_key.b_row = head->width;
    tw_tile_multiply(dv, head->scores, dout + first * head->width, &to_key);
}

static void head_backward(float *dq, const float *dout, const float *out, const float *lse,
                          const struct head *head) {
    transpose(head->k_t, head->k, head);
    transpose(head->v_t, head->v, head);
    for (size_t blocks = (head->context + QUERIES - 1) / QUERIES; blocks > 0; blocks--) {
        const size_t first = (blocks - 1) * QUERIES, left = head->context - first;
        const size_t rows = left < QUERIES ? left : QUERIES, keys = keys_of(first, rows);
        scores_of(head->scores, head->q + first * head->stride, head->stride, head->k_t, head, rows,
                  keys);
        scores_of(head->dscores, dout + first * head->width, head->width, head->v_t, head, rows,
                  keys);
        for (size_t r = 0; r < rows; r++) {
            const float *d = dout + (first + r) * head->width;
            const float *o = out + (first + r) * head->width;
            float row_sum = 0.0f;
#pragma omp simd reduction(+ : row_sum)
            for (size_t i = 0; i < head->size; i++) row_sum += d[i] * o[i];
            softmax_row_backward(head->scores + r * head->padded, head->dscores + r * head->padded,
                                 first + r + 1, keys, lse[first + r], row_sum, head->scale);
        }
        block_backward(dq, dout, head, first, rows);
    }
}

void TW_CPU(attention_backward)(float *dqkv, const float *dout, const float *qkv, const float *out,
                                const float *lse, float *scratch,
                                const struct tw_attention *shape) {
    for (size_t b = 0; b < shape->sequences; b++) {
        for (size_t h = 0; h < shape->heads; h++) {
            const struct head head = head_of(qkv, scratch, shape, b, h);
            const size_t at = b * shape->context * head.width + h * head.size;
            head_backward(dqkv + (head.q - qkv), dout + at, out + at,
                          lse + (b * shape->heads + h) * shape->context, &head);
        }
    }
}
