/* model_double.c - a second, simple implementation of the model in double. */
#include "tests/worker/engine/model_double.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* A model, and its current layer `l`. */
struct model {
    const struct tw_run *run;
    const struct tw_layout *layout;
    const double *params;
    const uint32_t *tokens; /* current sequence */
    uint32_t l;
    size_t t, width, heads, kv_heads, size, ffn;
    double eps;
};

static const double *find(const struct model *model, const char *name) {
    const struct tw_tensor *found = tw_layout_find(model->layout, name);
    return found == NULL ? NULL : model->params + found->offset;
}

/* Returns the named tensor of the current layer, or NULL if there is none. */
static const double *tensor(const struct model *model, const char *name) {
    char full[96];
    (void)snprintf(full, sizeof(full), "%s%u.%s",
                   model->run->model.family == TW_FAMILY_GPT2 ? "h." : "model.layers.", model->l,
                   name);
    return find(model, full);
}

/* y = x * w + b, with y (t, out), x (t, in) and w (in, out), or (out, in) if is_out_in; b may be
 * NULL */
static double *linear(const double *x, size_t t, const size_t in_out[2], const double *w,
                      bool is_out_in, const double *b) {
    const size_t in = in_out[0], out = in_out[1];
    double *y = calloc(t * out, sizeof(*y));
    TW_ASSERT(w != NULL);
    for (size_t r = 0; r < t; r++) {
        for (size_t o = 0; o < out; o++) {
            double sum = b == NULL ? 0.0 : b[o];
            for (size_t i = 0; i < in; i++)
                sum += x[r * in + i] * (is_out_in ? w[o * in + i] : w[i * out + o]);
            y[r * out + o] = sum;
        }
    }
    return y;
}

/* RMSNorm if b is NULL, else LayerNorm; y may be x */
static void norm(double *y, const double *x, size_t t, size_t width, const double *w,
                 const double *b, double eps) {
    for (size_t r = 0; r < t; r++) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; b != NULL && i < width; i++) mean += x[r * width + i] / (double)width;
        for (size_t i = 0; i < width; i++)
            variance += pow(x[r * width + i] - mean, 2.0) / (double)width;
        for (size_t i = 0; i < width; i++) {
            y[r * width + i] =
                (x[r * width + i] - mean) / sqrt(variance + eps) * w[i] + (b == NULL ? 0.0 : b[i]);
        }
    }
}

static double *normed(const struct model *model, const double *x, const double *w,
                      const double *b) {
    double *y = calloc(model->t * model->width, sizeof(*y));
    norm(y, x, model->t, model->width, w, b, model->eps);
    return y;
}

/* Scales rotary frequencies as Llama 3.1 does, by wavelength, as in Meta's code. */
static double frequency(const struct tw_run *run, size_t i, size_t size) {
    const double plain = 1.0 / pow(run->model.rope_theta, 2.0 * (double)i / (double)size);
    const double factor = run->model.rope_factor_millionths / 1e6;
    const double low = run->model.rope_low_millionths / 1e6;
    const double high = run->model.rope_high_millionths / 1e6;
    const double wave = 2.0 * 3.14159265358979323846 / plain;
    if (factor == 1.0 || wave < run->model.rope_original / high) return plain;
    if (wave > run->model.rope_original / low) return plain / factor;
    const double smooth = (run->model.rope_original / wave - low) / (high - low);
    return (1.0 - smooth) * plain / factor + smooth * plain;
}

/* Rotates the pairs (i, i + size / 2) of x (t, heads, size) by their positions. */
static void rotate(const struct tw_run *run, double *x, size_t t, size_t heads, size_t size) {
    for (size_t r = 0; r < t; r++) {
        for (size_t h = 0; h < heads; h++) {
            double *head = x + (r * heads + h) * size;
            for (size_t i = 0; i < size / 2; i++) {
                const double angle = (double)r * frequency(run, i, size);
                const double a = head[i], b = head[i + size / 2];
                head[i] = a * cos(angle) - b * sin(angle);
                head[i + size / 2] = b * cos(angle) + a * sin(angle);
            }
        }
    }
}

/* Returns true if a separator after position r, up to and including s, hides token r from token s.
 */
static bool is_apart(const struct model *m, size_t r, size_t s) {
    if (m->run->data.documents != TW_DOCUMENTS_MASKED) return false;
    for (size_t i = r + 1; i <= s; i++) {
        if (m->tokens[i] == m->run->data.separator) return true;
    }
    return false;
}

/* Computes causal attention of q (t, heads, size) over k and v (t, kv_heads, size). */
static double *attend(const struct model *m, const double *q, const double *k, const double *v) {
    const size_t group = m->heads / m->kv_heads;
    double *y = calloc(m->t * m->heads * m->size, sizeof(*y)), *p = calloc(m->t, sizeof(*p));
    for (size_t h = 0; h < m->heads; h++) {
        for (size_t r = 0; r < m->t; r++) {
            double sum = 0.0;
            for (size_t s = 0; s <= r; s++) {
                double score = 0.0;
                for (size_t i = 0; i < m->size; i++)
                    score += q[(r * m->heads + h) * m->size + i] *
                             k[(s * m->kv_heads + h / group) * m->size + i];
                p[s] = is_apart(m, s, r) ? 0.0 : exp(score / sqrt((double)m->size));
                sum += p[s];
            }
            for (size_t s = 0; s <= r; s++) {
                for (size_t i = 0; i < m->size; i++)
                    y[(r * m->heads + h) * m->size + i] +=
                        p[s] / sum * v[(s * m->kv_heads + h / group) * m->size + i];
            }
        }
    }
    free(p);
    return y;
}

static void add(double *x, double *y, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] += y[i];
    free(y);
}

static double *columns(const double *x, size_t t, size_t width, size_t from, size_t count) {
    double *y = calloc(t * count, sizeof(*y));
    for (size_t r = 0; r < t; r++) memcpy(y + r * count, x + r * width + from, count * sizeof(*y));
    return y;
}

static void gpt2_block(const struct model *m, double *x) {
    const size_t t = m->t, width = m->width,
                 in_out[4][2] = {
                     {width, 3 * width}, {width, width}, {width, m->ffn}, {m->ffn, width}};
#define T(name) tensor(m, name)
    double *n1 = normed(m, x, T("ln_1.weight"), T("ln_1.bias"));
    double *qkv = linear(n1, t, in_out[0], T("attn.c_attn.weight"), false, T("attn.c_attn.bias"));
    double *q = columns(qkv, t, 3 * width, 0, width);
    double *k = columns(qkv, t, 3 * width, width, width);
    double *v = columns(qkv, t, 3 * width, 2 * width, width);
    double *att = attend(m, q, k, v);
    add(x, linear(att, t, in_out[1], T("attn.c_proj.weight"), false, T("attn.c_proj.bias")),
        t * width);
    double *n2 = normed(m, x, T("ln_2.weight"), T("ln_2.bias"));
    double *up = linear(n2, t, in_out[2], T("mlp.c_fc.weight"), false, T("mlp.c_fc.bias"));
    for (size_t i = 0; i < t * m->ffn; i++) {
        up[i] *= 0.5 * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) *
                                   (up[i] + 0.044715 * up[i] * up[i] * up[i])));
    }
    add(x, linear(up, t, in_out[3], T("mlp.c_proj.weight"), false, T("mlp.c_proj.bias")),
        t * width);
    free(n1), free(qkv), free(q), free(k), free(v), free(att), free(n2), free(up);
}

static void llama_block(const struct model *m, double *x) {
    const size_t t = m->t, width = m->width, wide = m->heads * m->size, kv = m->kv_heads * m->size;
    const size_t in_out[5][2] = {
        {width, wide}, {width, kv}, {wide, width}, {width, m->ffn}, {m->ffn, width}};
    double *n1 = normed(m, x, T("input_layernorm.weight"), NULL);
    double *q =
        linear(n1, t, in_out[0], T("self_attn.q_proj.weight"), true, T("self_attn.q_proj.bias"));
    double *k =
        linear(n1, t, in_out[1], T("self_attn.k_proj.weight"), true, T("self_attn.k_proj.bias"));
    double *v =
        linear(n1, t, in_out[1], T("self_attn.v_proj.weight"), true, T("self_attn.v_proj.bias"));
    if (m->run->model.qk_norm) {
        norm(q, q, t * m->heads, m->size, T("self_attn.q_norm.weight"), NULL, m->eps);
        norm(k, k, t * m->kv_heads, m->size, T("self_attn.k_norm.weight"), NULL, m->eps);
    }
    rotate(m->run, q, t, m->heads, m->size);
    rotate(m->run, k, t, m->kv_heads, m->size);
    double *att = attend(m, q, k, v);
    add(x, linear(att, t, in_out[2], T("self_attn.o_proj.weight"), true, NULL), t * width);
    double *n2 = normed(m, x, T("post_attention_layernorm.weight"), NULL);
    double *gate = linear(n2, t, in_out[3], T("mlp.gate_proj.weight"), true, NULL);
    double *up = linear(n2, t, in_out[3], T("mlp.up_proj.weight"), true, NULL);
    for (size_t i = 0; i < t * m->ffn; i++) up[i] *= gate[i] / (1.0 + exp(-gate[i]));
    add(x, linear(up, t, in_out[4], T("mlp.down_proj.weight"), true, NULL), t * width);
#undef T
    free(n1), free(q), free(k), free(v), free(att), free(n2), free(gate), free(up);
}

static double sequence_loss(struct model *m, const uint32_t *tokens) {
    const struct tw_run *run = m->run;
    const bool is_gpt2 = run->model.family == TW_FAMILY_GPT2;
    const size_t t = m->t, width = m->width, vocab = run->model.vocab;
    const double z_loss = run->train.z_loss_millionths / 1e6;
    const double *wte = find(m, is_gpt2 ? "wte.weight" : "model.embed_tokens.weight");
    const double *wpe = find(m, "wpe.weight");
    const double *head = run->model.is_tied ? wte : find(m, "lm_head.weight");
    double *x = calloc(t * width, sizeof(*x)), loss = 0.0;
    m->tokens = tokens;
    for (size_t r = 0; r < t; r++) {
        for (size_t i = 0; i < width; i++)
            x[r * width + i] =
                wte[tokens[r] * width + i] + (wpe == NULL ? 0.0 : wpe[r * width + i]);
    }
    for (m->l = 0; m->l < run->model.layers; m->l++) {
        if (is_gpt2) {
            gpt2_block(m, x);
        } else {
            llama_block(m, x);
        }
    }
    double *last =
        normed(m, x, find(m, is_gpt2 ? "ln_f.weight" : "model.norm.weight"), find(m, "ln_f.bias"));
    for (size_t r = 0; r < t; r++) {
        double sum = 0.0, target = 0.0;
        for (size_t v = 0; v < vocab; v++) {
            double logit = 0.0;
            for (size_t i = 0; i < width; i++) logit += last[r * width + i] * head[v * width + i];
            sum += exp(logit);
            if (v == tokens[r + 1]) target = logit;
        }
        loss += log(sum) - target + z_loss * log(sum) * log(sum);
    }
    free(x), free(last);
    return loss;
}

double model_double_loss(const struct tw_run *run, const struct tw_layout *layout,
                         const double *params, const uint32_t *tokens, uint32_t sequences) {
    const struct tw_run_shape shape = tw_run_shape(run);
    const size_t context = run->model.context;
    struct model model = {.run = run,
                          .layout = layout,
                          .params = params,
                          .t = context,
                          .width = run->model.width,
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .size = shape.head_size,
                          .ffn = shape.ffn,
                          .eps = run->model.norm_eps_millionths / 1e6};
    double sum = 0.0;
    for (size_t b = 0; b < sequences; b++) sum += sequence_loss(&model, tokens + b * (context + 1));
    return sum / ((double)sequences * (double)context);
}
