/* ops_ref.c - the reference operations, compiled once per type of activation; callers use
 * tw_ops_ref(). They compute in double and round on storing. */
#include <math.h>

#include "kernels/act.h"
#include "kernels/ops.h"

/* names such as tw_ref_f32_gelu and tw_ref_bf16_gelu */
#define TW_REF(op) TW_ACT_NAME(ref, op)

/* Declares a function of the type of member `op` of struct tw_ops. */
#define DECLARE(op) __typeof__(*((const struct tw_ops *)0)->op) TW_REF(op);
TW_OPS_EACH(DECLARE)
extern const struct tw_ops TW_REF(table);

/* Reads x[i] as a double, or stores it rounded. */
static double ref_get(const void *x, size_t i) {
    return (double)tw_act_get((const tw_act *)x + i);
}

static void ref_put(void *x, size_t i, double value) {
    tw_act_put((tw_act *)x + i, (float)value);
}

/* ---- normalise ------------------------------------------------------------------------------ */

void TW_REF(norm)(void *y, void *x, const void *residual, float *stats,
                  const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows; r++) {
        const size_t row = r * width;
        double mean = 0.0, variance = 0.0;
        if (residual != NULL) {
            for (size_t i = row; i < row + width; i++) {
                ref_put(x, i, ref_get(x, i) + ref_get(residual, i));
            }
        }
        for (size_t i = row; i < row + width && !norm->is_rms; i++) mean += ref_get(x, i);
        mean /= (double)width;
        for (size_t i = row; i < row + width; i++) {
            variance += (ref_get(x, i) - mean) * (ref_get(x, i) - mean);
        }
        const double rstd = 1.0 / sqrt(variance / (double)width + (double)norm->eps);
        for (size_t i = 0; i < width; i++) {
            const double normal = (ref_get(x, row + i) - mean) * rstd;
            const double bias = norm->bias == NULL ? 0.0 : (double)norm->bias[i];
            ref_put(y, row + i, normal * (double)norm->weight[i] + bias);
        }
        if (stats == NULL) continue;
        stats[2 * r] = (float)mean;
        stats[2 * r + 1] = (float)rstd;
    }
}

/* With normal = (x - mean) * rstd and g = dy * weight:
 *     dx = rstd * (g - mean_i(g) - normal * mean_i(g * normal)), without mean_i(g) for RMSNorm */
void TW_REF(norm_backward)(void *dx, float *dweight, float *dbias, const void *dy, const void *x,
                           const float *stats, const struct tw_norm *norm) {
    const size_t width = norm->width;
    for (size_t r = 0; r < norm->rows; r++) {
        const size_t row = r * width;
        const double mean = (double)stats[2 * r], rstd = (double)stats[2 * r + 1];
        double g_mean = 0.0, g_normal_mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            const double g = ref_get(dy, row + i) * (double)norm->weight[i];
            g_mean += g / (double)width;
            g_normal_mean += g * (ref_get(x, row + i) - mean) * rstd / (double)width;
        }
        if (norm->is_rms) g_mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            const double normal = (ref_get(x, row + i) - mean) * rstd;
            const double d = ref_get(dy, row + i), g = d * (double)norm->weight[i];
            ref_put(dx, row + i,
                    ref_get(dx, row + i) + rstd * (g - g_mean - normal * g_normal_mean));
            if (dweight != NULL) dweight[i] += (float)(d * normal);
            if (dbias != NULL) dbias[i] += (float)d;
        }
    }
}

/* ---- bias ----------------------------------------------------------------------------------- */

void TW_REF(add)(void *y, const void *x, size_t n) {
    for (size_t i = 0; i < n; i++) ref_put(y, i, ref_get(y, i) + ref_get(x, i));
}

void TW_REF(bias)(void *y, const float *bias, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            ref_put(y, r * n + i, ref_get(y, r * n + i) + (double)bias[i]);
        }
    }
}

void TW_REF(bias_backward)(float *dbias, const void *dy, size_t dy_stride, uint32_t rows,
                           uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) dbias[i] += (float)ref_get(dy, r * dy_stride + i);
    }
}

/* ---- rope ----------------------------------------------------------------------------------- */

void TW_REF(rope)(void *x, size_t x_stride, uint32_t rows, const struct tw_rope *rope,
                  bool is_inverse) {
    const size_t half = rope->head_size / 2;
    for (size_t r = 0; r < rows; r++) {
        for (size_t h = 0; h < rope->heads; h++) {
            for (size_t i = 0; i < half; i++) {
                const size_t at = r * x_stride + h * rope->head_size + i;
                const double a = ref_get(x, at), b = ref_get(x, at + half);
                const double cos = (double)rope->cos[r * half + i];
                const double sin = (double)rope->sin[r * half + i] * (is_inverse ? -1.0 : 1.0);
                ref_put(x, at, a * cos - b * sin);
                ref_put(x, at + half, b * cos + a * sin);
            }
        }
    }
}

/* ---- gelu ----------------------------------------------------------------------------------- */

#define SQRT_2_OVER_PI 0.79788456080286535588

void TW_REF(gelu)(void *y, const void *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const double t = ref_get(x, i);
        ref_put(y, i, 0.5 * t * (1.0 + tanh(SQRT_2_OVER_PI * (t + 0.044715 * t * t * t))));
    }
}

void TW_REF(gelu_backward)(void *dy, void *y, const void *x, size_t n) {
    TW_REF(gelu)(y, x, n);
    for (size_t i = 0; i < n; i++) {
        const double t = ref_get(x, i);
        const double h = tanh(SQRT_2_OVER_PI * (t + 0.044715 * t * t * t));
        const double dh = (1.0 - h * h) * SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * t * t);
        ref_put(dy, i, ref_get(dy, i) * (0.5 * (1.0 + h) + 0.5 * t * dh));
    }
}

/* ---- swiglu --------------------------------------------------------------------------------- */

void TW_REF(swiglu)(void *y, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const double gate = ref_get(x, 2 * r * n + i);
            const double up = ref_get(x, (2 * r + 1) * n + i);
            ref_put(y, r * n + i, gate / (1.0 + exp(-gate)) * up);
        }
    }
}

/* With s = 1 / (1 + e^-gate): silu = gate * s, silu' = s * (1 + gate * (1 - s)). */
void TW_REF(swiglu_backward)(void *dx, const void *dy, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < n; i++) {
            const size_t at_gate = 2 * r * n + i, at_up = at_gate + n;
            const double gate = ref_get(x, at_gate), up = ref_get(x, at_up);
            const double s = 1.0 / (1.0 + exp(-gate)), d = ref_get(dy, r * n + i);
            ref_put(dx, at_gate, d * up * s * (1.0 + gate * (1.0 - s)));
            ref_put(dx, at_up, d * gate * s);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------ */

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
    for (size_t i = 0; i < n; i++) sum += ref_get(a, at_a + i) * ref_get(b, at_b + i);
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
                value += (double)p[s] * ref_get(head->arrays->v, s * shape->kv_stride + i);
            }
            ref_put(head->arrays->out, t * shape->out_stride + head->at + i, value / sum);
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
            sum += (double)ds[s] * ref_get(a->k, s * shape->kv_stride + i);
        }
        ref_put(a->dq, t * shape->q_stride + head->at + i, sum);
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
                sum_k += (double)ds[of] * ref_get(a->q, t * shape->q_stride + at);
                sum_v += (double)p[of] * ref_get(a->dout, t * shape->out_stride + at);
            }
        }
        ref_put(a->dk, s * shape->kv_stride + i, sum_k);
        ref_put(a->dv, s * shape->kv_stride + i, sum_v);
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

/* ---- cross entropy -------------------------------------------------------------------------- */

double TW_REF(cross_entropy)(void *dlogits, float *logits, const uint32_t *targets,
                             const struct tw_cross_entropy *cfg) {
    double loss = 0.0;
    for (size_t r = 0; r < cfg->rows; r++) {
        const float *row = logits + r * cfg->logits_stride;
        const bool is_scored = (targets[r] & TW_TOKEN_UNSCORED) == 0;
        double max = -INFINITY, sum = 0.0;
        for (size_t i = 0; i < cfg->vocab && dlogits != NULL && !is_scored; i++)
            ref_put(dlogits, r * cfg->dlogits_stride + i, 0.0);
        if (!is_scored) continue;
        for (size_t i = 0; i < cfg->vocab; i++) {
            if (!((double)row[i] <= max)) max = (double)row[i];
        }
        for (size_t i = 0; i < cfg->vocab; i++) sum += exp((double)row[i] - max);
        const double lse = max + log(sum);
        loss += lse - (double)row[targets[r]];
        for (size_t i = 0; i < cfg->vocab && dlogits != NULL; i++) {
            const double p = (1.0 + 2.0 * (double)cfg->z_loss * lse) * exp((double)row[i] - lse);
            ref_put(dlogits, r * cfg->dlogits_stride + i,
                    (double)cfg->scale * (p - (i == targets[r] ? 1.0 : 0.0)));
        }
    }
    return loss;
}

/* ---- embedding ------------------------------------------------------------------------------ */

void TW_REF(embedding)(void *x, const float *wte, const float *wpe, const struct tw_embedding *in) {
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const size_t token = in->tokens[b * in->token_stride + t] & ~TW_TOKEN_UNSCORED,
                     position = in->position_first + t;
        for (size_t i = 0; i < in->width; i++) {
            const double place = wpe == NULL ? 0.0 : (double)wpe[position * in->width + i];
            ref_put(x, r * in->width + i, (double)wte[token * in->width + i] + place);
        }
    }
}

void TW_REF(embedding_backward)(float *dwte, float *dwpe, const void *dx,
                                const struct tw_embedding *in) {
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const size_t token = in->tokens[b * in->token_stride + t] & ~TW_TOKEN_UNSCORED,
                     position = in->position_first + t;
        for (size_t i = in->column_first; i < in->column_first + in->columns; i++) {
            const float d = (float)ref_get(dx, r * in->width + i);
            dwte[token * in->width + i] += d;
            if (dwpe != NULL) dwpe[position * in->width + i] += d;
        }
    }
}

/* ---- adamw ---------------------------------------------------------------------------------- */

void TW_REF(adamw)(float *theta, float *m, float *v, const float *gradient, size_t n,
                   const struct tw_adamw *cfg) {
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * cfg->gradient_scale;
        m[i] = cfg->beta1 * m[i] + (1.0f - cfg->beta1) * g;
        v[i] = cfg->beta2 * v[i] + (1.0f - cfg->beta2) * g * g;
        const float m_hat = m[i] / cfg->correction1, v_hat = v[i] / cfg->correction2;
        theta[i] -= cfg->lr * (m_hat / (sqrtf(v_hat) + cfg->eps) + cfg->decay * theta[i]);
    }
}

double TW_REF(sum_squares)(const float *x, size_t n) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* ---- convert -------------------------------------------------------------------------------- */

void TW_REF(from_f32)(void *to, const float *from, size_t n) {
    for (size_t i = 0; i < n; i++) tw_act_put((tw_act *)to + i, from[i]);
}

void TW_REF(to_f32)(float *to, const void *from, size_t n) {
    for (size_t i = 0; i < n; i++) to[i] = tw_act_get((const tw_act *)from + i);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define MEMBER(op) .op = TW_REF(op),
const struct tw_ops TW_REF(table) = {
    .name = "reference", .type = TW_ACT_TYPE, .type_bytes = sizeof(tw_act), TW_OPS_EACH(MEMBER)};
