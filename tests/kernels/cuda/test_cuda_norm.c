/* test_cuda_norm.c - norms on a device and their gradients match the reference: whole rows,
 * adjacent heads in wider rows, any width. */
#include "kernels/cuda/ops.h"

#include "tests/kernels/cuda/device.h"

static const uint32_t widths[] = {1, 3, 17, 64, 127, 200, 768, 1024, 1032, 1100, 4104, 8200};
enum { WIDTHS = sizeof(widths) / sizeof(widths[0]), ROWS = 45, FEW = 3 };

/* Contiguous vectors for the reference, and device arrays whose rows have `heads` vectors and are
 * `stride` elements apart. */
struct fixture {
    const struct tw_ops *ops;
    struct tw_norm norm; /* the reference's shape: a row is one vector */
    struct tw_cuda_norm on;
    float *weight, *bias;
    size_t n, wide; /* number of elements of all vectors; of a strided array */
};

/* Sizes of vectors, and gaps between rows. */
struct shape {
    uint32_t width, heads;
    bool is_rms;
    size_t apart;
    uint32_t rows; /* 0: ROWS */
};

static void fixture_init(struct fixture *f, const struct tw_ops *ops, struct tw_rng *rng,
                         struct shape shape) {
    const uint32_t width = shape.width, heads = shape.heads;
    const uint32_t rows = shape.rows == 0 ? (uint32_t)ROWS : shape.rows;
    const bool is_rms = shape.is_rms;
    const size_t stride = (size_t)heads * width + shape.apart;
    *f = (struct fixture){.ops = ops, .n = (size_t)rows * heads * width, .wide = rows * stride};
    f->weight = fill_new(rng, width, 1.0f);
    f->bias = fill_new(rng, width, 1.0f);
    f->norm = (struct tw_norm){.is_rms = is_rms,
                               .rows = rows * heads,
                               .width = width,
                               .eps = 0.01f,
                               .weight = f->weight,
                               .bias = is_rms ? NULL : f->bias};
    f->on = (struct tw_cuda_norm){.type = ops->type,
                                  .shape = f->norm,
                                  .heads = heads,
                                  .x_stride = stride,
                                  .y_stride = stride,
                                  .dx_stride = stride};
    f->on.shape.rows = rows;
    f->on.shape.weight = device_of(f->weight, width * sizeof(float));
    f->on.shape.bias = is_rms ? NULL : device_of(f->bias, width * sizeof(float));
}

static void fixture_deinit(struct fixture *f) {
    device_free((void *)f->on.shape.weight), device_free((void *)f->on.shape.bias);
    free(f->weight), free(f->bias);
}

/* Copies vectors from contiguous to strided form or, if is_back, the other way. */
static void spread(const struct fixture *f, char *wide, char *vectors, bool is_back) {
    const size_t part = (size_t)f->on.heads * f->norm.width * f->ops->type_bytes;
    for (size_t r = 0; r < f->on.shape.rows; r++) {
        char *at = wide + r * f->on.x_stride * f->ops->type_bytes;
        if (is_back) memcpy(vectors + r * part, at, part);
        if (!is_back) memcpy(at, vectors + r * part, part);
    }
}

static void *device_spread(const struct fixture *f, void *vectors) {
    char *wide = calloc(f->wide, f->ops->type_bytes);
    assert_non_null(wide);
    spread(f, wide, vectors, false);
    void *at = device_of(wide, f->wide * f->ops->type_bytes);
    free(wide);
    return at;
}

static void device_gather(const struct fixture *f, void *vectors, const void *at) {
    char *wide = malloc(f->wide * f->ops->type_bytes);
    assert_non_null(wide);
    device_get(wide, at, f->wide * f->ops->type_bytes);
    spread(f, wide, vectors, true);
    free(wide);
}

static void check_forward_of(struct fixture *f, struct tw_rng *rng) {
    const struct tw_ops *ops = f->ops;
    const size_t stats_n = 2 * (size_t)f->norm.rows;
    void *x = act_new(ops, rng, f->n, 2.0f), *residual = act_new(ops, rng, f->n, 1.0f);
    void *y = act_new(ops, rng, f->n, 1.0f), *got = act_new(ops, rng, f->n, 1.0f);
    float *stats = fill_new(rng, stats_n, 1.0f), *stats_got = fill_new(rng, stats_n, 1.0f);
    void *on_x = device_spread(f, x), *on_residual = device_spread(f, residual);
    void *on_y = device_spread(f, y), *on_stats = device_new(stats_n * sizeof(float));
    tw_cuda_norm(device_stream, &f->on, on_y, on_x, on_residual, on_stats);
    ops->norm(y, x, residual, stats, &f->norm);
    device_gather(f, got, on_x);
    assert_memory_equal(got, x, f->n * ops->type_bytes);
    device_gather(f, got, on_y);
    assert_as_ref(ops, "norm", got, y, f->n, 3e-6);
    device_get(stats_got, on_stats, stats_n * sizeof(float));
    fill_assert_near("stats", stats_got, stats, stats_n, 3e-6);
    /* In place, without residual and stats: the bits are the same. */
    tw_cuda_norm(device_stream, &f->on, on_x, on_x, NULL, NULL);
    device_gather(f, y, on_x);
    assert_memory_equal(y, got, f->n * ops->type_bytes);
    device_free(on_x), device_free(on_residual), device_free(on_y), device_free(on_stats);
    free(x), free(residual), free(y), free(got), free(stats), free(stats_got);
}

/* Runs the backward pass on both sides, with all inputs and outputs. */
static void check_backward_of(struct fixture *f, struct tw_rng *rng) {
    const struct tw_ops *ops = f->ops;
    const size_t width = f->norm.width, row = width * sizeof(float);
    const size_t stats_n = 2 * (size_t)f->norm.rows;
    void *x = act_new(ops, rng, f->n, 2.0f), *y = act_new(ops, rng, f->n, 1.0f);
    void *dy = act_new(ops, rng, f->n, 1.0f), *dx = act_new(ops, rng, f->n, 1.0f);
    void *zero = calloc(f->n, ops->type_bytes), *got = act_new(ops, rng, f->n, 1.0f);
    float *stats = fill_new(rng, stats_n, 1.0f), *dweight = fill_new(rng, width, 1.0f);
    float *dbias = fill_new(rng, width, 1.0f), *sums = fill_new(rng, width, 1.0f);
    ops->norm(y, x, NULL, stats, &f->norm);
    const struct tw_cuda_norm_gradients added = {
        .is_added = true,
        .dx = device_spread(f, dx),
        .dy = device_spread(f, dy),
        .x = device_spread(f, x),
        .stats = device_of(stats, stats_n * sizeof(float)),
        .dweight = device_of(dweight, row),
        .dbias = f->norm.is_rms ? NULL : device_of(dbias, row),
        .scratch = device_new(tw_cuda_norm_backward_scratch(&f->on))};
    tw_cuda_norm_backward(device_stream, &f->on, &added);
    ops->norm_backward(dx, dweight, f->norm.is_rms ? NULL : dbias, dy, x, stats, &f->norm);
    device_gather(f, got, added.dx);
    assert_as_ref(ops, "dx", got, dx, f->n, 2e-5);
    device_get(sums, added.dweight, row);
    fill_assert_near("dweight", sums, dweight, width, 1e-5);
    if (!f->norm.is_rms) {
        device_get(sums, added.dbias, row);
        fill_assert_near("dbias", sums, dbias, width, 1e-5);
    }
    /* Again, with sums that overwrite those from before. */
    struct tw_cuda_norm_gradients over = added;
    over.is_first = true;
    tw_cuda_norm_backward(device_stream, &f->on, &over);
    memset(dweight, 0, row), memset(dbias, 0, row);
    ops->norm_backward(zero, dweight, f->norm.is_rms ? NULL : dbias, dy, x, stats, &f->norm);
    device_get(sums, added.dweight, row);
    fill_assert_near("first dweight", sums, dweight, width, 1e-5);
    if (!f->norm.is_rms) {
        device_get(sums, added.dbias, row);
        fill_assert_near("first dbias", sums, dbias, width, 1e-5);
    }
    memset(zero, 0, f->n * ops->type_bytes);
    over.is_first = false;
    /* Once more: dx overwrites dy. */
    over.is_added = false, over.dx = (void *)added.dy;
    tw_cuda_norm_backward(device_stream, &f->on, &over);
    ops->norm_backward(zero, dweight, NULL, dy, x, stats, &f->norm);
    device_gather(f, got, over.dx);
    assert_as_ref(ops, "dx over dy", got, zero, f->n, 2e-5);
    device_get(sums, added.dweight, row);
    fill_assert_near("dweight", sums, dweight, width, 1e-5);
    over.dx = added.dx, over.dweight = over.dbias = NULL, over.scratch = NULL;
    tw_cuda_norm_backward(device_stream, &f->on, &over);
    device_free(added.dx), device_free((void *)added.dy), device_free((void *)added.x);
    device_free((void *)added.stats), device_free(added.dweight), device_free(added.dbias);
    device_free(added.scratch);
    free(x), free(y), free(dy), free(dx), free(zero), free(got), free(stats), free(dweight);
    free(dbias), free(sums);
}

typedef void check_of(struct fixture *f, struct tw_rng *rng);

static void check_all(const struct tw_ops *ops, struct tw_rng *rng, check_of *check) {
    struct fixture f;
    for (size_t w = 0; w < WIDTHS; w++) {
        for (int is_rms = 0; is_rms < 2; is_rms++) {
            fixture_init(&f, ops, rng, (struct shape){widths[w], 1, is_rms != 0, 0, 0});
            check(&f, rng);
            fixture_deinit(&f);
        }
    }
    const struct shape others[] = {
        {64, 3, true, 40, 0},   {128, 2, true, 0, 0},    {6, 5, true, 1, 0},
        {1100, 2, true, 4, 0},  {768, 1, false, 0, FEW}, {2048, 1, true, 8, FEW},
        {1024, 1, false, 8, 1},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        fixture_init(&f, ops, rng, others[i]);
        check(&f, rng);
        fixture_deinit(&f);
    }
}

static void check_forward(const struct tw_ops *ops, struct tw_rng *rng) {
    check_all(ops, rng, check_forward_of);
}

static void check_backward(const struct tw_ops *ops, struct tw_rng *rng) {
    check_all(ops, rng, check_backward_of);
}

static void check_not_finite(const struct tw_ops *ops, struct tw_rng *rng) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t b = 0; b < 6; b++) {
        struct fixture f;
        fixture_init(&f, ops, rng, (struct shape){64, 1, b % 2 == 0, 0, 0});
        void *x = act_new(ops, rng, f.n, 1.0f);
        act_put(ops, x, 63, bad[b / 2]); /* the last of row 0 */
        void *on_x = device_of(x, f.n * ops->type_bytes);
        tw_cuda_norm(device_stream, &f.on, on_x, on_x, NULL, NULL);
        device_get(x, on_x, f.n * ops->type_bytes);
        assert_true(!isfinite(act_get(ops, x, 63)));
        for (size_t i = 64; i < f.n; i++) assert_true(isfinite(act_get(ops, x, i)));
        device_free(on_x), free(x);
        fixture_deinit(&f);
    }
}

DEVICE_TEST(norm_with_residual_is_the_reference, check_forward)
DEVICE_TEST(gradients_are_those_of_the_reference, check_backward)
DEVICE_TEST(non_finite_values_stay_in_their_row, check_not_finite)

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_with_residual_is_the_reference),
        cmocka_unit_test(gradients_are_those_of_the_reference),
        cmocka_unit_test(non_finite_values_stay_in_their_row),
    };
    return DEVICE_RUN(tests);
}
