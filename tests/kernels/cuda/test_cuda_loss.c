/* test_cuda_loss.c - losses, their gradients and long sums on a device match the reference. */
#include "kernels/cuda/ops.h"

#include "tests/kernels/cuda/device.h"

enum { ROWS = 7 };

/* Sizes, strides and types of one call; logits are float32 on the host. */
struct shape {
    uint32_t vocab, padded; /* columns of logits; columns of dlogits that are written */
    size_t logits_stride, dlogits_stride;
    float z_loss;
    bool is_in_place;
};

struct loss {
    const struct tw_ops *logits_ops, *dlogits_ops;
    struct shape shape;
    float *logits; /* values rounded to the device's type */
    uint32_t targets[ROWS];
    struct tw_cuda_cross_entropy on;
};

static void loss_init(struct loss *l, struct tw_rng *rng, const enum tw_type types[2],
                      const struct shape *s) {
    const size_t n = ROWS * s->logits_stride;
    l->logits_ops = tw_ops_ref(types[0]), l->dlogits_ops = tw_ops_ref(types[1]);
    l->shape = *s;
    void *logits = act_new(l->logits_ops, rng, n, 4.0f);
    l->logits = fill_new(rng, n, 1.0f);
    for (size_t i = 0; i < n; i++) l->logits[i] = (float)act_get(l->logits_ops, logits, i);
    for (size_t r = 0; r < ROWS; r++) l->targets[r] = (uint32_t)tw_rng_below(rng, s->vocab);
    l->targets[0] = 0, l->targets[1] = s->vocab - 1;
    l->on = (struct tw_cuda_cross_entropy){
        .logits_type = types[0],
        .dlogits_type = types[1],
        .shape = {ROWS, s->vocab, s->logits_stride, s->dlogits_stride, 0.125f, s->z_loss},
        .dlogits_columns = s->padded,
        .logits = device_of(logits, n * l->logits_ops->type_bytes),
        .targets = device_of(l->targets, sizeof(l->targets)),
        .losses = device_new(ROWS * sizeof(float))};
    l->on.dlogits = s->is_in_place
                        ? (void *)l->on.logits
                        : device_new(ROWS * s->dlogits_stride * l->dlogits_ops->type_bytes);
    free(logits);
}

static void loss_deinit(struct loss *l) {
    if (!l->shape.is_in_place) device_free(l->on.dlogits);
    device_free((void *)l->on.logits), device_free((void *)l->on.targets);
    device_free(l->on.losses);
    free(l->logits);
}

static void assert_losses(const struct loss *l) {
    float losses[ROWS];
    device_get(losses, l->on.losses, sizeof(losses));
    for (size_t r = 0; r < ROWS; r++) {
        const struct tw_cross_entropy row = {1, l->shape.vocab, 0, 0, 1.0f, 0.0f};
        const double want = l->dlogits_ops->cross_entropy(
            NULL, l->logits + r * l->shape.logits_stride, &l->targets[r], &row);
        if (fabs((double)losses[r] - want) > 3e-6 * (1.0 + fabs(want)))
            fail_msg("loss %zu is %.9g, expected %.9g", r, (double)losses[r], want);
    }
}

static void check_loss(struct tw_rng *rng, const enum tw_type types[2], const struct shape *s) {
    struct loss l;
    loss_init(&l, rng, types, s);
    struct tw_cuda_cross_entropy only = l.on;
    only.dlogits = NULL;
    tw_cuda_cross_entropy(device_stream, &only);
    assert_losses(&l);
    tw_cuda_cross_entropy(device_stream, &l.on);
    assert_losses(&l);
    const struct tw_ops *ops = l.dlogits_ops;
    const size_t n = ROWS * s->dlogits_stride;
    void *want = act_new(ops, rng, n, 1.0f), *got = act_new(ops, rng, n, 1.0f);
    (void)ops->cross_entropy(want, l.logits, l.targets, &l.on.shape);
    device_get(got, l.on.dlogits, n * ops->type_bytes);
    for (size_t r = 0; r < ROWS; r++) {
        const size_t at = r * s->dlogits_stride;
        assert_as_ref(ops, "dlogits", act_at(ops, got, at), act_at(ops, want, at), s->vocab, 1e-6);
        for (size_t i = s->vocab; i < s->padded; i++) assert_true(act_get(ops, got, at + i) == 0.0);
    }
    free(want), free(got);
    loss_deinit(&l);
}

static void losses_are_those_of_the_reference(void **state) {
    const enum tw_type types[][2] = {{TW_F32, TW_F32}, {TW_F32, TW_BF16}, {TW_BF16, TW_BF16}};
    const struct shape apart[] = {{1, 1, 1, 1, 0.0f, false},
                                  {2, 8, 8, 8, 0.01f, false},
                                  {31, 32, 40, 32, 0.0f, false},
                                  {33, 33, 33, 35, 0.0f, false},
                                  {1000, 1024, 1024, 1032, 1e-3f, false},
                                  {9000, 9001, 9008, 9016, 0.0f, false}};
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < 6; i++) {
            check_loss(&rng, types[t], &apart[i]);
            struct shape in_place = apart[i];
            const bool is_narrower = types[t][0] != types[t][1];
            in_place.logits_stride = apart[i].dlogits_stride; /* at least padded */
            in_place.dlogits_stride = in_place.logits_stride * (is_narrower ? 2 : 1);
            in_place.is_in_place = true;
            check_loss(&rng, types[t], &in_place);
        }
    }
}

static void non_finite_values_stay_in_their_row(void **state) {
    const enum tw_type types[2] = {TW_F32, TW_F32};
    const struct shape shape = {40, 40, 40, 40, 0.0f, false};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    for (size_t b = 0; b < 3; b++) {
        struct loss l;
        float losses[ROWS];
        loss_init(&l, &rng, types, &shape);
        for (size_t i = 0; i < 40; i++) l.logits[2 * 40 + i] = bad[b]; /* the whole row */
        tw_cuda_copy_in(device, TW_CUDA_COMPUTE, (void *)l.on.logits, l.logits,
                        ROWS * 40 * sizeof(float));
        tw_cuda_cross_entropy(device_stream, &l.on);
        device_get(losses, l.on.losses, sizeof(losses));
        for (size_t r = 0; r < ROWS; r++) assert_true(isfinite(losses[r]) == (r != 2));
        loss_deinit(&l);
    }
}

static void check_sum(struct tw_rng *rng, size_t n) {
    float *x = fill_new(rng, n, 1.0f), *on_x = device_of(x, n * sizeof(float));
    double start[2] = {0.5, 0.5}, got[2], want = 0.0;
    double *sums = device_of(start, sizeof(start));
    void *scratch = device_new(TW_CUDA_SUM_SCRATCH);
    for (size_t i = 0; i < n; i++) want += (double)x[i];
    tw_cuda_sum(device_stream, &sums[0], on_x, n, true, scratch);
    tw_cuda_sum_squares(device_stream, &sums[1], on_x, n, false, scratch);
    device_get(got, sums, sizeof(got));
    const double squares = tw_ops_ref(TW_F32)->sum_squares(x, n);
    assert_true(fabs(got[0] - 0.5 - want) <= 1e-9 * (1.0 + fabs(want)));
    assert_true(fabs(got[1] - squares) <= 1e-12 * squares);
    const float bad[] = {NAN, INFINITY, 3e38f};
    for (size_t b = 0; b < 3 && n > 0; b++) {
        tw_cuda_copy_in(device, TW_CUDA_COMPUTE, on_x + n - 1, &bad[b], sizeof(float));
        tw_cuda_sum_squares(device_stream, &sums[1], on_x, n, true, scratch);
        device_get(got, sums, sizeof(got));
        assert_true(isfinite(got[1]) == (b == 2));
        tw_cuda_zero(device, TW_CUDA_COMPUTE, &sums[1], sizeof(double));
    }
    device_free(on_x), device_free(sums), device_free(scratch), free(x);
}

static void sums_are_those_of_the_reference(void **state) {
    const size_t sizes[] = {0, 1, 2, 31, 33, 1000, 4097, 100003};
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    for (size_t i = 0; i < 8; i++) check_sum(&rng, sizes[i]);
}

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_the_reference),
        cmocka_unit_test(non_finite_values_stay_in_their_row),
        cmocka_unit_test(sums_are_those_of_the_reference),
    };
    return DEVICE_RUN(tests);
}
