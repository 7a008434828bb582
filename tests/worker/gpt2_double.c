/* gpt2_double.c - see gpt2_double.h. */
#include "tests/worker/gpt2_double.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static const double *tensor(const struct tw_layout *layout, const double *params, int layer,
                            const char *name) {
    char full[64];
    if (layer < 0) {
        (void)snprintf(full, sizeof(full), "%s", name);
    } else {
        (void)snprintf(full, sizeof(full), "h.%d.%s", layer, name);
    }
    const struct tw_tensor *found = tw_layout_find(layout, full);
    TW_ASSERT(found != NULL);
    return params + found->offset;
}

/* y (t, out) = x (t, in) w (in, out) + b */
static double *linear(const double *x, size_t t, size_t in, size_t out, const double *w,
                      const double *b) {
    double *y = calloc(t * out, sizeof(*y));
    for (size_t r = 0; r < t; r++) {
        for (size_t o = 0; o < out; o++) {
            y[r * out + o] = b[o];
            for (size_t i = 0; i < in; i++) y[r * out + o] += x[r * in + i] * w[i * out + o];
        }
    }
    return y;
}

static double *norm(const double *x, size_t t, size_t width, const double *w, const double *b) {
    double *y = calloc(t * width, sizeof(*y));
    for (size_t r = 0; r < t; r++) {
        double mean = 0.0, variance = 0.0;
        for (size_t i = 0; i < width; i++) mean += x[r * width + i] / (double)width;
        for (size_t i = 0; i < width; i++) {
            variance += pow(x[r * width + i] - mean, 2.0) / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            y[r * width + i] = (x[r * width + i] - mean) / sqrt(variance + 1e-5) * w[i] + b[i];
        }
    }
    return y;
}

static double *attend(const double *qkv, size_t t, size_t width, size_t heads) {
    const size_t size = width / heads;
    double *y = calloc(t * width, sizeof(*y)), *p = calloc(t, sizeof(*p));
    for (size_t h = 0; h < heads; h++) {
        for (size_t r = 0; r < t; r++) {
            double sum = 0.0;
            for (size_t s = 0; s <= r; s++) {
                double score = 0.0;
                for (size_t i = h * size; i < (h + 1) * size; i++) {
                    score += qkv[r * 3 * width + i] * qkv[s * 3 * width + width + i];
                }
                p[s] = exp(score / sqrt((double)size));
                sum += p[s];
            }
            for (size_t s = 0; s <= r; s++) {
                for (size_t i = h * size; i < (h + 1) * size; i++) {
                    y[r * width + i] += p[s] / sum * qkv[s * 3 * width + 2 * width + i];
                }
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

static void block(const struct tw_run *run, const struct tw_layout *layout, const double *params,
                  int l, double *x) {
    const size_t t = run->model.context, width = run->model.width;
#define T(name) tensor(layout, params, l, name)
    double *n1 = norm(x, t, width, T("ln_1.weight"), T("ln_1.bias"));
    double *qkv = linear(n1, t, width, 3 * width, T("attn.c_attn.weight"), T("attn.c_attn.bias"));
    double *att = attend(qkv, t, width, run->model.heads);
    add(x, linear(att, t, width, width, T("attn.c_proj.weight"), T("attn.c_proj.bias")), t * width);
    double *n2 = norm(x, t, width, T("ln_2.weight"), T("ln_2.bias"));
    double *up = linear(n2, t, width, 4 * width, T("mlp.c_fc.weight"), T("mlp.c_fc.bias"));
    for (size_t i = 0; i < t * 4 * width; i++) {
        up[i] *= 0.5 * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) *
                                   (up[i] + 0.044715 * up[i] * up[i] * up[i])));
    }
    add(x, linear(up, t, 4 * width, width, T("mlp.c_proj.weight"), T("mlp.c_proj.bias")),
        t * width);
#undef T
    free(n1), free(qkv), free(att), free(n2), free(up);
}

static double sequence_loss(const struct tw_run *run, const struct tw_layout *layout,
                            const double *params, const uint32_t *tokens) {
    const size_t t = run->model.context, width = run->model.width, vocab = run->model.vocab;
    const double *wte = tensor(layout, params, -1, "wte.weight");
    const double *wpe = tensor(layout, params, -1, "wpe.weight");
    double *x = calloc(t * width, sizeof(*x)), loss = 0.0;
    for (size_t r = 0; r < t; r++) {
        for (size_t i = 0; i < width; i++) {
            x[r * width + i] = wte[tokens[r] * width + i] + wpe[r * width + i];
        }
    }
    for (uint32_t l = 0; l < run->model.layers; l++) block(run, layout, params, (int)l, x);
    double *last = norm(x, t, width, tensor(layout, params, -1, "ln_f.weight"),
                        tensor(layout, params, -1, "ln_f.bias"));
    for (size_t r = 0; r < t; r++) {
        double sum = 0.0, target = 0.0;
        for (size_t v = 0; v < vocab; v++) {
            double logit = 0.0;
            for (size_t i = 0; i < width; i++) logit += last[r * width + i] * wte[v * width + i];
            sum += exp(logit);
            if (v == tokens[r + 1]) target = logit;
        }
        loss += log(sum) - target;
    }
    free(x), free(last);
    return loss;
}

double gpt2_double_loss(const struct tw_run *run, const struct tw_layout *layout,
                        const double *params, const uint32_t *tokens, uint32_t sequences) {
    const size_t context = run->model.context;
    double sum = 0.0;
    for (size_t b = 0; b < sequences; b++) {
        sum += sequence_loss(run, layout, params, tokens + b * (context + 1));
    }
    return sum / ((double)sequences * (double)context);
}
