/* muon_ref.c - the specification of Muon's step as muon.h describes it: in float64, slow. It
 * multiplies by plain loops, and does not transpose tall matrices. */
#include <math.h>

#include "kernels/muon.h"

enum { STEPS = 5 };

/* Computes y (m, n) = a (m, k) * b (k, n), or a * b^T with b (n, k) if is_nt. */
static void product(double *y, const double *a, const double *b, size_t m, size_t k, size_t n,
                    bool is_nt) {
    for (size_t i = 0; i < m; i++) {
        for (size_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (size_t l = 0; l < k; l++) sum += a[i * k + l] * b[is_nt ? j * k + l : l * n + j];
            y[i * n + j] = sum;
        }
    }
}

size_t tw_muon_ref_scratch(uint32_t rows, uint32_t cols) {
    return (2 * (size_t)rows * cols + 2 * (size_t)rows * rows) * sizeof(double);
}

/* Iterates x = 3.4445 * x - 4.7750 * g * x + 2.0315 * g^2 * x with g = x * x^T, from x / |x|. */
static void orthogonalise(double *x, double *scratch, size_t rows, size_t cols) {
    const size_t n = rows * cols;
    double *const gram = scratch, *const square = gram + rows * rows;
    double *const change = square + rows * rows;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    const double norm = sqrt(sum);
    for (size_t i = 0; i < n; i++) x[i] = norm < 1e-30 ? 0.0 : x[i] / norm;
    for (int step = 0; step < STEPS; step++) {
        product(gram, x, x, rows, cols, rows, true);
        product(square, gram, gram, rows, rows, rows, false);
        for (size_t i = 0; i < rows * rows; i++) {
            gram[i] = -4.7750 * gram[i] + 2.0315 * square[i];
        }
        product(change, gram, x, rows, rows, cols, false);
        for (size_t i = 0; i < n; i++) x[i] = 3.4445 * x[i] + change[i];
    }
}

void tw_muon_step_ref(float *theta, float *m, const float *gradient, double *scratch,
                      const struct tw_muon *cfg) {
    const size_t rows = cfg->rows, cols = cfg->cols, n = rows * cols;
    const double mu = (double)cfg->momentum, lr = (double)cfg->lr;
    double *const x = scratch;
    for (size_t i = 0; i < n; i++) {
        const size_t at = i / cols * cfg->stride + i % cols;
        const double g = (double)gradient[at] * (double)cfg->gradient_scale;
        const double moment = mu * (double)m[at] + (1.0 - mu) * g;
        x[i] = mu * moment + (1.0 - mu) * g;
        m[at] = (float)moment;
    }
    orthogonalise(x, scratch + n, rows, cols);
    const double size = 0.2 * sqrt((double)(rows > cols ? rows : cols));
    for (size_t i = 0; i < n; i++) {
        const size_t at = i / cols * cfg->stride + i % cols;
        const double before = (double)theta[at];
        theta[at] = (float)(before - lr * (size * x[i] + (double)cfg->decay * before));
    }
}
