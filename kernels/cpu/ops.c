/* ops.c - operations of a decoder besides normalisation and attention, in vectors. */
#include <math.h>

#include "kernels/cpu/vec.h"

/* ---- bias ----------------------------------------------------------------------------------- */

void TW_CPU(add)(void *y, const void *x, size_t n) {
    tw_act *to = y;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_act_store(to + i, tw_act_load(to + i) + tw_act_load(from + i));
    }
    for (; i < n; i++) tw_act_put(to + i, tw_act_get(to + i) + tw_act_get(from + i));
}

void TW_CPU(bias)(void *y, const float *bias, uint32_t rows, uint32_t n) {
    tw_act *row = y;
    for (size_t r = 0; r < rows; r++, row += n) {
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            tw_act_store(row + i, tw_act_load(row + i) + tw_vec_load(bias + i));
        }
        for (; i < n; i++) tw_act_put(row + i, tw_act_get(row + i) + bias[i]);
    }
}

/* The sums of a group of columns stay in registers across all rows. */
void TW_CPU(bias_backward)(float *dbias, const void *dy, size_t dy_stride, uint32_t rows,
                           uint32_t n) {
    enum { STRIP = 8 };
    const tw_act *from = dy;
    size_t i = 0;
    for (; i + STRIP * TW_VEC <= n; i += STRIP * TW_VEC) {
        tw_vec sum[STRIP];
        for (size_t j = 0; j < STRIP; j++) sum[j] = tw_vec_load(dbias + i + j * TW_VEC);
        for (size_t r = 0; r < rows; r++) {
            for (size_t j = 0; j < STRIP; j++) {
                sum[j] += tw_act_load(from + r * dy_stride + i + j * TW_VEC);
            }
        }
        for (size_t j = 0; j < STRIP; j++) tw_vec_store(dbias + i + j * TW_VEC, sum[j]);
    }
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_vec sum = tw_vec_load(dbias + i);
        for (size_t r = 0; r < rows; r++) sum += tw_act_load(from + r * dy_stride + i);
        tw_vec_store(dbias + i, sum);
    }
    for (; i < n; i++) {
        for (size_t r = 0; r < rows; r++) dbias[i] += tw_act_get(from + r * dy_stride + i);
    }
}

/* ---- gelu ----------------------------------------------------------------------------------- */

/* GELU with one exponential: (1 + tanh(u)) / 2 is the logistic function of 2 * u. Error
 * against double: gelu within 1e-6 * (|gelu| + 0.05), gelu' within 3e-6. */

#define TWO_SQRT_2_OVER_PI 1.5957691216f
#define CUBIC 0.044715f

TW_INLINE tw_vec gelu(tw_vec t) {
    return t * tw_vec_logistic(TWO_SQRT_2_OVER_PI * (t + CUBIC * t * t * t));
}

struct gelu {
    tw_vec y, slope;
};

/* d/dx (x * s) = s + x * s * (1 - s) * 2 * u'. Where |t| > 16, s is 0 or 1, so t is limited there
 * to keep u' finite. Adding t - t gives NaN if t is not finite, and changes nothing otherwise. */
TW_INLINE struct gelu gelu_and_slope(tw_vec t) {
    const tw_vec near = tw_vec_min(tw_vec_all(16.0f), tw_vec_max(tw_vec_all(-16.0f), t));
    const tw_vec square = near * near;
    const tw_vec s = tw_vec_logistic(TWO_SQRT_2_OVER_PI * near * (1.0f + CUBIC * square));
    const tw_vec slope = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * square);
    return (struct gelu){.y = t * s, .slope = s + near * s * (1.0f - s) * slope + (t - t)};
}

void TW_CPU(gelu)(void *y, const void *x, size_t n) {
    tw_act *to = y;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(to + i, gelu(tw_act_load(from + i)));
    if (i < n) tw_act_store_part(to + i, gelu(tw_act_load_part(from + i, n - i)), n - i);
}

void TW_CPU(gelu_backward)(void *dy, void *y, const void *x, size_t n) {
    tw_act *d = dy, *to = y;
    const tw_act *from = x;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        const struct gelu at = gelu_and_slope(tw_act_load(from + i));
        tw_act_store(to + i, at.y);
        tw_act_store(d + i, tw_act_load(d + i) * at.slope);
    }
    if (i == n) return;
    const struct gelu at = gelu_and_slope(tw_act_load_part(from + i, n - i));
    tw_act_store_part(to + i, at.y, n - i);
    tw_act_store_part(d + i, tw_act_load_part(d + i, n - i) * at.slope, n - i);
}

/* ---- swiglu --------------------------------------------------------------------------------- */

void TW_CPU(swiglu)(void *y, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        const tw_act *gates = (const tw_act *)x + 2 * r * n, *ups = gates + n;
        tw_act *to = (tw_act *)y + r * n;
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            const tw_vec gate = tw_act_load(gates + i);
            tw_act_store(to + i, gate * tw_vec_logistic(gate) * tw_act_load(ups + i));
        }
        if (i == n) continue;
        const tw_vec gate = tw_act_load_part(gates + i, n - i);
        const tw_vec up = tw_act_load_part(ups + i, n - i);
        tw_act_store_part(to + i, gate * tw_vec_logistic(gate) * up, n - i);
    }
}

struct pair {
    tw_vec gate, up;
};

/* With s = 1 / (1 + e^-gate): silu = gate * s, silu' = s * (1 + gate * (1 - s)). */
TW_INLINE struct pair slopes(tw_vec gate, tw_vec up, tw_vec d) {
    const tw_vec s = tw_vec_logistic(gate);
    return (struct pair){.gate = d * up * (s * (1.0f + gate * (1.0f - s))), .up = d * (gate * s)};
}

void TW_CPU(swiglu_backward)(void *dx, const void *dy, const void *x, uint32_t rows, uint32_t n) {
    for (size_t r = 0; r < rows; r++) {
        const tw_act *gates = (const tw_act *)x + 2 * r * n, *ups = gates + n;
        const tw_act *d = (const tw_act *)dy + r * n;
        tw_act *to = (tw_act *)dx + 2 * r * n;
        size_t i = 0;
        for (; i + TW_VEC <= n; i += TW_VEC) {
            const struct pair out =
                slopes(tw_act_load(gates + i), tw_act_load(ups + i), tw_act_load(d + i));
            tw_act_store(to + i, out.gate);
            tw_act_store(to + n + i, out.up);
        }
        if (i == n) continue;
        const size_t left = n - i;
        const struct pair out =
            slopes(tw_act_load_part(gates + i, left), tw_act_load_part(ups + i, left),
                   tw_act_load_part(d + i, left));
        tw_act_store_part(to + i, out.gate, left);
        tw_act_store_part(to + n + i, out.up, left);
    }
}

/* ---- rope ----------------------------------------------------------------------------------- */

/* Rotates the two halves of one head by the angles of the row. */
static void turn(tw_act *x, const float *cos, const float *sin, size_t half, float sign) {
    size_t i = 0;
    for (; i + TW_VEC <= half; i += TW_VEC) {
        const tw_vec a = tw_act_load(x + i), b = tw_act_load(x + half + i);
        const tw_vec c = tw_vec_load(cos + i), s = tw_vec_load(sin + i) * sign;
        tw_act_store(x + i, a * c - b * s);
        tw_act_store(x + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        const float a = tw_act_get(x + i), b = tw_act_get(x + half + i), s = sin[i] * sign;
        tw_act_put(x + i, a * cos[i] - b * s);
        tw_act_put(x + half + i, b * cos[i] + a * s);
    }
}

void TW_CPU(rope)(void *x, size_t x_stride, uint32_t rows, const struct tw_rope *rope,
                  bool is_inverse) {
    const size_t half = rope->head_size / 2;
    for (size_t r = 0; r < rows; r++) {
        tw_act *row = (tw_act *)x + r * x_stride;
        for (size_t h = 0; h < rope->heads; h++) {
            turn(row + h * rope->head_size, rope->cos + r * half, rope->sin + r * half, half,
                 is_inverse ? -1.0f : 1.0f);
        }
    }
}

/* ---- cross entropy -------------------------------------------------------------------------- */

/* Loss and gradient of a row of logits in three passes: maximum, exponentials and
 * their sum, gradient. */

enum { CHAINS = 4 };

/* Returns the maximum of a row. A NaN may be missed here, but row_exp then returns NaN. */
static float row_largest(const float *row, size_t n) {
    tw_vec largest[CHAINS];
    size_t i = 0;
    for (size_t j = 0; j < CHAINS; j++) largest[j] = tw_vec_all(row[0]);
    for (; i + CHAINS * TW_VEC <= n; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) {
            largest[j] = tw_vec_max(tw_vec_load(row + i + j * TW_VEC), largest[j]);
        }
    }
    for (; i + TW_VEC <= n; i += TW_VEC) largest[0] = tw_vec_max(tw_vec_load(row + i), largest[0]);
    float max = tw_vec_largest(
        tw_vec_max(tw_vec_max(largest[0], largest[1]), tw_vec_max(largest[2], largest[3])));
    for (; i < n; i++) max = row[i] > max ? row[i] : max;
    return max;
}

/* Returns the sum of e^(row - max). If is_kept, the exponentials replace the row. */
TW_INLINE float row_exp(float *row, size_t n, float max, const bool is_kept) {
    tw_vec sum[CHAINS] = {{0}};
    size_t i = 0;
    for (; i + CHAINS * TW_VEC <= n; i += CHAINS * TW_VEC) {
        for (size_t j = 0; j < CHAINS; j++) {
            const tw_vec e = tw_vec_exp(tw_vec_load(row + i + j * TW_VEC) - max);
            if (is_kept) tw_vec_store(row + i + j * TW_VEC, e);
            sum[j] += e;
        }
    }
    for (; i + TW_VEC <= n; i += TW_VEC) {
        const tw_vec e = tw_vec_exp(tw_vec_load(row + i) - max);
        if (is_kept) tw_vec_store(row + i, e);
        sum[0] += e;
    }
    float rest = 0.0f;
    if (i < n) {
        const tw_vec e = tw_vec_exp(tw_vec_load_part(row + i, n - i) - max);
        if (is_kept) tw_vec_store_part(row + i, e, n - i);
        for (size_t j = 0; j < n - i; j++) rest += e[j];
    }
    return tw_vec_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* Sets `to` to row * factor. `to` may begin where `row` begins, because writing never overtakes
 * reading. */
static void row_scale(tw_act *to, const float *row, size_t n, float factor) {
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(to + i, tw_vec_load(row + i) * factor);
    for (; i < n; i++) tw_act_put(to + i, row[i] * factor);
}

double TW_CPU(cross_entropy)(void *dlogits, float *logits, const uint32_t *targets,
                             const struct tw_cross_entropy *cfg) {
    double loss = 0.0;
    for (size_t r = 0; r < cfg->rows; r++) {
        float *row = logits + r * cfg->logits_stride;
        tw_act *to = (tw_act *)dlogits + r * cfg->dlogits_stride;
        if ((targets[r] & TW_TOKEN_UNSCORED) != 0) {
            if (dlogits != NULL) memset(to, 0, cfg->vocab * sizeof(*to));
            continue;
        }
        const float max = row_largest(row, cfg->vocab), target = row[targets[r]];
        const float sum = dlogits != NULL ? row_exp(row, cfg->vocab, max, true)
                                          : row_exp(row, cfg->vocab, max, false);
        const float log_sum = logf(sum);
        loss += (double)log_sum + ((double)max - (double)target);
        if (dlogits == NULL) continue;
        const float pull = 1.0f + 2.0f * cfg->z_loss * (max + log_sum);
        const float factor = cfg->scale * pull / sum, at_target = row[targets[r]] * factor;
        row_scale(to, row, cfg->vocab, factor);
        tw_act_put(to + targets[r], at_target - cfg->scale);
    }
    return loss;
}

/* ---- embedding ------------------------------------------------------------------------------ */

static void gather_row(tw_act *x, const float *token, const float *position, size_t width) {
    size_t i = 0;
    for (; i + TW_VEC <= width; i += TW_VEC) {
        tw_vec value = tw_vec_load(token + i);
        if (position != NULL) value += tw_vec_load(position + i);
        tw_act_store(x + i, value);
    }
    for (; i < width; i++) {
        tw_act_put(x + i, token[i] + (position != NULL ? position[i] : 0.0f));
    }
}

static void scatter_row(float *to, const tw_act *dx, size_t n) {
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) {
        tw_vec_store(to + i, tw_vec_load(to + i) + tw_act_load(dx + i));
    }
    for (; i < n; i++) to[i] += tw_act_get(dx + i);
}

static size_t token_of(const struct tw_embedding *in, size_t b, size_t t) {
    return in->tokens[b * in->token_stride + t] & ~TW_TOKEN_UNSCORED;
}

void TW_CPU(embedding)(void *x, const float *wte, const float *wpe, const struct tw_embedding *in) {
    const size_t width = in->width;
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const float *position = wpe == NULL ? NULL : wpe + (in->position_first + t) * width;
        gather_row((tw_act *)x + r * width, wte + token_of(in, b, t) * width, position, width);
    }
}

void TW_CPU(embedding_backward)(float *dwte, float *dwpe, const void *dx,
                                const struct tw_embedding *in) {
    const size_t width = in->width, first = in->column_first;
    for (size_t r = 0; r < in->rows; r++) {
        const size_t at = in->row_first + r, b = at / in->context, t = at % in->context;
        const tw_act *from = (const tw_act *)dx + r * width + first;
        scatter_row(dwte + token_of(in, b, t) * width + first, from, in->columns);
        if (dwpe == NULL) continue;
        scatter_row(dwpe + (in->position_first + t) * width + first, from, in->columns);
    }
}

/* ---- adamw ---------------------------------------------------------------------------------- */

void TW_CPU(adamw)(float *restrict theta, float *restrict m, float *restrict v,
                   const float *restrict gradient, size_t n, const struct tw_adamw *cfg) {
    const float beta1 = cfg->beta1, beta2 = cfg->beta2, scale = cfg->gradient_scale;
    const float step = cfg->lr / cfg->correction1, shrink = cfg->lr * cfg->decay;
    const float root_scale = 1.0f / sqrtf(cfg->correction2), eps = cfg->eps;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float g = gradient[i] * scale;
        const float m_new = beta1 * m[i] + (1.0f - beta1) * g;
        const float v_new = beta2 * v[i] + (1.0f - beta2) * g * g;
        m[i] = m_new;
        v[i] = v_new;
        theta[i] -= step * m_new / (sqrtf(v_new) * root_scale + eps) + shrink * theta[i];
    }
}

/* Sums in double, because the square of a finite float neither overflows nor underflows there. */
double TW_CPU(sum_squares)(const float *x, size_t n) {
    enum { LANES = 32 };
    double sum[LANES] = {0}, total = 0.0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (size_t j = 0; j < LANES; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    for (size_t j = 0; j < LANES; j++) total += sum[j];
    return total;
}

/* ---- convert -------------------------------------------------------------------------------- */

void TW_CPU(from_f32)(void *to, const float *from, size_t n) {
    tw_act *y = to;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_act_store(y + i, tw_vec_load(from + i));
    for (; i < n; i++) tw_act_put(y + i, from[i]);
}

void TW_CPU(to_f32)(float *to, const void *from, size_t n) {
    const tw_act *x = from;
    size_t i = 0;
    for (; i + TW_VEC <= n; i += TW_VEC) tw_vec_store(to + i, tw_act_load(x + i));
    for (; i < n; i++) to[i] = tw_act_get(x + i);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define MEMBER(op) .op = TW_CPU(op),
const struct tw_ops TW_CPU(table) = {
    .name = TW_CPU_NAME, .type = TW_ACT_TYPE, .type_bytes = sizeof(tw_act), TW_OPS_EACH(MEMBER)};
