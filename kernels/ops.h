/* ops.h - the operations of a decoder, as tables of functions: one table per instruction set and
 * type of activation, and plain reference tables that specify each operation.
 *
 * Activations (`void *`) are arrays of the table's type, float32 or bf16. Arrays declared float are
 * float32 in every table. Arithmetic is float32, and each stored activation is rounded once, to
 * nearest even (bf16 denormals may become 0). Arrays are row-major, in host memory, aligned to an
 * element, and must not overlap unless stated.
 *
 * Operations are serial, thread-safe, allocate nothing and cannot fail; non-finite input gives
 * non-finite output. Callers divide the work into rows, columns or ranges. Operations that add to a
 * float array (gradients) add its rows in order. A caller that divides columns, or rows into fixed
 * blocks with a partial sum each, thus gets the same bits with any number of threads. Tables may
 * round differently from each other: no result must agree between machines (outer.h, merge.h
 * and norm.h must). */
#ifndef TW_KERNELS_OPS_H
#define TW_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/type.h"

struct tw_norm {
    bool is_rms; /* true: RMSNorm; false: LayerNorm */
    uint32_t rows, width;
    float eps;
    const float *weight; /* (width) */
    const float *bias;   /* (width); NULL for RMSNorm, which has no bias */
};

/* One key/value head and the `group` query heads that share it. */
struct tw_attention {
    uint32_t queries, keys; /* query i attends to keys [0, keys - queries + i]; queries <= keys */
    uint32_t group, head_size;
    size_t q_stride, kv_stride, out_stride; /* elements between rows */
};

/* Arrays of the forward and backward attention passes. */
struct tw_attention_arrays {
    const void *q;     /* (queries, group * head_size) */
    const void *k, *v; /* (keys, head_size) */
    void *out;         /* same shape as q; input of the backward pass */
    float *lse; /* (group, queries): log-sum-exp of each row of scores; input of the backward pass.
                   NULL if no backward pass follows */
    float *scratch;     /* tw_attention_scratch() floats, uninitialised */
    const void *dout;   /* backward pass only; same shape as out */
    void *dq, *dk, *dv; /* backward pass only; same shapes as q, k, v */
};

/* Rotation tables cos, sin (rows, head_size / 2) for the positions of the given rows. Any scaling
 * of frequencies is already applied. */
struct tw_rope {
    uint32_t heads, head_size; /* head_size is even */
    const float *cos, *sin;
};

/* Bit of a token in memory: as a target, the token counts for nothing, neither in a loss nor in a
 * gradient. All vocabularies are below it. */
#define TW_TOKEN_UNSCORED 0x80000000u

struct tw_cross_entropy {
    uint32_t rows, vocab;
    size_t logits_stride, dlogits_stride; /* elements between rows, at least vocab */
    float scale;  /* factor of the gradient, for example 1 / tokens of a step */
    float z_loss; /* 0: none */
};

/* Rows [row_first, row_first + rows) of a batch. Row r is token t = r mod context of sequence b = r
 * / context: token number tokens[b * token_stride + t] at position position_first + t. The bit
 * TW_TOKEN_UNSCORED of a token has no effect here. */
struct tw_embedding {
    uint32_t row_first, rows;
    uint32_t context, width;
    uint32_t position_first;
    const uint32_t *tokens;
    uint32_t token_stride;
    uint32_t column_first, columns; /* embedding_backward only: columns whose gradient it adds */
};

/* AdamW, arXiv 1711.05101, Algorithm 2, with the decay multiplied by the learning rate:
 *     g = gradient * gradient_scale
 *     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
 *     theta = theta - lr * (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay * theta) */
struct tw_adamw {
    float lr, beta1, beta2, eps, decay;
    float correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
    float gradient_scale;           /* clip factor */
};

/* X(member) for every operation of struct tw_ops. */
#define TW_OPS_EACH(X)                                                                             \
    X(norm)                                                                                        \
    X(norm_backward)                                                                               \
    X(add)                                                                                         \
    X(bias)                                                                                        \
    X(bias_backward)                                                                               \
    X(rope)                                                                                        \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(swiglu)                                                                                      \
    X(swiglu_backward)                                                                             \
    X(attention)                                                                                   \
    X(attention_backward)                                                                          \
    X(cross_entropy)                                                                               \
    X(embedding)                                                                                   \
    X(embedding_backward)                                                                          \
    X(adamw)                                                                                       \
    X(sum_squares)                                                                                 \
    X(from_f32)                                                                                    \
    X(to_f32)

struct tw_ops {
    const char *name; /* "AVX-512" */
    enum tw_type type;
    uint32_t type_bytes;

    /* Adds `residual` (if not NULL) to x (rows, width), then computes y (rows, width) = norm(x):
     *     LayerNorm, arXiv 1607.06450: (x - mean) * rstd * weight + bias
     *     RMSNorm, arXiv 1910.07467:   x * rstd * weight, with mean 0
     * where rstd = 1 / sqrt(mean((x - mean)^2) + eps) of the stored x. stats (rows, 2) receives
     * mean and rstd of each row, for the backward pass; NULL: not stored. y may be x. */
    void (*norm)(void *y, void *x, const void *residual, float *stats, const struct tw_norm *norm);
    /* Adds dL/dx to dx (rows, width), dL/dweight to dweight (width) and dL/dbias to dbias (width);
     * the last two may be NULL. x and stats are as norm left them; dy (rows, width). */
    void (*norm_backward)(void *dx, float *dweight, float *dbias, const void *dy, const void *x,
                          const float *stats, const struct tw_norm *norm);

    /* y (n) += x */
    void (*add)(void *y, const void *x, size_t n);
    /* y (rows, n) += bias (n) */
    void (*bias)(void *y, const float *bias, uint32_t rows, uint32_t n);
    /* dbias (n) += column sums of dy (rows, n), with rows dy_stride elements apart. */
    void (*bias_backward)(float *dbias, const void *dy, size_t dy_stride, uint32_t rows,
                          uint32_t n);

    /* Rotary embedding, arXiv 2104.09864, in place. With a = x[i], b = x[i + head_size / 2] of a
     * head, i < head_size / 2 (halves as in Hugging Face, not adjacent pairs):
     *     a, b = a * cos - b * sin, b * cos + a * sin
     * is_inverse rotates by the opposite angle, which is the backward pass. A row of x has `heads`
     * heads; rows are x_stride elements apart. */
    void (*rope)(void *x, size_t x_stride, uint32_t rows, const struct tw_rope *rope,
                 bool is_inverse);

    /* y (n) = x * Phi(x) in the tanh form of arXiv 1606.08415:
     *     x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
     * y may be x if no backward pass follows. Adding the bias in the same pass was no faster,
     * because the block of rows is in the cache. */
    void (*gelu)(void *y, const void *x, size_t n);
    /* dy (n) *= gelu'(x), and y (n) = gelu(x) again, from one exponential */
    void (*gelu_backward)(void *dy, void *y, const void *x, size_t n);

    /* SwiGLU, arXiv 2002.05202: x (rows, 2 * n) holds gate | up; y (rows, n) = silu(gate) * up,
     * silu(g) = g / (1 + e^-g) */
    void (*swiglu)(void *y, const void *x, uint32_t rows, uint32_t n);
    /* dx (rows, 2 * n) = dL/dx from dy (rows, n); dx may be x */
    void (*swiglu_backward)(void *dx, const void *dy, const void *x, uint32_t rows, uint32_t n);

    /* Causal attention of one key/value head: out and lse from q, k, v.
     *     P = softmax(q * k^T / sqrt(head_size)) over the keys a query attends to,  out = P * v
     * Sums are float32; a bf16 table may round P (and dS below) to bf16 before multiplying them. No
     * (queries, keys) matrix is stored: blocks of 64 by 64 or, for up to four queries, one row of
     * scores each. */
    void (*attention)(const struct tw_attention *shape, const struct tw_attention_arrays *arrays);
    /* Computes dq, dk, dv (overwritten) from dout; out and lse are as the forward pass wrote them.
     */
    void (*attention_backward)(const struct tw_attention *shape,
                               const struct tw_attention_arrays *arrays);

    /* With lse = log-sum-exp of a row of logits (rows, vocab; overwritten):
     *     loss = lse - logits[target], to which z_loss * lse^2 is added (arXiv 2204.02311, 5)
     *     dlogits = scale * ((1 + 2 * z_loss * lse) * softmax(logits) - onehot(target))
     * Returns the sum of losses in nats, unscaled and without the z_loss term. If dlogits is NULL,
     * only the loss is computed. dlogits may share the memory of logits if each row of both begins
     * at the same address (bf16: dlogits_stride = 2 * logits_stride). targets[i] < vocab; a row
     * whose target has the bit TW_TOKEN_UNSCORED has no loss, and a gradient of 0. */
    double (*cross_entropy)(void *dlogits, float *logits, const uint32_t *targets,
                            const struct tw_cross_entropy *cfg);

    /* x (rows, width) = wte[token] + wpe[position]; wpe may be NULL. Tokens and positions must be
     * inside the tables, which have `width` floats per row. */
    void (*embedding)(void *x, const float *wte, const float *wpe, const struct tw_embedding *in);
    /* Adds dx (rows, width) to dwte[token] and to dwpe[position] (may be NULL), only in columns
     * [column_first, column_first + columns). */
    void (*embedding_backward)(float *dwte, float *dwpe, const void *dx,
                               const struct tw_embedding *in);

    /* theta, m, v (n): in/out */
    void (*adamw)(float *theta, float *m, float *v, const float *gradient, size_t n,
                  const struct tw_adamw *cfg);
    /* Returns the sum of x[i]^2 in double; NaN or infinity exactly if an element is not finite. */
    double (*sum_squares)(const float *x, size_t n);

    /* to (n) = from (n) */
    void (*from_f32)(void *to, const float *from, size_t n);
    void (*to_f32)(float *to, const void *from, size_t n);
};

/* Returns the floats of scratch for either attention pass, enough also for fewer queries and keys.
 */
size_t tw_attention_scratch(const struct tw_attention *shape);

/* Attention within one document. Documents of a window that must not attend to each other are
 * computed one by one: this needs no mask and saves the masked work. Returns the arrays of the
 * document whose first query and key are row `begin` of `window`, which has as many queries as
 * keys. Its part of lse (group, its queries) follows the parts of earlier documents. type_bytes is
 * the size of the table's activation type. */
struct tw_attention_arrays tw_attention_document(const struct tw_attention *shape,
                                                 const struct tw_attention_arrays *window,
                                                 uint32_t type_bytes, uint32_t begin);

/* The reference table: plain C, which specifies each operation. */
const struct tw_ops *tw_ops_ref(enum tw_type type);

/* Returns table `i` of the tables that this processor can run, best first; NULL past the last. */
const struct tw_ops *tw_ops_cpu(enum tw_type type, uint32_t i);

/* Returns the type in which this processor trains fastest, given a suitable matrix library. That is
 * BF16 if the processor multiplies it faster than float32 (AMX, or full-width avx512_bf16 on AMD),
 * else F32. */
enum tw_type tw_ops_best_type(void);

/* ---- the processor -------------------------------------------------------------------------- */

bool tw_cpu_has_avx2(void);   /* x86-64-v3: AVX2, FMA, BMI, LZCNT, F16C, MOVBE */
bool tw_cpu_has_avx512(void); /* all of x86-64-v4 */

#endif
