/* test_agreed.c - outer step, merge, mix and norms give the bits of their references, and the same
 * bits on every machine (fixed expected values). */
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outer.h"

#include "tests/kernels/fill.h"

enum { SEED = 99, N = 1037 };

TEST(outer_step_is_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *anchor = fill_new(&rng, N, 1.0f), *momentum = fill_new(&rng, N, 0.1f);
    float *delta = fill_new(&rng, N, 0.1f);
    float *anchor_want = fill_copy(anchor, N), *momentum_want = fill_copy(momentum, N);
    const struct tw_outer cfg = tw_outer_at(700000, 900000, 7, 3);
    tw_outer_nesterov(anchor, momentum, delta, N, cfg);
    tw_outer_nesterov_ref(anchor_want, momentum_want, delta, N, cfg);
    assert_memory_equal(anchor, anchor_want, N * sizeof(float));
    assert_memory_equal(momentum, momentum_want, N * sizeof(float));
    free(anchor), free(momentum), free(delta), free(anchor_want), free(momentum_want);
}

/* Worked by hand: with eta = 0.5, mu = 0.5, anchor = 1, u = 2 and delta = 0.25, the new u is 1.25,
 * and the new anchor 1 - 0.5 * (0.25 + 0.625). */
TEST(outer_step_is_right_by_hand) {
    float anchor = 1.0f, u = 2.0f;
    const float delta = 0.25f;
    tw_outer_nesterov(&anchor, &u, &delta, 1, (struct tw_outer){.lr = 0.5f, .momentum = 0.5f});
    assert_true(u == 1.25f);
    assert_true(anchor == 0.5625f);
}

TEST(momentum_rises_to_its_value_over_the_ramp) {
    assert_true(tw_outer_at(400000, 900000, 10, 0).momentum == 0.0f);
    assert_true(tw_outer_at(400000, 900000, 10, 5).momentum == 0.45f);
    assert_true(tw_outer_at(400000, 900000, 10, 10).momentum == 0.9f);
    assert_true(tw_outer_at(400000, 900000, 10, 11).momentum == 0.9f);
    assert_true(tw_outer_at(400000, 900000, 10, UINT64_MAX).momentum == 0.9f);
    assert_true(tw_outer_at(400000, 900000, 0, 0).momentum == 0.9f);
    assert_true(tw_outer_at(400000, 900000, UINT32_MAX, 1).momentum > 0.0f);
    assert_true(tw_outer_at(400000, 900000, 10, 5).lr == 0.4f);
}

/* Averaging is the outer step with eta = 1 and mu = 0: the anchor becomes the mean of the replicas.
 */
TEST(averaging_gives_the_mean_of_the_replicas) {
    const float theta[2] = {3.0f, 5.0f};
    float anchor = 1.0f, u = 0.0f, sum = 0.0f, weights[2], delta;
    tw_merge_weights_equal(weights, 2);
    for (int i = 0; i < 2; i++) {
        tw_delta(&delta, &anchor, &theta[i], 1);
        tw_merge_add(&sum, &delta, weights[i], 1);
    }
    tw_outer_nesterov(&anchor, &u, &sum, 1, tw_outer_at(1000000, 0, 0, 0));
    assert_true(anchor == 4.0f);
}

TEST(merge_is_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *sum = fill_new(&rng, N, 1.0f), *x = fill_new(&rng, N, 1.0f), *want = fill_copy(sum, N);
    tw_merge_add(sum, x, 0.3f, N);
    tw_merge_add_ref(want, x, 0.3f, N);
    assert_memory_equal(sum, want, N * sizeof(float));
    free(sum), free(x), free(want);
}

TEST(weights_are_shares_of_the_contributors) {
    float weights[4];
    const uint64_t tokens[] = {1000, 3000, 0, 4000}, none[] = {0, 0};
    tw_merge_weights_tokens(weights, tokens, 4);
    assert_true(weights[0] == 0.125f);
    assert_true(weights[1] == 0.375f);
    assert_true(weights[2] == 0.0f);
    assert_true(weights[3] == 0.5f);
    tw_merge_weights_tokens(weights, none, 2);
    assert_true(weights[0] == 0.5f && weights[1] == 0.5f);
    tw_merge_weights_equal(weights, 3);
    assert_true(weights[2] == (float)(1.0 / 3.0));
}

TEST(mix_shift_and_delta_are_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *theta = fill_new(&rng, N, 1.0f), *want = fill_copy(theta, N);
    float *old = fill_new(&rng, N, 1.0f), *new = fill_new(&rng, N, 1.0f);
    tw_mix(theta, new, 0.3f, N);
    tw_mix_ref(want, new, 0.3f, N);
    assert_memory_equal(theta, want, N * sizeof(float));
    tw_shift(theta, new, old, N);
    tw_shift_ref(want, new, old, N);
    assert_memory_equal(theta, want, N * sizeof(float));
    tw_delta(theta, new, old, N);
    tw_delta_ref(want, new, old, N);
    assert_memory_equal(theta, want, N * sizeof(float));
    tw_mix(theta, new, 0.0f, N);
    assert_memory_equal(theta, new, N * sizeof(float)); /* alpha 0 adopts the anchor */
    free(theta), free(want), free(old), free(new);
}

TEST(feedback_is_added_in_the_same_pass_bit_by_bit) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *v = fill_new(&rng, N, 1.0f), *v_want = fill_copy(v, N);
    float *delta = fill_new(&rng, N, 1.0f), *delta_want = fill_copy(delta, N);
    float *anchor = fill_new(&rng, N, 1.0f), *theta = fill_new(&rng, N, 1.0f);
    float *residual = fill_new(&rng, N, 1.0f);
    for (unsigned is_wanted = 0; is_wanted < 2; is_wanted++) {
        struct tw_delta d = {.v = v,
                             .delta = is_wanted ? delta : NULL,
                             .anchor = anchor,
                             .theta = theta,
                             .residual = residual,
                             .beta = 0.95f,
                             .n = N};
        tw_delta_feedback(&d);
        d.v = v_want;
        d.delta = is_wanted ? delta_want : NULL;
        tw_delta_feedback_ref(&d);
        assert_memory_equal(v, v_want, N * sizeof(float));
        assert_memory_equal(delta, delta_want, N * sizeof(float));
        for (size_t i = 0; i < N; i++) v[i] = v_want[i] = 7.0f;
    }
    tw_delta(v, anchor, theta, N);
    assert_memory_equal(delta, v, N * sizeof(float));
    free(v), free(v_want), free(delta), free(delta_want);
    free(anchor), free(theta), free(residual);
}

TEST(only_elements_left_out_are_regained) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *next = fill_new(&rng, N, 1.0f), *want = fill_copy(next, N), *old = fill_copy(next, N);
    float *merged = fill_new(&rng, N, 1.0f), *delta = fill_new(&rng, N, 1.0f);
    float *residual = fill_new(&rng, N, 1.0f);
    for (size_t i = 0; i < N; i++)
        if (i % 3 != 0) merged[i] = i % 2 == 0 ? 0.0f : -0.0f;
    struct tw_regain r = {next, merged, delta, residual, 0.95f, N};
    tw_regain(&r);
    r.next = want;
    tw_regain_ref(&r);
    assert_memory_equal(next, want, N * sizeof(float));
    for (size_t i = 0; i < N; i++)
        if (i % 3 == 0) assert_memory_equal(next + i, old + i, sizeof(float));
    assert_true(next[1] == delta[1] + 0.95f * residual[1]);
    free(next), free(want), free(old), free(merged), free(delta), free(residual);
}

TEST(norms_are_bit_exact_and_see_non_finite_values) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *a = fill_new(&rng, N, 1.0f), *b = fill_new(&rng, N, 1.0f);
    for (size_t n = N - 9; n <= N; n++) {
        assert_true(tw_norm_squared(a, n) == tw_norm_squared_ref(a, n));
        assert_true(tw_distance_squared(a, b, n) == tw_distance_squared_ref(a, b, n));
    }
    assert_true(tw_is_finite(a, N) && tw_is_finite_ref(a, N));
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 4; i++) {
        a[N - 1 - i] = bad[i];
        assert_false(tw_is_finite(a, N));
        assert_true(isfinite(tw_norm_squared(a, N)) == 0);
        a[N - 1 - i] = 3.4e38f;
        assert_true(tw_is_finite(a, N));
    }
    free(a), free(b);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
