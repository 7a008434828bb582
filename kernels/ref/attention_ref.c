/* attention_ref.c - causal attention, arXiv 1706.03762, one query and one key at a time. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Query head g of the group, with its key/value head. */
struct head {
    const struct tw_attention *shape;
    const struct tw_attention_arrays *arrays;
    float *lse; /* (queries), or NULL */
    size_t at;  /* offset of the head within a row of q and out */
    double scale;
};

static struct head head_of(const struct tw_attention *shape,
                           const struct tw_attention_arrays *arrays, size_t g) {
    return (struct head){.shape = shape,
                         .arrays = arrays,
                         .lse = arrays->lse == NULL ? NULL : arrays->lse + g * shape->queries,
                         .at = g * shape->head_size,
                         .scale = 1.0 / sqrt((double)shape->head_size)};
}

static double dot(const void *a, size_t at_a, const void *b, size_t at_b, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += tw_ref_get(a, at_a + i) * tw_ref_get(b, at_b + i);
    return sum;
}

static size_t first_of(const struct tw_attention *shape) {
    return (size_t)shape->keys -
           shape->queries; /* offset of the diagonal: query i attends to keys [0, offset + i] */
}

static double score(const struct head *head, size_t t, size_t s) {
    const struct tw_attention *shape = head->shape;
    return head->scale * dot(head->arrays->q, t * shape->q_stride + head->at, head->arrays->k,
                             s * shape->kv_stride, shape->head_size);
}

static void head_forward(const struct head *head) {
    const struct tw_attention *shape = head->shape;
    float *p = head->arrays->scratch;
    for (size_t t = 0; t < shape->queries; t++) {
        const size_t seen = first_of(shape) + t + 1;
        double max = -INFINITY, sum = 0.0;
        for (size_t s = 0; s < seen; s++) {
            p[s] = (float)score(head, t, s);
            if (!((double)p[s] <= max)) max = (double)p[s];
        }
        for (size_t s = 0; s < seen; s++) {
            const double value = exp((double)p[s] - max);
            p[s] = (float)value;
            sum += value;
        }
        for (size_t i = 0; i < shape->head_size; i++) {
            double value = 0.0;
            for (size_t s = 0; s < seen; s++) {
                value += (double)p[s] * tw_ref_get(head->arrays->v, s * shape->kv_stride + i);
            }
            tw_ref_put(head->arrays->out, t * shape->out_stride + head->at + i, value / sum);
        }
        if (head->lse != NULL) head->lse[t] = (float)(max + log(sum));
    }
}

void TW_REF(attention)(const struct tw_attention *shape, const struct tw_attention_arrays *arrays) {
    for (size_t g = 0; g < shape->group; g++) {
        const struct head head = head_of(shape, arrays, g);
        head_forward(&head);
    }
}

/* Returns P and computes dS of query t and key s:
 *     P = exp(score - lse),  dS = P * (dot(dout, v) - dot(dout, out)) * scale */
static double p_of(double *ds, const struct head *head, size_t t, size_t s) {
    const struct tw_attention *shape = head->shape;
    const struct tw_attention_arrays *a = head->arrays;
    const size_t at = t * shape->out_stride + head->at, n = shape->head_size;
    const double p = exp(score(head, t, s) - (double)head->lse[t]);
    *ds = p * head->scale *
          (dot(a->dout, at, a->v, s * shape->kv_stride, n) - dot(a->dout, at, a->out, at, n));
    return p;
}

/* Computes dq of query t: the sum of dS * k over the keys that the query attends to. */
static void query_backward(const struct head *head, size_t t) {
    const struct tw_attention *shape = head->shape;
    const struct tw_attention_arrays *a = head->arrays;
    float *ds = a->scratch; /* (keys) */
    const size_t seen = first_of(shape) + t + 1;
    for (size_t s = 0; s < seen; s++) {
        double value;
        p_of(&value, head, t, s);
        ds[s] = (float)value;
    }
    for (size_t i = 0; i < shape->head_size; i++) {
        double sum = 0.0;
        for (size_t s = 0; s < seen; s++) {
            sum += (double)ds[s] * tw_ref_get(a->k, s * shape->kv_stride + i);
        }
        tw_ref_put(a->dq, t * shape->q_stride + head->at + i, sum);
    }
}

/* Computes dk and dv of key s from P and dS (group, queries): sums of dS * q and of P * dout over
 * all queries that attend to the key. */
static void key_backward(const struct tw_attention *shape, const struct tw_attention_arrays *a,
                         size_t s, const float *p, const float *ds) {
    const size_t first = first_of(shape), from = s < first ? 0 : s - first;
    for (size_t i = 0; i < shape->head_size; i++) {
        double sum_k = 0.0, sum_v = 0.0;
        for (size_t g = 0; g < shape->group; g++) {
            for (size_t t = from; t < shape->queries; t++) {
                const size_t at = g * shape->head_size + i, of = g * shape->queries + t;
                sum_k += (double)ds[of] * tw_ref_get(a->q, t * shape->q_stride + at);
                sum_v += (double)p[of] * tw_ref_get(a->dout, t * shape->out_stride + at);
            }
        }
        tw_ref_put(a->dk, s * shape->kv_stride + i, sum_k);
        tw_ref_put(a->dv, s * shape->kv_stride + i, sum_v);
    }
}

void TW_REF(attention_backward)(const struct tw_attention *shape,
                                const struct tw_attention_arrays *arrays) {
    const size_t first = first_of(shape);
    float *p = arrays->scratch, *ds = p + (size_t)shape->group * shape->queries;
    for (size_t s = 0; s < shape->keys; s++) {
        for (size_t g = 0; g < shape->group; g++) {
            const struct head head = head_of(shape, arrays, g);
            for (size_t t = s < first ? 0 : s - first; t < shape->queries; t++) {
                double value;
                p[g * shape->queries + t] = (float)p_of(&value, &head, t, s);
                ds[g * shape->queries + t] = (float)value;
            }
        }
        key_backward(shape, arrays, s, p, ds);
    }
    for (size_t g = 0; g < shape->group; g++) {
        const struct head head = head_of(shape, arrays, g);
        for (size_t t = 0; t < shape->queries; t++) query_backward(&head, t);
    }
}
