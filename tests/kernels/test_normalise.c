/* test_normalise.c - LayerNorm and RMSNorm of every table against double; gradients against finite
 * differences. */
#include "tests/kernels/tables.h"

static const uint32_t widths[] = {1, 3, 17, 65, 127, 128, 200};
enum { WIDTHS = sizeof(widths) / sizeof(widths[0]), ROWS = 7 };

/* Computes y of one row in double. */
static void twin(double *y, const double *x, const struct tw_norm *norm) {
    double mean = 0.0, square = 0.0;
    for (size_t i = 0; i < norm->width; i++) mean += norm->is_rms ? 0.0 : x[i] / norm->width;
    for (size_t i = 0; i < norm->width; i++) square += pow(x[i] - mean, 2.0) / norm->width;
    for (size_t i = 0; i < norm->width; i++) {
        y[i] = (x[i] - mean) / sqrt(square + (double)norm->eps) * (double)norm->weight[i];
        if (norm->bias != NULL) y[i] += (double)norm->bias[i];
    }
}

struct inputs {
    struct tw_norm norm;
    float *weight, *bias;
    void *x, *residual, *dy;
};

static struct inputs inputs_new(const struct tw_ops *ops, struct tw_rng *rng, uint32_t width,
                                bool is_rms) {
    struct inputs in = {.weight = fill_new(rng, width, 1.0f),
                        .bias = fill_new(rng, width, 1.0f),
                        .x = act_new(ops, rng, (size_t)ROWS * width, 2.0f),
                        .residual = act_new(ops, rng, (size_t)ROWS * width, 1.0f),
                        .dy = act_new(ops, rng, (size_t)ROWS * width, 1.0f)};
    in.norm = (struct tw_norm){.is_rms = is_rms,
                               .rows = ROWS,
                               .width = width,
                               .eps = 0.01f,
                               .weight = in.weight,
                               .bias = is_rms ? NULL : in.bias};
    return in;
}

static void inputs_free(struct inputs *in) {
    free(in->weight), free(in->bias), free(in->x), free(in->residual), free(in->dy);
}

static void check_forward_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t width,
                             bool is_rms) {
    struct inputs in = inputs_new(ops, rng, width, is_rms);
    const size_t n = (size_t)ROWS * width;
    void *before = act_copy(ops, in.x, n), *y = act_new(ops, rng, n, 1.0f);
    double row[200] = {0}, want[200];
    float stats[2 * ROWS];
    ops->norm(y, in.x, in.residual, stats, &in.norm);
    for (size_t i = 0; i < n; i++) {
        const double sum = act_get(ops, before, i) + act_get(ops, in.residual, i);
        assert_act(ops, "x + residual", in.x, i, sum, 0.0, 0.0);
    }
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < width; i++) row[i] = act_get(ops, in.x, r * width + i);
        twin(want, row, &in.norm);
        for (size_t i = 0; i < width; i++) {
            assert_act(ops, "norm", y, r * width + i, want[i], 3e-6, 1.0 + fabs(want[i]));
        }
    }
    /* In place, without residual and stats: the bits are the same. */
    void *in_place = act_copy(ops, in.x, n);
    ops->norm(in_place, in_place, NULL, NULL, &in.norm);
    assert_memory_equal(in_place, y, n * ops->type_bytes);
    free(before), free(y), free(in_place);
    inputs_free(&in);
}

static void check_forward(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t w = 0; w < WIDTHS; w++) {
        check_forward_of(ops, rng, widths[w], false);
        check_forward_of(ops, rng, widths[w], true);
    }
}

/* Returns dL/dx[i] of L = sum(dy * y), from L at x[i] + h and at x[i] - h. */
static double difference(double *row, size_t i, const double *dy, const struct tw_norm *norm) {
    const double h = 1e-5, x = row[i];
    double y[200], loss = 0.0;
    row[i] = x + h;
    twin(y, row, norm);
    for (size_t j = 0; j < norm->width; j++) loss += dy[j] * y[j];
    row[i] = x - h;
    twin(y, row, norm);
    for (size_t j = 0; j < norm->width; j++) loss -= dy[j] * y[j];
    row[i] = x;
    return loss / (2.0 * h);
}

static void check_backward_of(const struct tw_ops *ops, struct tw_rng *rng, uint32_t width,
                              bool is_rms) {
    struct inputs in = inputs_new(ops, rng, width, is_rms);
    const size_t n = (size_t)ROWS * width;
    void *y = act_new(ops, rng, n, 1.0f), *dx = act_new(ops, rng, n, 1.0f);
    void *before = act_copy(ops, dx, n);
    float *dweight = fill_new(rng, width, 1.0f), *dbias = fill_new(rng, width, 1.0f);
    double *dweight_want = calloc(width, sizeof(double)),
           *dbias_want = calloc(width, sizeof(double));
    double row[200] = {0}, dy[200], plain[200], stats_size = 0.0;
    float stats[2 * ROWS];
    assert_true(dweight_want != NULL && dbias_want != NULL);
    ops->norm(y, in.x, NULL, stats, &in.norm);
    for (size_t i = 0; i < width; i++) dweight_want[i] = (double)dweight[i];
    for (size_t i = 0; i < width; i++) dbias_want[i] = (double)dbias[i];
    ops->norm_backward(dx, dweight, is_rms ? NULL : dbias, in.dy, in.x, stats, &in.norm);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t i = 0; i < width; i++) row[i] = act_get(ops, in.x, r * width + i);
        for (size_t i = 0; i < width; i++) dy[i] = act_get(ops, in.dy, r * width + i);
        const double size = 1.0 + (double)stats[2 * r + 1];
        for (size_t i = 0; i < width; i++) {
            const double slope = difference(row, i, dy, &in.norm);
            assert_act(ops, "dx", dx, r * width + i, act_get(ops, before, r * width + i) + slope,
                       1e-5, size + fabs(slope));
        }
        /* y is linear in weight and bias, so dL/dweight is dy * y, with y at weight 1 and bias 0.
         */
        float *one = fill_new(rng, width, 1.0f);
        for (size_t i = 0; i < width; i++) one[i] = 1.0f;
        struct tw_norm unit = in.norm;
        unit.weight = one, unit.bias = NULL;
        twin(plain, row, &unit);
        for (size_t i = 0; i < width; i++) dweight_want[i] += dy[i] * plain[i];
        for (size_t i = 0; i < width; i++) dbias_want[i] += is_rms ? 0.0 : dy[i];
        stats_size = fmax(stats_size, size);
        free(one);
    }
    for (size_t i = 0; i < width; i++) {
        assert_close(ops, "dweight", i, (double)dweight[i], dweight_want[i], 1e-5, 10.0);
        assert_close(ops, "dbias", i, (double)dbias[i], dbias_want[i], 1e-5, 10.0);
    }
    free(y), free(dx), free(before), free(dweight), free(dbias);
    free(dweight_want), free(dbias_want);
    inputs_free(&in);
}

static void check_backward(const struct tw_ops *ops, struct tw_rng *rng) {
    for (size_t w = 0; w < WIDTHS; w++) {
        check_backward_of(ops, rng, widths[w], false);
        check_backward_of(ops, rng, widths[w], true);
    }
}

/* Rows split over two calls give the same bits, including the sums dweight and dbias. */
static void check_cut(const struct tw_ops *ops, struct tw_rng *rng) {
    enum { WIDTH = 67, FIRST = 2, N = ROWS * WIDTH };
    struct inputs in = inputs_new(ops, rng, WIDTH, false);
    float stats[2][2 * ROWS], dweight[2][WIDTH] = {{0}}, dbias[2][WIDTH] = {{0}};
    void *x[2], *y[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        x[i] = act_copy(ops, in.x, N);
        y[i] = act_copy(ops, in.x, N);
        dx[i] = act_copy(ops, in.residual, N);
        for (size_t first = 0; first < ROWS;) {
            struct tw_norm part = in.norm;
            part.rows = i == 0 ? ROWS : first == 0 ? FIRST : ROWS - FIRST;
            const size_t at = first * WIDTH * ops->type_bytes;
            ops->norm((char *)y[i] + at, (char *)x[i] + at, (char *)in.residual + at,
                      stats[i] + 2 * first, &part);
            ops->norm_backward((char *)dx[i] + at, dweight[i], dbias[i], (char *)in.dy + at,
                               (char *)x[i] + at, stats[i] + 2 * first, &part);
            first += part.rows;
        }
    }
    assert_memory_equal(y[0], y[1], N * ops->type_bytes);
    assert_memory_equal(dx[0], dx[1], N * ops->type_bytes);
    assert_memory_equal(stats[0], stats[1], sizeof(stats[0]));
    assert_memory_equal(dweight[0], dweight[1], sizeof(dweight[0]));
    assert_memory_equal(dbias[0], dbias[1], sizeof(dbias[0]));
    for (int i = 0; i < 2; i++) free(x[i]), free(y[i]), free(dx[i]);
    inputs_free(&in);
}

static void check_not_finite(const struct tw_ops *ops, struct tw_rng *rng) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 3; b++) {
        for (int is_rms = 0; is_rms < 2; is_rms++) {
            struct inputs in = inputs_new(ops, rng, 65, is_rms != 0);
            void *y = act_new(ops, rng, ROWS * 65, 1.0f);
            act_put(ops, in.x, 64, bad[b]); /* the last of row 0 */
            ops->norm(y, in.x, NULL, NULL, &in.norm);
            assert_true(!isfinite(act_get(ops, y, 64)));
            assert_true(isfinite(act_get(ops, y, 65)));
            free(y);
            inputs_free(&in);
        }
    }
}

TABLES_TEST(norm_with_residual_is_what_double_says, check_forward)
TABLES_TEST(gradients_are_differences_of_the_forward_pass, check_backward)
TABLES_TEST(rows_cut_in_two_calls_give_the_same_bits, check_cut)
TABLES_TEST(non_finite_values_stay_in_their_row, check_not_finite)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_with_residual_is_what_double_says),
        cmocka_unit_test(gradients_are_differences_of_the_forward_pass),
        cmocka_unit_test(rows_cut_in_two_calls_give_the_same_bits),
        cmocka_unit_test(non_finite_values_stay_in_their_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
