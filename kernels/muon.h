/* muon.h - Muon: momentum matrices are orthogonalised before the step.
 *
 * Keller Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024,
 * https://kellerjordan.github.io/posts/muon/. For matrices of hidden layers; embeddings, the head,
 * norms and biases stay with AdamW:
 *
 *     g     = gradient * gradient_scale
 *     m     = momentum * m + (1 - momentum) * g
 *     u     = momentum * m + (1 - momentum) * g                   (Nesterov)
 *     theta = theta - lr * (0.2 * sqrt(max(rows, cols)) * orthogonal(u) + decay * theta)
 *
 * The scale is that of arXiv 2502.16982, 2.2. Elements of an orthogonal matrix have root mean
 * square 1 / sqrt(max(rows, cols)), so the elements of a step have 0.2, as in a usual AdamW step.
 * One learning rate and decay thus serve both optimizers. The scale is the same for a matrix and
 * its transpose. */
#ifndef TW_KERNELS_MUON_H
#define TW_KERNELS_MUON_H

#include "kernels/matmul.h"
#include "kernels/ops.h"

/* Multiplies two matrices: y from a and b, as the shape says. The engine passes tw_multiply with
 * the calling thread's multiplier, and updates several matrices at once, one per thread. */
typedef void tw_muon_multiply(void *context, void *y, const void *a, const void *b,
                              const struct tw_matmul *shape);

struct tw_muon {
    uint32_t rows, cols;
    size_t stride; /* floats between rows of theta, m and gradient, at least cols */
    float lr, momentum, decay;
    float gradient_scale;     /* clip factor */
    const struct tw_ops *ops; /* ops->type is the data type of GEMM operands */
    tw_muon_multiply *multiply;
    void *context;
};

/* Returns the bytes of scratch for a matrix of that size. Scratch must be aligned to 64 bytes. */
size_t tw_muon_scratch(uint32_t rows, uint32_t cols, enum tw_type type);

/* Takes one step. theta, m (rows, cols): in/out, gradient: in. The same inputs and the same GEMMs
 * give the same bits. A gradient that is not finite makes all of theta not finite. A zero gradient
 * changes nothing. */
void tw_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                  const struct tw_muon *cfg);

/* Replaces x (rows, cols; contiguous rows), with singular value decomposition U * S * V^T, by
 * nearly U * V^T. Five Newton-Schulz steps
 *     x = 3.4445 * x - 4.7750 * (x * x^T) * x + 2.0315 * (x * x^T)^2 * x
 * from x / |x| (Frobenius) bring singular values above 0.0016 * |x| into [0.68, 1.21] and leave
 * smaller ones below. The coefficients are Keller Jordan's: the polynomial is as steep at 0 as
 * possible while values stay near 1. */
void tw_muon_orthogonalise(float *x, void *scratch, const struct tw_muon *cfg);

/* The specification of tw_muon_step: computes in float64 with plain loops, and ignores cfg's ops
 * and multiply. scratch: tw_muon_ref_scratch bytes. */
size_t tw_muon_ref_scratch(uint32_t rows, uint32_t cols);
void tw_muon_step_ref(float *theta, float *m, const float *gradient, double *scratch,
                      const struct tw_muon *cfg);

#endif
