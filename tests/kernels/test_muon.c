/* test_muon.c - with every library and type, Muon's matrices become orthogonal, and its step
 * follows the formula of muon.h. */
#include "kernels/muon.h"

#include "tests/kernels/tables.h"

enum { SIDE_MAX = 64 };

static void product(void *context, void *y, const void *a, const void *b,
                    const struct tw_matmul *shape) {
    tw_multiply(context, y, a, b, shape);
}

/* Runs `check` with every library, for every type that it supports. */
static void each_library(void (*check)(struct tw_muon *cfg, struct tw_rng *rng)) {
    for (int backend = TW_MATMUL_AUTO; backend <= TW_MATMUL_REF; backend++) {
        const struct tw_matmul_library *library =
            tw_matmul_library_get((enum tw_matmul_backend)backend);
        for (int type = TW_F32; library != NULL && type <= TW_BF16; type++) {
            if (!tw_matmul_library_has(library, (enum tw_type)type)) continue;
            struct tw_muon cfg = {.ops = tw_ops_cpu((enum tw_type)type, 0), .multiply = product};
            struct tw_multiplier *multiplier = NULL;
            struct tw_error err;
            struct tw_rng rng;
            tw_rng_seed(&rng, TABLES_SEED);
            assert_int_equal(tw_multiplier_create(&multiplier, library, &err), TW_OK);
            cfg.context = multiplier;
            check(&cfg, &rng);
            tw_multiplier_destroy(multiplier);
        }
    }
}

static void *scratch_new(const struct tw_muon *cfg) {
    const size_t bytes = tw_muon_scratch(cfg->rows, cfg->cols, cfg->ops->type);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(scratch);
    return memset(scratch, 0xff, bytes); /* NaN, because old contents must not matter */
}

/* Computes the eigenvalues of the symmetric matrix a (n, n) by Jacobi rotations, on its diagonal.
 */
static void eigenvalues(double a[SIDE_MAX][SIDE_MAX], size_t n) {
    for (int sweep = 0; sweep < 30; sweep++) {
        for (size_t p = 0; p < n; p++) {
            for (size_t q = p + 1; q < n; q++) {
                const double angle = 0.5 * atan2(2.0 * a[p][q], a[q][q] - a[p][p]);
                const double c = cos(angle), s = sin(angle);
                for (size_t i = 0; i < n; i++) {
                    const double ip = a[i][p], iq = a[i][q];
                    a[i][p] = c * ip - s * iq, a[i][q] = s * ip + c * iq;
                }
                for (size_t i = 0; i < n; i++) {
                    const double pi = a[p][i], qi = a[q][i];
                    a[p][i] = c * pi - s * qi, a[q][i] = s * pi + c * qi;
                }
            }
        }
    }
}

/* Returns element (i, j) of x (rows, cols), or of its transpose if x is taller than wide. */
static double wide(const float *x, const struct tw_muon *cfg, size_t i, size_t j) {
    return cfg->rows <= cfg->cols ? (double)x[i * cfg->cols + j] : (double)x[j * cfg->cols + i];
}

/* Asserts that x has singular values near 1 and the singular vectors of g: x * g^T is symmetric and
 * positive. */
static void assert_orthogonal(const float *x, const float *g, const struct tw_muon *cfg) {
    const size_t side = cfg->rows < cfg->cols ? cfg->rows : cfg->cols;
    const size_t deep = cfg->rows < cfg->cols ? cfg->cols : cfg->rows;
    const double slack = cfg->ops->type == TW_BF16 ? 0.05 : 0.01;
    static double gram[SIDE_MAX][SIDE_MAX], cross[SIDE_MAX][SIDE_MAX];
    double size = 0.0;
    for (size_t i = 0; i < side; i++) {
        for (size_t j = 0; j < side; j++) {
            gram[i][j] = cross[i][j] = 0.0;
            for (size_t l = 0; l < deep; l++) {
                gram[i][j] += wide(x, cfg, i, l) * wide(x, cfg, j, l);
                cross[i][j] += wide(x, cfg, i, l) * wide(g, cfg, j, l);
            }
            size = fmax(size, fabs(cross[i][j]));
        }
    }
    for (size_t i = 0; i < side; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_true(fabs(cross[i][j] - cross[j][i]) <= 0.5 * slack * size);
        }
    }
    eigenvalues(gram, side);
    eigenvalues(cross, side);
    for (size_t i = 0; i < side; i++) {
        const double singular = sqrt(gram[i][i]);
        if (singular < 0.68 - slack || singular > 1.21 + slack) {
            fail_msg("singular value %zu of a (%u, %u) matrix is %.3f", i, cfg->rows, cfg->cols,
                     singular);
        }
        assert_true(cross[i][i] > 0.0);
    }
}

static void check_orthogonal(struct tw_muon *cfg, struct tw_rng *rng) {
    const uint32_t rows[] = {1, 17, 3, 33, 64, 20}, cols[] = {1, 65, 127, 16, 128, 31};
    const float scales[] = {1.0f, 1e-12f, 1e8f};
    for (size_t s = 0; s < 6; s++) {
        cfg->rows = rows[s], cfg->cols = cols[s];
        const size_t n = (size_t)cfg->rows * cfg->cols;
        float *g = fill_new(rng, n, scales[s % 3]), *x = fill_copy(g, n);
        void *scratch = scratch_new(cfg);
        /* rows, and so singular values, differ greatly */
        for (size_t i = 0; i < n && s == 2; i++) {
            x[i] *= powf(0.08f, (float)(i / cfg->cols));
            g[i] = x[i];
        }
        tw_muon_orthogonalise(x, scratch, cfg);
        for (size_t i = 0; i < n; i++) g[i] /= scales[s % 3];
        assert_orthogonal(x, g, cfg);
        free(g), free(x), free(scratch);
    }
}

/* Checks the step's formula in muon.h, given the orthogonal matrix checked above. The matrix is a
 * block of columns of a wider one, whose other columns must not change. */
static void check_step(struct tw_muon *cfg, struct tw_rng *rng) {
    enum { ROWS = 24, COLS = 15, STRIDE = 40, AT = 5, N = ROWS * STRIDE };
    cfg->rows = ROWS, cfg->cols = COLS, cfg->stride = STRIDE;
    cfg->lr = 0.02f, cfg->momentum = 0.95f, cfg->decay = 0.1f, cfg->gradient_scale = 0.5f;
    float *theta = fill_new(rng, N, 1.0f), *theta_0 = fill_copy(theta, N);
    float *m = fill_new(rng, N, 1.0f), *m_0 = fill_copy(m, N), *gradient = fill_new(rng, N, 1.0f);
    float x[ROWS * COLS];
    void *scratch = scratch_new(cfg);
    tw_muon_step(theta + AT, m + AT, gradient + AT, scratch, cfg);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        const size_t at = i / COLS * STRIDE + AT + i % COLS;
        const double g = 0.5 * (double)gradient[at], moment = 0.95 * (double)m_0[at] + 0.05 * g;
        fill_assert_near("m", m + at, (const float[]){(float)moment}, 1, 1e-6);
        x[i] = (float)(0.95 * moment + 0.05 * g);
    }
    tw_muon_orthogonalise(x, scratch, cfg);
    for (size_t i = 0; i < N; i++) {
        const size_t r = i / STRIDE, c = i % STRIDE;
        const bool is_inside = c >= AT && c < AT + COLS;
        const double step = is_inside ? 0.2 * sqrt(24.0) * (double)x[r * COLS + c - AT] : 0.0;
        const double decay = is_inside ? 0.1 * (double)theta_0[i] : 0.0;
        const float want = (float)((double)theta_0[i] - (double)cfg->lr * (step + decay));
        fill_assert_near("theta", theta + i, &want, 1, cfg->ops->type == TW_BF16 ? 1e-3 : 1e-5);
        if (!is_inside) assert_true(theta[i] == theta_0[i] && m[i] == m_0[i]);
    }
    free(theta), free(theta_0), free(m), free(m_0), free(gradient), free(scratch);
}

/* Takes steps on a block of columns of a wider matrix, each from the reference's weights. */
static void check_reference(struct tw_muon *cfg, struct tw_rng *rng) {
    const uint32_t rows[] = {1, 1, 7, 5, 13, 33, 65, 24}, cols[] = {1, 9, 1, 31, 13, 17, 3, 131};
    const double slack = cfg->ops->type == TW_BF16 ? 0.05 : 1e-3;
    cfg->lr = 0.02f, cfg->momentum = 0.9f, cfg->decay = 0.3f, cfg->gradient_scale = 0.7f;
    for (size_t s = 0; s < sizeof(rows) / sizeof(rows[0]); s++) {
        enum { GAP = 3, STEPS = 3 };
        cfg->rows = rows[s], cfg->cols = cols[s], cfg->stride = cols[s] + GAP;
        const size_t n = cfg->rows * cfg->stride;
        float *theta = fill_new(rng, n, 1.0f), *want = fill_copy(theta, n);
        float *m = fill_new(rng, n, 1.0f), *want_m = fill_copy(m, n);
        /* Frobenius norm of a step along an orthogonal matrix */
        const double size = (double)cfg->lr * 0.2 * sqrt((double)cfg->rows * (double)cfg->cols);
        void *scratch = scratch_new(cfg);
        double *ref = malloc(tw_muon_ref_scratch(cfg->rows, cfg->cols));
        assert_non_null(ref);
        for (int step = 0; step < STEPS; step++) {
            float *gradient = fill_new(rng, n, 1.0f), *before = fill_copy(want, n);
            memcpy(theta, want, n * sizeof(float));
            tw_muon_step(theta, m, gradient, scratch, cfg);
            tw_muon_step_ref(want, want_m, gradient, ref, cfg);
            fill_assert_near("m", m, want_m, n, 1e-6);
            double off = 0.0;
            for (size_t i = 0; i < n; i++) {
                off += pow((double)theta[i] - (double)want[i], 2.0);
                if (i % cfg->stride >= cfg->cols) assert_true(want[i] == before[i]);
            }
            if (!(sqrt(off) <= slack * size)) {
                fail_msg("(%u, %u): a step of %.3g is %.3g off", cfg->rows, cfg->cols, size,
                         sqrt(off));
            }
            free(gradient), free(before);
        }
        free(theta), free(want), free(m), free(want_m), free(scratch), free(ref);
    }
}

static void check_odd_gradients(struct tw_muon *cfg, struct tw_rng *rng) {
    enum { SIDE = 16, N = SIDE * SIDE };
    cfg->rows = cfg->cols = SIDE, cfg->stride = SIDE;
    cfg->lr = 0.02f, cfg->momentum = 0.95f, cfg->decay = 0.0f, cfg->gradient_scale = 1.0f;
    float *theta = fill_new(rng, N, 1.0f), *before = fill_copy(theta, N);
    float m[N] = {0}, gradient[N] = {0};
    void *scratch = scratch_new(cfg);
    tw_muon_step(theta, m, gradient, scratch, cfg); /* zero gradients give no step */
    assert_memory_equal(theta, before, N * sizeof(float));
    gradient[N - 1] = NAN;
    tw_muon_step(theta, m, gradient, scratch, cfg);
    for (size_t i = 0; i < N; i++) assert_true(!isfinite(theta[i]));
    free(theta), free(before), free(scratch);
}

#define ROW(name, check)                                                                           \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        each_library(check);                                                                       \
    }
ROW(matrices_come_out_orthogonal, check_orthogonal)
ROW(step_is_that_of_the_header, check_step)
ROW(step_is_that_of_the_reference, check_reference)
ROW(zeros_step_nowhere_and_nan_everywhere, check_odd_gradients)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_come_out_orthogonal),
        cmocka_unit_test(step_is_that_of_the_header),
        cmocka_unit_test(step_is_that_of_the_reference),
        cmocka_unit_test(zeros_step_nowhere_and_nan_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
