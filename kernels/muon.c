/* muon.c - Muon on the host: Newton-Schulz steps by matrix products, and their reference. */
#include "kernels/muon.h"

#include <math.h>

#include "base/assert.h"

enum { STEPS = 5, ALIGNMENT = 64 };

static const float A = 3.4445f, B = -4.7750f, C = 2.0315f;

/* Buffers for s = min(rows, cols): x in float32 and in the GEMM type, its (s, s) Gram matrix, and
 * the square of the Gram matrix. small_act is a copy of either of these two in the GEMM type. */
struct scratch {
    float *x, *gram, *square;
    void *x_act, *small_act;
    size_t bytes;
};

static void *take(void *memory, size_t *at, size_t bytes) {
    void *taken = memory == NULL ? NULL : (char *)memory + *at;
    *at += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return taken;
}

static struct scratch scratch_of(void *memory, size_t rows, size_t cols, enum tw_type type) {
    const size_t n = rows * cols, side = rows < cols ? rows : cols, small = side * side;
    const size_t act = tw_type_bytes(type);
    struct scratch s = {.bytes = 0};
    s.x = take(memory, &s.bytes, n * sizeof(float));
    s.gram = take(memory, &s.bytes, small * sizeof(float));
    s.square = take(memory, &s.bytes, small * sizeof(float));
    s.x_act = take(memory, &s.bytes, n * act);
    s.small_act = take(memory, &s.bytes, small * act);
    return s;
}

size_t tw_muon_scratch(uint32_t rows, uint32_t cols, enum tw_type type) {
    return scratch_of(NULL, rows, cols, type).bytes;
}

static void multiply(const struct tw_muon *cfg, float *y, const void *a, const void *b,
                     struct tw_matmul shape) {
    shape.type = cfg->ops->type;
    shape.y_type = TW_F32;
    cfg->multiply(cfg->context, y, a, b, &shape);
}

/* Computes x = A * x + (B * gram + C * gram^2) * x. If x is tall, the small matrix is on the right,
 * which equals the same step on the transpose. */
static void newton_schulz(float *x, const struct scratch *s, const struct tw_muon *cfg) {
    const uint32_t rows = cfg->rows, cols = cfg->cols;
    const bool is_tall = rows > cols;
    const uint32_t side = is_tall ? cols : rows, deep = is_tall ? rows : cols;
    const size_t n = (size_t)rows * cols, small = (size_t)side * side;
    cfg->ops->from_f32(s->x_act, x, n);
    multiply(cfg, s->gram, s->x_act, s->x_act,
             (struct tw_matmul){
                 .m = side, .k = deep, .n = side, .form = is_tall ? TW_MATMUL_TN : TW_MATMUL_NT});
    cfg->ops->from_f32(s->small_act, s->gram, small);
    multiply(cfg, s->square, s->small_act, s->small_act,
             (struct tw_matmul){.m = side, .k = side, .n = side, .form = TW_MATMUL_NN});
    for (size_t i = 0; i < small; i++) s->gram[i] = B * s->gram[i] + C * s->square[i];
    cfg->ops->from_f32(s->small_act, s->gram, small);
    for (size_t i = 0; i < n; i++) x[i] *= A;
    multiply(cfg, x, is_tall ? s->x_act : s->small_act, is_tall ? s->small_act : s->x_act,
             (struct tw_matmul){
                 .m = rows, .k = side, .n = cols, .form = TW_MATMUL_NN, .is_added = true});
}

void tw_muon_orthogonalise(float *x, void *scratch, const struct tw_muon *cfg) {
    const struct scratch s = scratch_of(scratch, cfg->rows, cfg->cols, cfg->ops->type);
    const size_t n = (size_t)cfg->rows * cfg->cols;
    const double norm = sqrt(cfg->ops->sum_squares(x, n));
    const float scale = norm < 1e-30 ? 0.0f : (float)(1.0 / norm);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
    for (int step = 0; step < STEPS; step++) newton_schulz(x, &s, cfg);
}

void tw_muon_step(float *theta, float *m, const float *gradient, void *scratch,
                  const struct tw_muon *cfg) {
    const size_t rows = cfg->rows, cols = cfg->cols, stride = cfg->stride;
    const float mu = cfg->momentum, scale = cfg->gradient_scale;
    float *x = scratch_of(scratch, rows, cols, cfg->ops->type).x;
    TW_ASSERT(stride >= cols);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < cols; i++) {
            const float g = gradient[r * stride + i] * scale;
            m[r * stride + i] = mu * m[r * stride + i] + (1.0f - mu) * g;
            x[r * cols + i] = mu * m[r * stride + i] + (1.0f - mu) * g;
        }
    }
    tw_muon_orthogonalise(x, scratch, cfg);
    const float step = cfg->lr * 0.2f * sqrtf((float)(rows > cols ? rows : cols));
    const float keep = 1.0f - cfg->lr * cfg->decay;
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < cols; i++) {
            theta[r * stride + i] = keep * theta[r * stride + i] - step * x[r * cols + i];
        }
    }
}

/* ---- reference ------------------------------------------------------------------------------ */

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
