/* ops.h - the operations of a decoder, as tables of functions: one table per instruction set, and a
 * plain reference table that says what each operation means.
 *
 * All arrays are float32, row-major, in host memory, and must not overlap unless said. `rows` is
 * sequences * context. Operations are serial and cannot fail; non-finite input gives non-finite
 * output. The fast tables may round differently from each other: nothing here has to agree between
 * machines (what has to is in outer.h, merge.h, mix.h, norm.h). */
#ifndef TW_KERNELS_OPS_H
#define TW_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TW_LAYERNORM_EPS 1e-5f

struct tw_layernorm {
    uint32_t rows, width;
    const float *x;      /* (rows, width) */
    const float *weight; /* (width) */
    float *mean, *rstd;  /* (rows): written by the forward pass, read by the backward pass */
};

struct tw_attention {
    uint32_t sequences, context, heads, width; /* heads divides width */
};

/* AdamW, arXiv 1711.05101, Algorithm 2, with the learning rate in front of the decay:
 *     g = gradient * gradient_scale
 *     m = beta1 m + (1 - beta1) g,   v = beta2 v + (1 - beta2) g^2
 *     theta = theta - lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay theta) */
struct tw_adamw {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    float gradient_scale;           /* clip factor */
};

struct tw_ops {
    const char *name; /* "AVX-512" */

    /* y (rows, n) = bias (n) + residual (rows, n); residual may be NULL or y itself. */
    void (*bias_fill)(float *y, const float *residual, const float *bias, uint32_t rows,
                      uint32_t n);
    /* dbias (n) += column sums of dy (rows, n) */
    void (*bias_backward)(float *dbias, const float *dy, uint32_t rows, uint32_t n);

    /* y (rows, width) = (x - mean) rstd weight + bias */
    void (*layernorm)(float *y, const float *bias, const struct tw_layernorm *ln);
    /* dx += dL/dx; dweight, dbias (width) += dL/d. dy (rows, width) */
    void (*layernorm_backward)(float *dx, float *dweight, float *dbias, const float *dy,
                               const struct tw_layernorm *ln);

    /* y = x Phi(x) in the tanh form of arXiv 1606.08415:
     * x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
    void (*gelu)(float *y, const float *x, size_t n);
    /* dy = dy * gelu'(x), in place */
    void (*gelu_backward)(float *dy, const float *x, size_t n);

    /* Causal self-attention. qkv (sequences, context, 3 width) holds q | k | v, heads contiguous
     * within each; out (sequences, context, width); lse (sequences, heads, context) is log sum exp
     * of each row of scores. scratch: tw_attention_scratch() floats, contents of no matter.
     * Holds 32 rows of scores at a time, never (context, context). */
    void (*attention)(float *out, float *lse, const float *qkv, float *scratch,
                      const struct tw_attention *shape);
    /* dqkv = dL/dqkv (overwritten) from dout; out and lse as the forward pass left them. */
    void (*attention_backward)(float *dqkv, const float *dout, const float *qkv, const float *out,
                               const float *lse, float *scratch, const struct tw_attention *shape);

    /* In place: logits (rows, vocab) become scale * (softmax(logits) - onehot(target)), the
     * gradient of scale * sum of losses. Returns the sum of losses in nats, not scaled.
     * targets[i] < vocab. */
    double (*cross_entropy)(float *logits, const uint32_t *targets, uint32_t rows, uint32_t vocab,
                            float scale);

    /* theta, m, v (n): in/out */
    void (*adamw)(float *theta, float *m, float *v, const float *gradient, size_t n,
                  const struct tw_adamw *cfg);
};

/* Floats of scratch for either attention pass. */
size_t tw_attention_scratch(const struct tw_attention *shape);

/* Plain C, written to be read. */
const struct tw_ops *tw_ops_ref(void);

/* Table `i` of those this processor can run, best first; NULL past the last. */
const struct tw_ops *tw_ops_cpu(uint32_t i);

/* ---- embedding: gathers rows, the same for every instruction set --------------------------- */

struct tw_embedding {
    uint32_t sequences, context, width;
    const uint32_t *tokens; /* token t of sequence b at tokens[b * token_stride + t] */
    uint32_t token_stride;
};

/* x (sequences, context, width) = wte[token] + wpe[t]. Every token is inside wte. */
void tw_embedding(float *x, const float *wte, const float *wpe, const struct tw_embedding *in);
/* dwte[token] += dx, dwpe[t] += dx */
void tw_embedding_backward(float *dwte, float *dwpe, const float *dx,
                           const struct tw_embedding *in);

/* ---- matrix products: a library behind one file, cpu/matmul.c ------------------------------ */

enum tw_matmul_form {
    TW_MATMUL_NN, /* y (m, n) = a (m, k) b (k, n): forward */
    TW_MATMUL_NT, /* y (m, n) = a (m, k) b (n, k)^T: gradient of the input; the tied head */
    TW_MATMUL_TN, /* y (m, n) = a (k, m)^T b (k, n): gradient of the weights */
};

struct tw_matmul {
    uint32_t m, k, n;
    enum tw_matmul_form form;
    bool is_added; /* y += instead of y = */
};

typedef void tw_matmul_fn(float *y, const float *a, const float *b, struct tw_matmul shape);

enum tw_matmul_backend { TW_MATMUL_AUTO, TW_MATMUL_ONEDNN, TW_MATMUL_OPENBLAS, TW_MATMUL_REF };

/* The product of that library, or NULL when it was not built in. AUTO: the fastest built in for
 * the shapes of small models (see tests/bench/engine), never NULL. */
tw_matmul_fn *tw_matmul_get(enum tw_matmul_backend backend);
tw_matmul_fn tw_matmul_ref;

/* "oneDNN", "OpenBLAS", "reference" for a function of tw_matmul_get. */
const char *tw_matmul_name(tw_matmul_fn *fn);

/* Threads of every library's pool, for the whole process, before its first product. 1: no pool is
 * started, so that many workers can share few cores. */
void tw_matmul_set_threads(uint32_t threads);

#endif
