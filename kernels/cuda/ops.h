/* ops.h - operations of a decoder on a CUDA device: the operations of kernels/ops.h on rows and
 * elements, with the same equations.
 *
 * All pointers are device memory, aligned to an element (multiples of 16 bytes are faster). `type`
 * is the type of activations (`void *`). Arithmetic is float32; each stored activation is rounded
 * once, to nearest even. Arrays must not overlap unless stated. Operations are queued on `stream`
 * (tw_cuda_stream()), allocate nothing and return at once. They report no errors: tw_cuda_finish()
 * does. Sums have a fixed order, so the same inputs give the same bits on one device. rows or n of
 * 0 is allowed.
 *
 * scratch belongs to the caller: tw_cuda_X_scratch() bytes, aligned to 16 bytes, uninitialised. It
 * is in use until the stream has passed the operation. */
#ifndef TW_KERNELS_CUDA_OPS_H
#define TW_KERNELS_CUDA_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" { /* also around included headers of this project, which are plain C */
#endif

#include "kernels/ops.h"
#include "kernels/outer.h"

/* ---- norms (norm.cu) ---- */

/* Each row is one vector or, for QK-norm, `heads` adjacent vectors of shape.width that share weight
 * and bias. */
struct tw_cuda_norm {
    enum tw_type type;
    struct tw_norm shape; /* shape; its weight and bias are device memory */
    uint32_t heads;       /* vectors per row, at least 1 */
    size_t x_stride;      /* elements between rows of x and residual; at least heads * width */
    size_t y_stride;      /* elements between rows of y and dy; at least heads * width */
    size_t dx_stride;     /* elements between rows of dx; at least heads * width */
};

/* Adds `residual` (if not NULL) to x, then computes y = norm(x). stats (rows, heads, 2) receives
 * mean and rstd, and may be NULL. y may be x with the same stride. */
void tw_cuda_norm(void *stream, const struct tw_cuda_norm *norm, void *y, void *x,
                  const void *residual, float *stats);

struct tw_cuda_norm_gradients {
    bool is_added; /* true: dx += dL/dx; false: dx = dL/dx, and dx may be dy with the same stride */
    void *dx;
    const void *dy, *x; /* dy; x as norm() read it */
    const float *stats;
    float *dweight, *dbias; /* (width): gradients are added; NULL: skipped */
    bool is_first;          /* dweight and dbias are overwritten instead */
    void *scratch;          /* may be NULL if dweight and dbias are NULL */
};
void tw_cuda_norm_backward(void *stream, const struct tw_cuda_norm *norm,
                           const struct tw_cuda_norm_gradients *gradients);
size_t tw_cuda_norm_backward_scratch(const struct tw_cuda_norm *norm);

/* ---- elements (elements.cu) ---- */

/* y (n) += x */
void tw_cuda_add(void *stream, enum tw_type type, void *y, const void *x, size_t n);
/* gelu: y (n) = gelu(x); y may be x. gelu_backward: dy (n) *= gelu'(x). */
void tw_cuda_gelu(void *stream, enum tw_type type, void *y, const void *x, size_t n);
void tw_cuda_gelu_backward(void *stream, enum tw_type type, void *dy, const void *x, size_t n);
/* x (rows, 2 * n) holds gate | up; y (rows, n) = silu(gate) * up. dx (rows, 2 * n) may be x. */
void tw_cuda_swiglu(void *stream, enum tw_type type, void *y, const void *x, uint32_t rows,
                    uint32_t n);
struct tw_cuda_swiglu_gradients {
    void *dx;
    const void *dy, *x;
    void *y; /* (rows, n): receives silu(gate) * up again, in the same pass; may be dy; NULL:
                skipped */
};
void tw_cuda_swiglu_backward(void *stream, enum tw_type type,
                             const struct tw_cuda_swiglu_gradients *gradients, uint32_t rows,
                             uint32_t n);

/* Convert from (n) to `to` (n), with the bits of kernels/type.h. A NaN stays a NaN, but with other
 * bits. */
void tw_cuda_from_f32(void *stream, enum tw_type type, void *to, const float *from, size_t n);
void tw_cuda_to_f32(void *stream, enum tw_type type, float *to, const void *from, size_t n);
/* x (n) = value */
void tw_cuda_fill(void *stream, enum tw_type type, void *x, float value, size_t n);

/* ---- biases (bias.cu) ---- */

/* y (rows, n) += bias (n); rows of y are `stride` elements apart */
struct tw_cuda_bias {
    enum tw_type type;
    uint32_t rows, n;
    size_t stride; /* elements between rows of y or dy */
    bool is_first; /* backward: overwrites dbias instead of adding to it */
};
void tw_cuda_bias(void *stream, const struct tw_cuda_bias *shape, void *y, const float *bias);
/* dbias (n) += column sums of dy (rows, n) */
void tw_cuda_bias_backward(void *stream, const struct tw_cuda_bias *shape, float *dbias,
                           const void *dy, void *scratch);
size_t tw_cuda_bias_backward_scratch(const struct tw_cuda_bias *shape);

/* ---- rotary embedding (elements.cu) ---- */

/* Rotary embedding in place. Row r is at position position_first + r mod context. Its angles are
 * the row of that position in the tables rope.cos and rope.sin (positions, head_size / 2), device
 * memory. */
struct tw_cuda_rope {
    enum tw_type type;
    struct tw_rope rope;
    uint32_t rows, context, position_first;
    size_t x_stride;
    bool is_inverse;
};
void tw_cuda_rope(void *stream, const struct tw_cuda_rope *rope, void *x);

/* ---- token and position embeddings (embedding.cu) ---- */

/* x (rows, width) = wte[token] + wpe[position]; wpe may be NULL. in->tokens is device memory.
 * Tokens and positions must be inside the tables. All columns are computed; the columns of struct
 * tw_embedding are ignored. */
void tw_cuda_embedding(void *stream, enum tw_type type, void *x, const float *wte, const float *wpe,
                       const struct tw_embedding *in);

/* On the host: sorts the rows [0, rows) of a batch by token, and rows of equal tokens by row, into
 * `order` (rows). in->tokens, order and the scratch swap (rows) are host memory. */
void tw_cuda_embedding_order(uint32_t *order, uint32_t *swap, const struct tw_embedding *in);

struct tw_cuda_embedding_gradients {
    float *dwte, *dwpe; /* tables to which gradients are added; dwpe may be NULL */
    bool is_first;      /* rows of dwpe are overwritten instead */
    const void *dx;
    const uint32_t *order; /* (rows): result of tw_cuda_embedding_order(), copied to the device */
    void *scratch;
};
/* Adds dx to dwte[token] and dwpe[position], for the in->context positions of a batch. in->tokens
 * is device memory. */
void tw_cuda_embedding_backward(void *stream, enum tw_type type, const struct tw_embedding *in,
                                const struct tw_cuda_embedding_gradients *gradients);
size_t tw_cuda_embedding_backward_scratch(const struct tw_embedding *in);

/* ---- loss (cross_entropy.cu) ---- */

struct tw_cuda_cross_entropy {
    enum tw_type logits_type, dlogits_type;
    struct tw_cross_entropy shape;
    uint32_t dlogits_columns; /* columns of dlogits to write, at least vocab; columns beyond vocab
                                 become zeros */
    const void *logits;       /* (rows, vocab) */
    void *dlogits; /* NULL: only the loss is computed. May share the memory of logits if rows of
                      both begin at the same addresses and its type is no wider */
    const uint32_t *targets; /* (rows), each below vocab; the bit TW_TOKEN_UNSCORED: no loss */
    float *losses; /* (rows): loss of each row, without scale and without the z_loss term */
};
void tw_cuda_cross_entropy(void *stream, const struct tw_cuda_cross_entropy *rows);

/* ---- sums (sums.cu) ---- */

/* Set *sum to the sum of x (n), or of its squares, in double; if is_added, the sum is added to
 * *sum. The result is NaN or infinite exactly if an element is not finite. */
void tw_cuda_sum(void *stream, double *sum, const float *x, size_t n, bool is_added, void *scratch);
void tw_cuda_sum_squares(void *stream, double *sum, const float *x, size_t n, bool is_added,
                         void *scratch);
/* Works like tw_cuda_sum, for the sum of (a - b)^2. */
void tw_cuda_sum_distances(void *stream, double *sum, const float *a, const float *b, size_t n,
                           void *scratch);
enum { TW_CUDA_SUM_SCRATCH = 8192 }; /* bytes, independent of n */

/* ---- the update (adamw.cu) ---- */

/* Values that change from step to step. They are in device memory, so that a captured graph does
 * not contain them. */
struct tw_cuda_step {
    /* written by the host before the step */
    float lr, correction1, correction2; /* same meaning as in struct tw_adamw */
    float decay;                        /* weight decay, for tensors that have weight decay */
    float momentum;                     /* Muon's */
    float padding;
    double clip; /* norm above which gradients are scaled down; 0: no limit */
    /* accumulated by the step, starting from zero */
    double loss;    /* tw_cuda_sum() of losses */
    double squares; /* tw_cuda_sum_squares() of gradients */
    /* computed by the device (tw_cuda_step_decide) */
    double norm;
    float gradient_scale;
    uint32_t is_skipped; /* true if loss or norm is not finite: the update then changes nothing */
};

/* Sets norm = sqrt(squares), gradient_scale = clip / norm if clip > 0 and norm > clip, else 1, and
 * is_skipped. */
void tw_cuda_step_decide(void *stream, struct tw_cuda_step *step);

struct tw_cuda_adamw {
    float *theta, *m, *v; /* (n): in/out */
    const float *gradient;
    void *copy; /* (n): bf16 copy of theta, which is updated too; may be NULL */
    size_t n;
    float beta1, beta2, eps;
    bool has_decay;
};
/* AdamW of kernels/ops.h with the values of *step, with the bits of kernels/ops_ref.c. Does
 * nothing if step->is_skipped. */
void tw_cuda_adamw(void *stream, const struct tw_cuda_adamw *arrays,
                   const struct tw_cuda_step *step);

/* ---- outer steps (outer.cu) ---- */

/* kernels/outer.h on the device, with the same bits. */
struct tw_cuda_outer {
    float *anchor, *momentum; /* (n): in/out */
    const float *delta;       /* (n) */
    size_t n;
    struct tw_outer rule;
};
void tw_cuda_outer_nesterov(void *stream, const struct tw_cuda_outer *step);
void tw_cuda_outer_heavyball(void *stream, const struct tw_cuda_outer *step);

/* ---- after an outer step (outer.cu) ---- */

/* kernels/outer.h on the device, with the same bits. copy (n): bf16 copy of theta, which is updated
 * too; may be NULL. */
void tw_cuda_mix(void *stream, float *theta, void *copy, const float *anchor_new, float alpha,
                 size_t n);
void tw_cuda_shift(void *stream, float *theta, void *copy, const float *anchor_new,
                   const float *anchor_old, size_t n);
void tw_cuda_regain(void *stream, const struct tw_regain *r); /* arrays on the device */

/* kernels/outer.h on the device. Its sums have another order, so its scale differs slightly
 * from the host's scale. With the same scale, the bits are the same. */
struct tw_cuda_lead {
    float *m;               /* (n): in/out */
    const float *v, *delta; /* (n) */
    size_t n;
    struct tw_momentum_lead cfg;
    void *scratch; /* TW_CUDA_LEAD_SCRATCH bytes */
};
void tw_cuda_lead(void *stream, const struct tw_cuda_lead *lead);
enum { TW_CUDA_LEAD_SCRATCH = 8192 }; /* bytes, independent of n */

#ifdef __cplusplus
}
#endif

#endif
