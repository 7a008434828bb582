/* test_cuda_step.c - clipping and skipping of a step on a device, and an update with the bits of
 * the reference. */
#include "kernels/cuda/ops.h"
#include "kernels/outer.h"

#include "tests/kernels/cuda/device.h"

static struct tw_cuda_step decided(double loss, double squares, double clip) {
    struct tw_cuda_step step = {.clip = clip, .loss = loss, .squares = squares};
    struct tw_cuda_step *on = device_of(&step, sizeof(step));
    tw_cuda_step_decide(device_stream, on);
    device_get(&step, on, sizeof(step));
    device_free(on);
    return step;
}

static void a_step_is_clipped_or_skipped(void **state) {
    struct tw_cuda_step step = decided(3.0, 16.0, 1.0);
    assert_true(step.norm == 4.0 && step.gradient_scale == 0.25f && step.is_skipped == 0);
    step = decided(3.0, 16.0, 4.0);
    assert_true(step.gradient_scale == 1.0f && step.is_skipped == 0);
    step = decided(3.0, 16.0, 0.0);
    assert_true(step.gradient_scale == 1.0f && step.is_skipped == 0);
    assert_int_equal(decided((double)NAN, 16.0, 1.0).is_skipped, 1);
    assert_int_equal(decided((double)INFINITY, 16.0, 1.0).is_skipped, 1);
    assert_int_equal(decided(3.0, (double)NAN, 1.0).is_skipped, 1);
    assert_int_equal(decided(3.0, (double)INFINITY, 0.0).is_skipped, 1);
}

/* The four arrays on the host, each `at` elements into memory of n + 8 elements. */
struct arrays {
    float *theta, *m, *v, *gradient;
};

static struct arrays arrays_new(struct tw_rng *rng, size_t n) {
    struct arrays a = {fill_new(rng, n, 1.0f), fill_new(rng, n, 1.0f), fill_new(rng, n, 1.0f),
                       fill_new(rng, n, 1.0f)};
    for (size_t i = 0; i < n; i++) a.v[i] *= a.v[i];
    return a;
}

static void assert_same(const float *on, const float *want, size_t n) {
    float *got = malloc(n * sizeof(float));
    assert_non_null(got);
    device_get(got, on, n * sizeof(float));
    assert_memory_equal(got, want, n * sizeof(float));
    free(got);
}

static void check_adamw(struct tw_rng *rng, size_t n, size_t at, bool is_skipped) {
    const size_t all = n + 8, bytes = all * sizeof(float);
    struct arrays a = arrays_new(rng, all);
    const struct tw_cuda_step numbers = {.lr = 0.01f,
                                         .correction1 = 0.19f,
                                         .correction2 = 0.0975f,
                                         .decay = 0.1f,
                                         .gradient_scale = 0.5f,
                                         .is_skipped = is_skipped};
    const struct tw_adamw cfg = {.lr = 0.01f,
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .eps = 1e-8f,
                                 .decay = n % 2 == 0 ? 0.1f : 0.0f,
                                 .correction1 = 0.19f,
                                 .correction2 = 0.0975f,
                                 .gradient_scale = 0.5f};
    uint16_t *copy = calloc(all, sizeof(*copy)), *copy_got = calloc(all, sizeof(*copy));
    assert_true(copy != NULL && copy_got != NULL);
    float *theta = device_of(a.theta, bytes), *m = device_of(a.m, bytes);
    float *v = device_of(a.v, bytes), *gradient = device_of(a.gradient, bytes);
    uint16_t *on_copy = device_of(copy, all * sizeof(*copy));
    struct tw_cuda_step *step = device_of(&numbers, sizeof(numbers));
    const struct tw_cuda_adamw on = {.theta = theta + at,
                                     .m = m + at,
                                     .v = v + at,
                                     .gradient = gradient + at,
                                     .copy = n % 3 == 0 ? NULL : on_copy + at,
                                     .n = n,
                                     .beta1 = cfg.beta1,
                                     .beta2 = cfg.beta2,
                                     .eps = cfg.eps,
                                     .has_decay = n % 2 == 0};
    tw_cuda_adamw(device_stream, &on, step);
    if (!is_skipped)
        tw_ops_ref(TW_F32)->adamw(a.theta + at, a.m + at, a.v + at, a.gradient + at, n, &cfg);
    for (size_t i = at; i < at + n && on.copy != NULL && !is_skipped; i++)
        copy[i] = tw_bf16_from_f32(a.theta[i]);
    assert_same(theta, a.theta, all);
    assert_same(m, a.m, all);
    assert_same(v, a.v, all);
    device_get(copy_got, on_copy, all * sizeof(*copy));
    assert_memory_equal(copy_got, copy, all * sizeof(*copy));
    device_free(theta), device_free(m), device_free(v), device_free(gradient);
    device_free(on_copy), device_free(step);
    free(a.theta), free(a.m), free(a.v), free(a.gradient), free(copy), free(copy_got);
}

static void adamw_has_the_bits_of_the_reference(void **state) {
    const size_t sizes[] = {1, 2, 7, 8, 31, 33, 1000, 10007};
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    for (size_t i = 0; i < 8; i++) {
        check_adamw(&rng, sizes[i], 0, false);
        check_adamw(&rng, sizes[i], 1, false);
        check_adamw(&rng, sizes[i], 0, true);
    }
}

static void check_mix(struct tw_rng *rng, size_t n) {
    float *theta = fill_new(rng, n, 1.0f), *anchor = fill_new(rng, n, 1.0f);
    float *old = fill_new(rng, n, 1.0f);
    uint16_t *copy = malloc(n * sizeof(*copy)), *got = malloc(n * sizeof(*copy));
    assert_true(copy != NULL && got != NULL);
    float *on_theta = device_of(theta, n * sizeof(float));
    float *on_anchor = device_of(anchor, n * sizeof(float));
    float *on_old = device_of(old, n * sizeof(float));
    uint16_t *on_copy = device_new(n * sizeof(*copy));
    tw_cuda_mix(device_stream, on_theta, on_copy, on_anchor, 0.3f, n);
    tw_mix_ref(theta, anchor, 0.3f, n);
    assert_same(on_theta, theta, n);
    for (size_t i = 0; i < n; i++) copy[i] = tw_bf16_from_f32(theta[i]);
    device_get(got, on_copy, n * sizeof(*copy));
    assert_memory_equal(got, copy, n * sizeof(*copy));
    tw_cuda_shift(device_stream, on_theta, NULL, on_anchor, on_old, n);
    tw_shift_ref(theta, anchor, old, n);
    assert_same(on_theta, theta, n);
    device_free(on_theta), device_free(on_anchor), device_free(on_old), device_free(on_copy);
    free(theta), free(anchor), free(old), free(copy), free(got);
}

static void check_regain(struct tw_rng *rng, size_t n) {
    float *host[4], *on[4]; /* next, merged, delta, residual */
    for (size_t k = 0; k < 4; k++) host[k] = fill_new(rng, n, 1.0f);
    for (size_t i = 0; i < n; i += 2) host[1][i] = 0.0f;
    for (size_t k = 0; k < 4; k++) on[k] = device_of(host[k], n * sizeof(float));
    const struct tw_regain here = {host[0], host[1], host[2], host[3], 0.38f, n},
                           there = {on[0], on[1], on[2], on[3], 0.38f, n};
    tw_regain_ref(&here);
    tw_cuda_regain(device_stream, &there);
    assert_same(on[0], host[0], n);
    for (size_t k = 0; k < 4; k++) device_free(on[k]), free(host[k]);
}

static void an_outer_step_has_the_bits_of_the_host(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, TABLES_SEED);
    check_mix(&rng, 1);
    check_mix(&rng, 1000);
    check_mix(&rng, 4099);
    check_regain(&rng, 1);
    check_regain(&rng, 4099);
}

int main(void) {
    print_message("seed %d\n", TABLES_SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_clipped_or_skipped),
        cmocka_unit_test(adamw_has_the_bits_of_the_reference),
        cmocka_unit_test(an_outer_step_has_the_bits_of_the_host),
    };
    return DEVICE_RUN(tests);
}
