/* Tests of kernels/outer.c. */
#include "tests/test.h"

#include <math.h>

#include "kernels/outer.h"

enum { N = 512 };

static float m[N], v[N], delta[N], before[N];

static void fill(float delta_size) {
    for (int i = 0; i < N; i++) {
        before[i] = m[i] = sinf((float)i) * 0.02f;
        v[i] = 1e-4f * (float)(1 + i % 7);
        delta[i] = cosf((float)i) * delta_size;
    }
}

static double step_norm(const float *moment, float correction2) {
    double sum = 0;
    for (int i = 0; i < N; i++)
        if (v[i] > 0) sum += (double)moment[i] * moment[i] / ((double)v[i] / correction2);
    return sqrt(sum);
}

TEST(moment_goes_where_the_merge_went) {
    const struct tw_momentum_lead cfg = {
        .share = 0.25f, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    fill(0.02f); /* steps of a tenth of lr, well below the node's own steps */
    tw_momentum_lead(m, v, delta, N, &cfg);
    for (int i = 0; i < N; i++) {
        const double led = sqrt((double)v[i] / 0.5) * delta[i] / (0.01 * 20);
        assert_true(fabs(m[i] - (0.75 * before[i] + 0.25 * led)) < 1e-7);
    }
}

TEST(merge_never_leads_by_more_than_the_node_went) {
    const struct tw_momentum_lead cfg = {.share = 1, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    fill(1e6f);
    const double own = step_norm(before, cfg.correction2);
    tw_momentum_lead(m, v, delta, N, &cfg);
    assert_true(fabs(step_norm(m, cfg.correction2) / own - 1) < 1e-4);
}

/* A sparse merge is bounded by the part of m that it replaces, not by all of m. */
TEST(sparse_merge_never_leads_by_more_than_the_node_went_there) {
    const struct tw_momentum_lead cfg = {.share = 1, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    for (int every = 1; every <= 64; every *= 4) {
        double own = 0, led = 0;
        fill(1e6f);
        for (int i = 0; i < N; i++)
            if (i % every != 0) delta[i] = 0;
        tw_momentum_lead(m, v, delta, N, &cfg);
        for (int i = 0; i < N; i += every) {
            own += (double)before[i] * before[i] / (double)v[i];
            led += (double)m[i] * m[i] / (double)v[i];
        }
        assert_true(fabs(sqrt(led / own) - 1) < 1e-4);
    }
}

TEST(elements_adamw_never_updated_stay) {
    const struct tw_momentum_lead cfg = {.share = 1, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    fill(0.02f);
    for (int i = 0; i < N; i += 2) v[i] = 0;
    tw_momentum_lead(m, v, delta, N, &cfg);
    for (int i = 0; i < N; i++) assert_int_equal(m[i] == before[i], i % 2 == 0);
}

TEST(elements_that_were_not_sent_stay) {
    const struct tw_momentum_lead cfg = {.share = 1, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    fill(0.02f);
    for (int i = 0; i < N; i += 4) delta[i] = 0;
    tw_momentum_lead(m, v, delta, N, &cfg);
    for (int i = 0; i < N; i++) assert_int_equal(m[i] == before[i], i % 4 == 0);
}

TEST(nonsense_leads_nowhere) {
    const struct tw_momentum_lead cfg = {.share = 1, .lr = 0.01f, .steps = 20, .correction2 = 0.5f};
    fill(0.02f);
    for (int i = 0; i < N; i++) before[i] = m[i] = 0; /* so the bound is 0 */
    tw_momentum_lead(m, v, delta, N, &cfg);
    for (int i = 0; i < N; i++) assert_true(m[i] == 0);
    fill(0.02f);
    delta[7] = NAN;
    tw_momentum_lead(m, v, delta, N, &cfg);
    assert_memory_equal(m, before, sizeof(m));
}
