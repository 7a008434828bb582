/* test_cuda_muon.c - Muon's step on a device matches the reference, for matrices of every shape,
 * alone and in groups. */
#include "kernels/cuda/muon.h"

#include "kernels/cuda/ops.h"
#include "kernels/muon.h"
#include "tests/kernels/cuda/card.h"

enum { SEED = 1953, GAP = 3, STEPS = 2, MATRICES_MAX = 16 };

static struct tw_cuda_products *products;

static const struct tw_cuda_step usual = {
    .lr = 0.02f, .decay = 0.3f, .momentum = 0.9f, .gradient_scale = 0.7f};

/* Matrices one after another, each a block of columns of a wider matrix. */
struct list {
    struct tw_cuda_muon_matrix matrices[MATRICES_MAX];
    uint32_t count;
    size_t elements;
};

static void add(struct list *list, uint32_t rows, uint32_t cols) {
    list->matrices[list->count++] = (struct tw_cuda_muon_matrix){
        .begin = list->elements + 1, .rows = rows, .cols = cols, .stride = cols + GAP};
    list->elements += rows * (cols + GAP) + 2;
}

/* theta, m and the gradient on the host, and the device's arrays. */
struct state {
    float *theta, *m, *gradient;
    float *on_theta, *on_m, *on_gradient;
    uint16_t *on_act;
    struct tw_cuda_step *on_step;
    void *scratch;
};

static struct state state_new(struct tw_rng *rng, const struct list *list, enum tw_type type) {
    const size_t n = list->elements, bytes = n * sizeof(float);
    struct state s = {.theta = fill_new(rng, n, 1.0f),
                      .m = fill_new(rng, n, 1.0f),
                      .gradient = fill_new(rng, n, 1.0f)};
    s.on_theta = card_new(s.theta, bytes), s.on_m = card_new(s.m, bytes);
    s.on_gradient = card_new(s.gradient, bytes);
    s.on_act = card_new(NULL, n * sizeof(uint16_t));
    s.on_step = card_new(&usual, sizeof(usual));
    s.scratch = card_new(NULL, tw_cuda_muon_scratch(list->matrices, list->count, type));
    return s;
}

static void state_free(struct state *s) {
    card_free_all();
    free(s->theta), free(s->m), free(s->gradient);
}

static void step(const struct state *s, const struct list *list, enum tw_type type) {
    const struct tw_cuda_muon cfg = {
        .step = s->on_step, .type = type, .theta_act = s->on_act, .products = products};
    tw_cuda_muon_step(s->on_theta, s->on_m, s->on_gradient, s->scratch, list->matrices, list->count,
                      &cfg, tw_cuda_stream(card, TW_CUDA_COMPUTE));
}

/* Compares one matrix of theta, after some steps on the device, with the reference. */
static void assert_matrix(const struct tw_cuda_muon_matrix *x, const float *got, const float *want,
                          double slack) {
    /* Frobenius norm of a step along an orthogonal matrix */
    const double size = (double)usual.lr * 0.2 * sqrt((double)x->rows * (double)x->cols);
    double off = 0.0;
    for (size_t r = 0; r < x->rows; r++) {
        for (size_t c = 0; c < x->cols; c++) {
            const size_t at = x->begin + r * x->stride + c;
            off += pow((double)got[at] - (double)want[at], 2.0);
        }
    }
    if (!(sqrt(off) <= slack * size)) {
        fail_msg("(%u, %u): a step of %.3g is %.3g off", x->rows, x->cols, size, sqrt(off));
    }
}

static bool is_inside(const struct list *list, size_t i) {
    for (uint32_t k = 0; k < list->count; k++) {
        const struct tw_cuda_muon_matrix *const x = &list->matrices[k];
        if (i >= x->begin && i < x->begin + x->rows * x->stride &&
            (i - x->begin) % x->stride < x->cols)
            return true;
    }
    return false;
}

static void check(struct tw_rng *rng, const struct list *list, enum tw_type type) {
    const size_t n = list->elements;
    const double slack = type == TW_BF16 ? 0.06 : 1e-3; /* relative to a step */
    struct state s = state_new(rng, list, type);
    float *const before = fill_copy(s.theta, n), *const theta = fill_copy(s.theta, n);
    float *const m = fill_copy(s.m, n);
    uint16_t *const act = malloc(n * sizeof(uint16_t));
    assert_non_null(act);
    for (int i = 1; i <= STEPS; i++) {
        step(&s, list, type);
        for (uint32_t k = 0; k < list->count; k++) {
            const struct tw_cuda_muon_matrix *const x = &list->matrices[k];
            const struct tw_muon cfg = {.rows = x->rows,
                                        .cols = x->cols,
                                        .stride = x->stride,
                                        .lr = usual.lr,
                                        .momentum = usual.momentum,
                                        .decay = usual.decay,
                                        .gradient_scale = usual.gradient_scale};
            double *const ref = malloc(tw_muon_ref_scratch(x->rows, x->cols));
            assert_non_null(ref);
            tw_muon_step_ref(s.theta + x->begin, s.m + x->begin, s.gradient + x->begin, ref, &cfg);
            free(ref);
        }
        card_read(theta, s.on_theta, n * sizeof(float));
        card_read(m, s.on_m, n * sizeof(float));
        for (uint32_t k = 0; k < list->count; k++)
            assert_matrix(&list->matrices[k], theta, s.theta, i * slack);
        fill_assert_near("m", m, s.m, n, 1e-6);
    }
    card_read(act, s.on_act, n * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) {
        if (is_inside(list, i)) assert_int_equal(act[i], tw_bf16_from_f32(theta[i]));
        if (!is_inside(list, i)) assert_true(theta[i] == before[i] && act[i] == 0xffff);
    }
    state_free(&s);
    free(before), free(theta), free(m), free(act);
}

static void step_is_that_of_the_reference(void **state) {
    const uint32_t rows[] = {1, 1, 7, 5, 13, 33, 65, 24}, cols[] = {1, 9, 1, 31, 13, 17, 3, 131};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (int type = TW_F32; type <= TW_BF16; type++) {
        struct list list = {.count = 0};
        for (size_t s = 0; s < 8; s++) add(&list, rows[s], cols[s]);
        check(&rng, &list, (enum tw_type)type);
    }
}

/* The list has more matrices of one size than a group holds, between matrices of other sizes. */
static void equals_are_worked_on_together(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (int type = TW_F32; type <= TW_BF16; type++) {
        struct list list = {.count = 0};
        add(&list, 9, 20);
        for (unsigned i = 0; i < TW_CUDA_MUON_BATCH + 2; i++) add(&list, 16, 40);
        add(&list, 40, 16), add(&list, 40, 16);
        check(&rng, &list, (enum tw_type)type);
    }
}

static void zeros_step_nowhere_and_nan_everywhere(void **state) {
    enum { SIDE = 16, N = SIDE * (SIDE + GAP) + 2 };
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    struct list list = {.count = 0};
    struct tw_cuda_step now = usual;
    float zeros[N] = {0}, theta[N];
    add(&list, SIDE, SIDE);
    struct state s = state_new(&rng, &list, TW_BF16);
    now.decay = 0.0f;
    s.on_step = card_new(&now, sizeof(now));
    s.on_m = card_new(zeros, sizeof(zeros));
    s.on_gradient = card_new(zeros, sizeof(zeros));
    step(&s, &list, TW_BF16);
    card_read(theta, s.on_theta, sizeof(theta));
    assert_memory_equal(theta, s.theta, sizeof(theta));
    zeros[list.matrices[0].begin + 5] = NAN;
    s.on_gradient = card_new(zeros, sizeof(zeros));
    step(&s, &list, TW_BF16);
    card_read(theta, s.on_theta, sizeof(theta));
    for (size_t i = 0; i < N; i++) {
        if (is_inside(&list, i)) assert_true(isfinite(theta[i]) == 0);
    }
    state_free(&s);
}

static void a_step_that_is_skipped_changes_nothing(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    struct list list = {.count = 0};
    struct tw_cuda_step now = usual;
    add(&list, 8, 24);
    struct state s = state_new(&rng, &list, TW_F32);
    float *const got = fill_copy(s.theta, list.elements);
    now.is_skipped = 1;
    s.gradient[list.matrices[0].begin] = NAN;
    s.on_gradient = card_new(s.gradient, list.elements * sizeof(float));
    s.on_step = card_new(&now, sizeof(now));
    step(&s, &list, TW_F32);
    card_read(got, s.on_theta, list.elements * sizeof(float));
    assert_memory_equal(got, s.theta, list.elements * sizeof(float));
    card_read(got, s.on_m, list.elements * sizeof(float));
    assert_memory_equal(got, s.m, list.elements * sizeof(float));
    state_free(&s);
    free(got);
}

int main(void) {
    struct tw_error err = {0};
    if (!card_open()) return CARD_SKIPPED;
    print_message("seed %d\n", SEED);
    if (tw_cuda_products_open(&products, card, NULL, &err) != TW_OK) {
        print_message("%s\n", err.message);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_is_that_of_the_reference),
        cmocka_unit_test(equals_are_worked_on_together),
        cmocka_unit_test(zeros_step_nowhere_and_nan_everywhere),
        cmocka_unit_test(a_step_that_is_skipped_changes_nothing),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tw_cuda_products_close(products);
    tw_cuda_close(card);
    return failed;
}
