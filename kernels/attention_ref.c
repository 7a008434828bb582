/* attention_ref.c - causal self-attention, arXiv 1706.03762, one query at a time. */
#include <math.h>

#include "kernels/ref.h"

/* Where a head's vectors lie: token t of q, k, v at q + t * stride and so on. */
struct head {
    size_t context, size, stride;
    const float *q, *k, *v;
    double scale;
};

static struct head head_of(const float *qkv, const struct tw_attention *shape, size_t b, size_t h) {
    const size_t width = shape->width, size = width / shape->heads;
    const float *q = qkv + b * shape->context * 3 * width + h * size;
    return (struct head){.context = shape->context,
                         .size = size,
                         .stride = 3 * width,
                         .q = q,
                         .k = q + width,
                         .v = q + 2 * width,
                         .scale = 1.0 / sqrt((double)size)};
}

static double dot(const float *a, const float *b, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void head_forward(float *out, float *lse, const struct head *head, size_t width,
                         float *scores) {
    for (size_t t = 0; t < head->context; t++) {
        double max = -INFINITY, sum = 0.0;
        for (size_t s = 0; s <= t; s++) {
            const double score = head->scale * dot(head->q + t * head->stride,
                                                   head->k + s * head->stride, head->size);
            scores[s] = (float)score;
            if (!(score <= max)) max = score;
        }
        for (size_t s = 0; s <= t; s++) sum += exp((double)scores[s] - max);
        for (size_t i = 0; i < head->size; i++) {
            double value = 0.0;
            for (size_t s = 0; s <= t; s++) {
                value += exp((double)scores[s] - max) / sum * (double)head->v[s * head->stride + i];
            }
            out[t * width + i] = (float)value;
        }
        lse[t] = (float)(max + log(sum));
    }
}

void tw_attention_ref(float *out, float *lse, const float *qkv, float *scratch,
                      const struct tw_attention *shape) {
    for (size_t b = 0; b < shape->sequences; b++) {
        for (size_t h = 0; h < shape->heads; h++) {
            const struct head head = head_of(qkv, shape, b, h);
            head_forward(out + b * shape->context * shape->width + h * head.size,
                         lse + (b * shape->heads + h) * shape->context, &head, shape->width,
                         scratch);
        }
    }
}

/* p = exp(score - lse), dp = dout . v, dscore = p (dp - dout . out):
 *     dq += dscore scale k,  dk += dscore scale q,  dv += p dout */
static void head_backward(float *dq, const float *dout, const float *out, const float *lse,
                          const struct head *head, size_t width) {
    float *dk = dq + width, *dv = dk + width;
    for (size_t t = 0; t < head->context; t++) {
        const float *d = dout + t * width;
        const double row = dot(d, out + t * width, head->size);
        for (size_t s = 0; s <= t; s++) {
            const size_t at_t = t * head->stride, at_s = s * head->stride;
            const double score = head->scale * dot(head->q + at_t, head->k + at_s, head->size);
            const double p = exp(score - (double)lse[t]);
            const double ds = p * (dot(d, head->v + at_s, head->size) - row) * head->scale;
            for (size_t i = 0; i < head->size; i++) {
                dq[at_t + i] += (float)(ds * (double)head->k[at_s + i]);
                dk[at_s + i] += (float)(ds * (double)head->q[at_t + i]);
                dv[at_s + i] += (float)(p * (double)d[i]);
            }
        }
    }
}

void tw_attention_backward_ref(float *dqkv, const float *dout, const float *qkv, const float *out,
                               const float *lse, float *scratch, const struct tw_attention *shape) {
    (void)scratch;
    const size_t width = shape->width, rows = (size_t)shape->sequences * shape->context;
    for (size_t i = 0; i < rows * 3 * width; i++) dqkv[i] = 0.0f;
    for (size_t b = 0; b < shape->sequences; b++) {
        for (size_t h = 0; h < shape->heads; h++) {
            const struct head head = head_of(qkv, shape, b, h);
            const size_t at = b * shape->context * width + h * head.size;
            head_backward(dqkv + (head.q - qkv), dout + at, out + at,
                          lse + (b * shape->heads + h) * shape->context, &head, width);
        }
    }
}
