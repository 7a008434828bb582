/* test_cuda_outer.c - outer steps on a device give the bits of the host, and the momentum lead
 * agrees with the host's. */
#include "kernels/cuda/ops.h"

#include "kernels/norm.h"
#include "tests/kernels/cuda/card.h"

enum { SEED = 2718, N_MAX = 70001 };

static const size_t sizes[] = {1, 2, 31, 33, 127, 257, 1000, 4099, N_MAX};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void *stream(void) {
    return tw_cuda_stream(card, TW_CUDA_COMPUTE);
}

static void assert_same(const char *what, const float *on, const float *want, size_t n) {
    float *const got = fill_copy(want, n);
    card_read(got, on, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
            fail_msg("%s[%zu] of %zu is %.9g, not %.9g", what, i, n, (double)got[i],
                     (double)want[i]);
    }
    free(got);
}

/* ---- outer steps ----------------------------------------------------------------------------- */

typedef void outer_host(float *anchor, float *momentum, const float *delta, size_t n,
                        struct tw_outer rule);
typedef void outer_device(void *stream, const struct tw_cuda_outer *step);

static void check_outer(outer_host *host, outer_device *on_device, struct tw_outer rule) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s], bytes = n * sizeof(float);
        float *const anchor = fill_new(&rng, n, 1.0f), *const momentum = fill_new(&rng, n, 0.1f);
        float *const delta = fill_new(&rng, n, 0.3f);
        const struct tw_cuda_outer step = {.anchor = card_new(anchor, bytes),
                                           .momentum = card_new(momentum, bytes),
                                           .delta = card_new(delta, bytes),
                                           .n = n,
                                           .rule = rule};
        for (int times = 0; times < 2; times++) {
            host(anchor, momentum, delta, n, rule);
            on_device(stream(), &step);
            assert_same("anchor", step.anchor, anchor, n);
            assert_same("momentum", step.momentum, momentum, n);
        }
        assert_same("delta", step.delta, delta, n);
        card_free_all();
        free(anchor), free(momentum), free(delta);
    }
}

static void nesterov_has_the_bits_of_the_host(void **state) {
    check_outer(tw_outer_nesterov_ref, tw_cuda_outer_nesterov, tw_outer_at(700000, 900000, 0, 0));
    check_outer(tw_outer_nesterov_ref, tw_cuda_outer_nesterov, tw_outer_at(431000, 870000, 7, 3));
}

static void heavyball_has_the_bits_of_the_host(void **state) {
    struct tw_outer rule = tw_outer_at(431000, 510000, 0, 0);
    check_outer(tw_outer_heavyball_ref, tw_cuda_outer_heavyball, rule);
    rule.gain = 0.37f;
    rule.limit = 0.05f; /* clips values of both signs */
    check_outer(tw_outer_heavyball_ref, tw_cuda_outer_heavyball, rule);
}

/* ---- lead ------------------------------------------------------------------------------------ */

struct moments {
    float *m, *v, *delta;
};

static struct moments moments_new(struct tw_rng *rng, size_t n, float delta_size) {
    struct moments x = {fill_new(rng, n, 0.02f), fill_new(rng, n, 0.01f),
                        fill_new(rng, n, delta_size)};
    for (size_t i = 0; i < n; i++) {
        x.v[i] *= x.v[i];
        if (i % 11 == 5) x.v[i] = 0.0f;     /* as if AdamW had never updated it */
        if (i % 7 == 3) x.delta[i] = -0.0f; /* not sent */
    }
    return x;
}

static void check_lead(const struct moments *x, size_t n, const struct tw_momentum_lead *cfg,
                       float close) {
    const size_t bytes = n * sizeof(float);
    float *const got = fill_copy(x->m, n);
    const struct tw_cuda_lead lead = {.m = card_new(x->m, bytes),
                                      .v = card_new(x->v, bytes),
                                      .delta = card_new(x->delta, bytes),
                                      .n = n,
                                      .cfg = *cfg,
                                      .scratch = card_new(NULL, TW_CUDA_LEAD_SCRATCH)};
    tw_cuda_lead(stream(), &lead);
    tw_momentum_lead(x->m, x->v, x->delta, n, cfg);
    if (close == 0.0f) {
        assert_same("m", lead.m, x->m, n);
    } else {
        card_read(got, lead.m, bytes);
        for (size_t i = 0; i < n; i++)
            assert_true(fabsf(got[i] - x->m[i]) <= close * fabsf(x->m[i]) + 1e-9f);
    }
    assert_same("v", lead.v, x->v, n);
    assert_same("delta", lead.delta, x->delta, n);
    card_free_all();
    free(got), free(x->m), free(x->v), free(x->delta);
}

static void a_merge_leads_as_on_the_host(void **state) {
    const struct tw_momentum_lead cfg = {
        .share = 0.3f, .lr = 0.01f, .steps = 24, .correction2 = 0.4f};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        struct moments x = moments_new(&rng, n, 1e-3f);
        /* an m so large that the bound has no effect */
        x.m[0] = 5.0f, x.v[0] = 1e-4f, x.delta[0] = 1e-3f;
        check_lead(&x, n, &cfg, 0.0f);
        x = moments_new(&rng, n, 1e6f); /* here the bound by norms has an effect */
        check_lead(&x, n, &cfg, 1e-6f);
        x = moments_new(&rng, n, 1e6f); /* sparse: only the nonzero elements set the bound */
        for (size_t i = 1; i < n; i++)
            if (i % 64 != 0) x.delta[i] = 0.0f;
        check_lead(&x, n, &cfg, 1e-6f);
    }
}

static void a_merge_of_nothing_leads_nowhere(void **state) {
    const struct tw_momentum_lead cfg = {
        .share = 1.0f, .lr = 0.01f, .steps = 24, .correction2 = 0.4f};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    struct moments x = moments_new(&rng, 1000, 1.0f);
    memset(x.delta, 0, 1000 * sizeof(float));
    check_lead(&x, 1000, &cfg, 0.0f);
    x = moments_new(&rng, 1000, 1.0f);
    memset(x.v, 0, 1000 * sizeof(float));
    check_lead(&x, 1000, &cfg, 0.0f);
    x = moments_new(&rng, 1000, 1.0f);
    x.m[7] = INFINITY, x.v[7] = 1.0f;
    x.delta[3] = NAN, x.v[3] = 1.0f;
    check_lead(&x, 1000, &cfg, 0.0f);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static double sum_distances(const float *a, const float *b, size_t n) {
    double got;
    double *const sum = card_new(NULL, sizeof(got));
    tw_cuda_sum_distances(stream(), sum, card_new(a, n * sizeof(float)),
                          card_new(b, n * sizeof(float)), n, card_new(NULL, TW_CUDA_SUM_SCRATCH));
    card_read(&got, sum, sizeof(got));
    card_free_all();
    return got;
}

static void distances_are_those_of_the_host(void **state) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (size_t s = 0; s < SIZES; s++) {
        const size_t n = sizes[s];
        float *const a = fill_new(&rng, n, 1.0f), *const b = fill_copy(a, n);
        assert_true(sum_distances(a, b, n) == 0.0);
        for (size_t i = 0; i < n; i++) b[i] *= 1.001f;
        const double want = tw_distance_squared(a, b, n);
        assert_true(fabs(sum_distances(a, b, n) - want) <= 1e-12 * want);
        b[n / 2] = NAN;
        assert_true(isfinite(sum_distances(a, b, n)) == 0);
        free(a), free(b);
    }
}

int main(void) {
    if (!card_open()) return CARD_SKIPPED;
    print_message("seed %d\n", SEED);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesterov_has_the_bits_of_the_host),
        cmocka_unit_test(heavyball_has_the_bits_of_the_host),
        cmocka_unit_test(a_merge_leads_as_on_the_host),
        cmocka_unit_test(a_merge_of_nothing_leads_nowhere),
        cmocka_unit_test(distances_are_those_of_the_host),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tw_cuda_close(card);
    return failed;
}
