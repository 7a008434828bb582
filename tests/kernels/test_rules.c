/* test_rules.c - outer steps, merges, weights and guard have the bits of their references, the
 * values of NumPy (tests/golden/rules.txt), and the intended effects. */
#include "kernels/merge.h"
#include "kernels/norm.h"
#include "kernels/outer.h"
#include "kernels/outlier.h"

#include "tests/kernels/fill.h"

enum { SEED = 7, N = 1037, COUNT_MAX = 64, GOLDEN_N = 40, GOLDEN_STEPS = 6 };

static const char *golden_path;

/* ---- NumPy ----------------------------------------------------------------------------------- */

/* The same pseudo-random numbers as in make_rules.py. */
static void noise(float x[GOLDEN_N], uint32_t stream) {
    for (uint32_t i = 0; i < GOLDEN_N; i++) {
        uint32_t h = stream * 1000003u + i * 2654435761u;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        x[i] = (float)(h >> 8) / 16777216.0f - 0.5f;
    }
}

static float golden_rows[COUNT_MAX][GOLDEN_N];

static const float *const *golden_inputs(uint32_t count, uint32_t loud) {
    static const float *x[COUNT_MAX];
    float common[GOLDEN_N];
    noise(common, 100 * count);
    for (uint32_t i = 0; i < count; i++) {
        noise(golden_rows[i], 100 * count + 1 + i);
        for (uint32_t j = 0; j < GOLDEN_N; j++) {
            const float value = common[j] + golden_rows[i][j] / 2;
            golden_rows[i][j] = i < loud ? -32 * value : value;
        }
        x[i] = golden_rows[i];
    }
    return x;
}

static uint32_t millionths(double value) {
    return (uint32_t)lround(value * 1e6);
}

static uint32_t heavyball_run(const double *args, float *out) {
    float *phi = out, *u = out + GOLDEN_N, delta[GOLDEN_N];
    noise(phi, 1);
    for (uint32_t i = 0; i < GOLDEN_N; i++) u[i] = 0;
    for (uint32_t step = 0; step < GOLDEN_STEPS; step++) {
        noise(delta, 10 + step);
        if (step % 2 == 1) tw_scale(delta, 0.25f, GOLDEN_N);
        const struct tw_outer_sizes sizes = {tw_norm_squared(u, GOLDEN_N),
                                             tw_norm_squared(delta, GOLDEN_N), GOLDEN_N};
        const struct tw_outer plain = tw_outer_at(millionths(args[0]), millionths(args[1]), 0, 0);
        tw_outer_heavyball(
            phi, u, delta, GOLDEN_N,
            tw_outer_temper(plain, millionths(args[2]), millionths(args[3]), &sizes));
    }
    return 2 * GOLDEN_N;
}

static uint32_t nesterov_run(const double *args, float *out) {
    float *phi = out, *u = out + GOLDEN_N, delta[GOLDEN_N];
    noise(phi, 2);
    for (uint32_t i = 0; i < GOLDEN_N; i++) u[i] = 0;
    for (uint32_t step = 0; step < GOLDEN_STEPS; step++) {
        noise(delta, 20 + step);
        if (step % 2 == 1) tw_scale(delta, 0.25f, GOLDEN_N);
        tw_outer_nesterov(
            phi, u, delta, GOLDEN_N,
            tw_outer_at(millionths(args[0]), millionths(args[1]), (uint32_t)args[2], step));
    }
    return 2 * GOLDEN_N;
}

static uint32_t pull_run(const double *args, float *out) {
    float own[GOLDEN_N], theirs[GOLDEN_N];
    noise(out, 30);
    noise(out + GOLDEN_N, 31);
    noise(own, 32);
    noise(theirs, 33);
    tw_outer_pull(out, out + GOLDEN_N, own, theirs, (float)args[0], GOLDEN_N);
    return 2 * GOLDEN_N;
}

static uint32_t mix_run(const double *args, float *out) {
    float anchor[GOLDEN_N];
    noise(out, 40);
    noise(anchor, 41);
    tw_mix(out, anchor, (float)args[0], GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t shift_run(const double *args, float *out) {
    float anchor_new[GOLDEN_N], anchor_old[GOLDEN_N];
    noise(out, 42);
    noise(anchor_new, 43);
    noise(anchor_old, 44);
    tw_shift(out, anchor_new, anchor_old, GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t delta_run(const double *args, float *out) {
    float anchor[GOLDEN_N], theta[GOLDEN_N];
    noise(anchor, 40);
    noise(theta, 41);
    tw_delta(out, anchor, theta, GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t lead_run(const double *args, float *out) {
    float v[GOLDEN_N], delta[GOLDEN_N];
    const struct tw_momentum_lead cfg = {(float)args[0], (float)args[1], (float)args[2],
                                         (float)args[3]};
    noise(out, 50);
    noise(v, 51);
    noise(delta, 52);
    for (uint32_t i = 0; i < GOLDEN_N; i++) {
        out[i] /= 16;
        v[i] = i % 7 == 3 ? 0 : v[i] * v[i];
        delta[i] = i % 5 == 2 ? 0 : delta[i] / 8;
    }
    tw_momentum_lead(out, v, delta, GOLDEN_N, &cfg);
    return GOLDEN_N;
}

static void mean_weights(float weights[COUNT_MAX], uint32_t count) {
    uint64_t tokens[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) tokens[i] = 1000 + 300 * i;
    tw_merge_weights_tokens(weights, tokens, count);
}

static uint32_t mean_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    const float *const *x = golden_inputs(count, (uint32_t)args[1]);
    float weights[COUNT_MAX];
    mean_weights(weights, count);
    for (uint32_t j = 0; j < GOLDEN_N; j++) out[j] = 0;
    for (uint32_t i = 0; i < count; i++) tw_merge_add(out, x[i], weights[i], GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t rda_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    const float *const *x = golden_inputs(count, (uint32_t)args[1]);
    float direction[GOLDEN_N] = {0}, weights[COUNT_MAX];
    double rho = 0;
    mean_weights(weights, count);
    for (uint32_t j = 0; j < GOLDEN_N; j++) out[j] = 0;
    for (uint32_t i = 0; i < count; i++) {
        tw_merge_add(out, x[i], weights[i], GOLDEN_N);
        tw_rda_add(direction, &rho, x[i], weights[i], GOLDEN_N);
    }
    tw_rda_finish(out, direction, rho, GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t median_run(const double *args, float *out) {
    tw_robust_median(out, golden_inputs((uint32_t)args[0], (uint32_t)args[1]), (uint32_t)args[0],
                     GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t trimmed_run(const double *args, float *out) {
    tw_robust_trimmed(out, golden_inputs((uint32_t)args[0], (uint32_t)args[1]), (uint32_t)args[0],
                      GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t clipped_run(const double *args, float *out) {
    tw_robust_clipped(out, golden_inputs((uint32_t)args[0], (uint32_t)args[1]), (uint32_t)args[0],
                      GOLDEN_N);
    return GOLDEN_N;
}

static uint32_t tokens_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    uint64_t tokens[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) tokens[i] = (uint64_t)args[1 + i];
    tw_merge_weights_tokens(out, tokens, count);
    return count;
}

static uint32_t rates_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    uint64_t tokens[COUNT_MAX];
    uint32_t steps[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (uint64_t)args[1 + i];
        steps[i] = (uint32_t)args[1 + count + i];
    }
    tw_merge_weights_rate(out, tokens, steps, count);
    return count;
}

static uint32_t bound_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    for (uint32_t i = 0; i < count; i++) out[i] = (float)args[1 + i];
    tw_merge_weights_bound(out, count);
    return count;
}

static uint32_t guard_run(const double *args, float *out) {
    const uint32_t count = (uint32_t)args[0];
    uint32_t steps[COUNT_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) steps[i] = (uint32_t)args[1 + count + i];
    const uint64_t refused = tw_guard(out, args + 1, steps, count);
    for (uint32_t i = 0; i < count; i++) assert_int_equal(refused >> i & 1, out[i] == 0.0f);
    return count;
}

/* Computes the values of a case in C. Returns their number. */
static uint32_t golden_run(const char *kind, const double *args, float *out) {
    static const struct {
        const char *kind;
        uint32_t (*run)(const double *args, float *out);
    } rules[] = {
        {"nesterov", nesterov_run}, {"heavyball", heavyball_run}, {"pull", pull_run},
        {"mix", mix_run},           {"shift", shift_run},         {"delta", delta_run},
        {"lead", lead_run},         {"mean", mean_run},           {"rda", rda_run},
        {"median", median_run},     {"trimmed", trimmed_run},     {"clipped", clipped_run},
        {"tokens", tokens_run},     {"rates", rates_run},         {"bound", bound_run},
        {"guard", guard_run},
    };
    for (uint32_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strcmp(kind, rules[i].kind) == 0) return rules[i].run(args, out);
    }
    fail_msg("%s: a case nobody knows", kind);
    return 0;
}

TEST(rules_match_numpy) {
    char line[4096];
    uint32_t cases = 0;
    FILE *const file = fopen(golden_path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        char kind[16];
        double args[2 * COUNT_MAX + 1] = {0};
        int at = 0, size = 0, given = 0;
        float got[2 * GOLDEN_N], want[2 * GOLDEN_N];
        if (line[0] == '#') continue;
        assert_int_equal(sscanf(line, "%15s%n", kind, &at), 1);
        while (sscanf(line + at, "%lf%n", &args[given], &size) == 1) at += size, given++;
        const uint32_t n = golden_run(kind, args, got);
        uint32_t values;
        assert_int_equal(fscanf(file, "%u", &values), 1);
        assert_int_equal(values, n);
        for (uint32_t i = 0; i < n; i++) assert_int_equal(fscanf(file, "%f ", &want[i]), 1);
        fill_assert_near(kind, got, want, n, 1e-6);
        cases++;
    }
    (void)fclose(file);
    assert_int_equal(cases, 63);
}

/* ---- the same bits --------------------------------------------------------------------------- */

TEST(heavyball_is_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *anchor = fill_new(&rng, N, 1.0f), *u = fill_new(&rng, N, 0.1f);
    float *delta = fill_new(&rng, N, 0.1f);
    float *anchor_want = fill_copy(anchor, N), *u_want = fill_copy(u, N);
    struct tw_outer cfg = tw_outer_at(700000, 900000, 7, 3);
    for (unsigned pass = 0; pass < 2; pass++) {
        tw_outer_heavyball(anchor, u, delta, N, cfg);
        tw_outer_heavyball_ref(anchor_want, u_want, delta, N, cfg);
        assert_memory_equal(anchor, anchor_want, N * sizeof(float));
        assert_memory_equal(u, u_want, N * sizeof(float));
        cfg.gain = 0.3f;
        cfg.limit = 0.05f;
    }
    free(anchor), free(u), free(delta), free(anchor_want), free(u_want);
}

TEST(pull_is_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    float *anchor = fill_new(&rng, N, 1.0f), *u = fill_new(&rng, N, 0.1f);
    float *own = fill_new(&rng, N, 0.1f), *theirs = fill_new(&rng, N, 0.1f);
    float *anchor_want = fill_copy(anchor, N), *u_want = fill_copy(u, N);
    tw_outer_pull(anchor, u, own, theirs, 0.35f, N);
    tw_outer_pull_ref(anchor_want, u_want, own, theirs, 0.35f, N);
    assert_memory_equal(anchor, anchor_want, N * sizeof(float));
    assert_memory_equal(u, u_want, N * sizeof(float));
    free(anchor), free(u), free(own), free(theirs), free(anchor_want), free(u_want);
}

/* With gamma = 1, the anchors of a pair meet in the middle, and their sum is preserved. */
TEST(pull_is_right_by_hand) {
    float a = 1.0f, b = 5.0f, u = 0.25f, v = 0.25f;
    const float own_a = a, own_b = b;
    tw_outer_pull(&a, &u, &own_a, &own_b, 0.5f, 1);
    tw_outer_pull(&b, &v, &own_b, &own_a, 0.5f, 1);
    assert_true(a == 3.0f && b == 3.0f);
    assert_true(u == -1.75f && v == 2.25f);
}

/* Makes `count` inputs of n elements. Some inputs are equal, and some coordinates are zero. */
static const float *const *fill_inputs(struct tw_rng *rng, uint32_t count, size_t n) {
    static const float *x[COUNT_MAX];
    for (uint32_t i = 0; i < count; i++) {
        float *row = fill_new(rng, n, i % 7 == 3 ? 100.0f : 1.0f);
        for (size_t j = i % 5; j < n; j += 5) row[j] = i % 2 == 0 ? 0.0f : -0.0f;
        if (i % 11 == 10) memcpy(row, x[i - 1], n * sizeof(float));
        x[i] = row;
    }
    return x;
}

static void free_inputs(const float *const *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) free((void *)(uintptr_t)x[i]);
}

TEST(robust_merges_are_bit_exact) {
    typedef void merge(float *, const float *const *, uint32_t, size_t);
    static merge *const fast[] = {tw_robust_median, tw_robust_trimmed, tw_robust_clipped};
    static merge *const plain[] = {tw_robust_median_ref, tw_robust_trimmed_ref,
                                   tw_robust_clipped_ref};
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (uint32_t count = 1; count <= COUNT_MAX; count++) {
        const size_t n = 33 + count % 16;
        const float *const *x = fill_inputs(&rng, count, n);
        float got[64], want[64];
        for (unsigned k = 0; k < 3; k++) {
            fast[k](got, x, count, n);
            plain[k](want, x, count, n);
            assert_memory_equal(got, want, n * sizeof(float));
        }
        free_inputs(x, count);
    }
}

TEST(rda_is_bit_exact) {
    struct tw_rng rng;
    tw_rng_seed(&rng, SEED);
    for (uint32_t count = 1; count <= 9; count++) {
        const float *const *x = fill_inputs(&rng, count, N);
        float *mean = calloc(N, sizeof(float)), *direction = calloc(N, sizeof(float)), want[N];
        float weights[COUNT_MAX];
        uint64_t tokens[COUNT_MAX];
        double rho = 0;
        for (uint32_t i = 0; i < count; i++) tokens[i] = 5 + i * i;
        tw_merge_weights_tokens(weights, tokens, count);
        for (uint32_t i = 0; i < count; i++) {
            tw_merge_add(mean, x[i], weights[i], N);
            tw_rda_add(direction, &rho, x[i], weights[i], N);
        }
        tw_rda_finish(mean, direction, rho, N);
        tw_rda_ref(want, x, weights, count, N);
        assert_memory_equal(mean, want, N * sizeof(float));
        free(mean), free(direction);
        free_inputs(x, count);
    }
}

/* ---- purposes ------------
 * ----------------------------------------------------------------------- */

/* Worked by hand: with eta = 0.5 and mu = 0.5, u = 0.5 * 2 + 0.5 * 0.25 = 1.125, and anchor = 1 -
 * 1.125. */
TEST(heavyball_is_right_by_hand) {
    float anchor = 1.0f, u = 2.0f;
    const float delta = 0.25f;
    tw_outer_heavyball(&anchor, &u, &delta, 1, tw_outer_at(500000, 500000, 0, 0));
    assert_true(u == 1.125f);
    assert_true(anchor == -0.125f);
}

TEST(usual_move_of_the_anchor_halves_a_late_delta) {
    const struct tw_outer plain = tw_outer_at(500000, 750000, 0, 0);
    /* A delta of norm 3 gives a steady u of norm 0.5 * 3 / (1 - 0.75) = 6. */
    struct tw_outer_sizes sizes = {.u_squared = 36, .delta_squared = 9, .count = 4};
    assert_true(tw_outer_temper(plain, 1000000, 0, &sizes).gain == 0.5f);
    assert_true(tw_outer_temper(plain, 2000000, 0, &sizes).gain == (float)(1.0 / 3.0));
    assert_true(tw_outer_temper(plain, 0, 0, &sizes).gain == 1.0f);
    assert_true(tw_outer_temper(plain, 0, 0, &sizes).limit == INFINITY);
    /* The rms of delta is 1.5, so that of a steady u is 3. */
    assert_true(tw_outer_temper(plain, 0, 2000000, &sizes).limit == 6.0f);
    sizes.u_squared = 0;
    assert_true(tw_outer_temper(plain, 1000000, 0, &sizes).gain == 1.0f);
    sizes = (struct tw_outer_sizes){.u_squared = 36, .count = 4};
    assert_true(tw_outer_temper(plain, 1000000, 0, &sizes).gain == 1.0f);
    sizes = (struct tw_outer_sizes){.u_squared = 0};
    assert_true(tw_outer_temper(plain, 1000000, 1000000, &sizes).limit == INFINITY);
}

/* Gradient descent on a quadratic, with gradients one outer step old. The step is too large for
 * that, so phi oscillates with growing amplitude. Returns the distance after 300 outer steps. */
static double swing(uint32_t gap_millionths, uint32_t clip_millionths) {
    enum { AXES = 8, ROUNDS = 300 };
    float phi[AXES], u[AXES] = {0}, late[AXES] = {0}, delta[AXES];
    for (unsigned i = 0; i < AXES; i++) phi[i] = 1.0f;
    for (int step = 0; step < ROUNDS; step++) {
        memcpy(delta, late, sizeof(delta));
        for (unsigned i = 0; i < AXES; i++) late[i] = phi[i] * (float)(i + 1) / AXES;
        const struct tw_outer_sizes sizes = {tw_norm_squared(u, AXES), tw_norm_squared(delta, AXES),
                                             AXES};
        const struct tw_outer plain = tw_outer_at(600000, 500000, 0, 0);
        tw_outer_heavyball(phi, u, delta, AXES,
                           tw_outer_temper(plain, gap_millionths, clip_millionths, &sizes));
    }
    return sqrt(tw_norm_squared(phi, AXES));
}

TEST(penalty_and_clip_each_keep_stale_steps_stable) {
    const double neither = swing(0, 0), penalty = swing(1000000, 0), clip = swing(0, 250000);
    print_message("from %.1f to %.2g, with the penalty to %.2g, with the clip to %.2g\n", sqrt(8),
                  neither, penalty, clip);
    assert_true(neither > 1e5);
    assert_true(penalty < 1e-5);
    assert_true(clip < 0.1);
    assert_true(swing(0, 3000000) > 1e4); /* a clip this wide has no effect */
}

TEST(momentum_is_clipped_on_both_sides) {
    float anchor[2] = {0, 0}, u[2] = {8, -8};
    const float delta[2] = {0, 0};
    struct tw_outer cfg = tw_outer_at(1000000, 500000, 0, 0);
    cfg.limit = 3.0f;
    tw_outer_heavyball(anchor, u, delta, 2, cfg);
    assert_true(u[0] == 3.0f && u[1] == -3.0f);
    assert_true(anchor[0] == -3.0f && anchor[1] == 3.0f);
}

static void rda_of_two(const float *a, const float *b, float out[2]) {
    float direction[2] = {0}, want[2];
    const float half[] = {0.5f, 0.5f};
    double rho = 0;
    out[0] = (a[0] + b[0]) / 2;
    out[1] = (a[1] + b[1]) / 2;
    tw_rda_add(direction, &rho, a, 0.5f, 2);
    tw_rda_add(direction, &rho, b, 0.5f, 2);
    tw_rda_finish(out, direction, rho, 2);
    tw_rda_ref(want, (const float *[]){a, b}, half, 2, 2);
    assert_memory_equal(out, want, sizeof(want));
}

TEST(rda_keeps_the_length_of_its_inputs) {
    const float east[2] = {3, 0}, north[2] = {0, 3}, west[2] = {-3, 0}, nowhere[2] = {0, 0};
    const float back[2] = {-3, 0.03f};
    float out[2];
    rda_of_two(east, north, out);
    assert_true(fabsf(out[0] - 3 / sqrtf(2)) < 1e-6f && fabsf(out[1] - 3 / sqrtf(2)) < 1e-6f);
    rda_of_two(east, back, out);
    assert_true(out[0] == 0 && out[1] == 0.015f); /* nearly opposite inputs: the mean */
    rda_of_two(east, west, out);
    assert_true(out[0] == 0 && out[1] == 0); /* opposite inputs: the mean */
    rda_of_two(east, nowhere, out);
    assert_true(out[0] == 1.5f && out[1] == 0); /* a zero input halves the length only */
}

TEST(few_liars_do_not_move_robust_merges) {
    float rows[8], median, trimmed, clipped;
    const float *x[8];
    for (unsigned i = 0; i < 8; i++) {
        rows[i] = i < 2 ? -1e6f : 1.0f + 0.01f * (float)i;
        x[i] = &rows[i];
    }
    tw_robust_median(&median, x, 8, 1);
    tw_robust_trimmed(&trimmed, x, 8, 1);
    tw_robust_clipped(&clipped, x, 8, 1);
    assert_true(fabsf(median - 1.04f) < 0.05f);
    assert_true(fabsf(trimmed - 1.04f) < 0.05f);
    assert_true(fabsf(clipped - 1.04f) < 0.05f);
}

TEST(rates_favour_contributors_that_did_more) {
    float weights[3];
    tw_merge_weights_rate(weights, (const uint64_t[]){100, 100, 200}, (const uint32_t[]){1, 2, 2},
                          3);
    assert_true(weights[0] == (float)(10000.0 / 35000.0)); /* larger batches weigh more */
    assert_true(weights[1] == (float)(5000.0 / 35000.0));
    assert_true(weights[2] == (float)(20000.0 / 35000.0));
    tw_merge_weights_rate(weights, (const uint64_t[]){0, 0}, (const uint32_t[]){0, 0}, 2);
    assert_true(weights[0] == 0.5f && weights[1] == 0.5f);
    tw_merge_weights_rate(weights, (const uint64_t[]){7, 7}, (const uint32_t[]){0, 1}, 2);
    assert_true(weights[0] == 0.5f);
}

TEST(claims_weigh_four_times_the_usual_at_most) {
    float weights[3];
    tw_merge_weights_tokens(weights, (const uint64_t[]){100, 100, UINT64_C(1) << 40}, 3);
    tw_merge_weights_bound(weights, 3);
    assert_true(weights[0] == weights[1]);
    assert_true(weights[2] == (float)(4.0 / 6.0));
    tw_merge_weights_tokens(weights, (const uint64_t[]){100, 300, 200}, 3);
    const float before = weights[1];
    tw_merge_weights_bound(weights, 3);
    assert_true(weights[1] == before);
    tw_merge_weights_tokens(weights, (const uint64_t[]){1, 1000}, 2);
    tw_merge_weights_bound(weights, 2);
    assert_true(weights[1] == (float)(16.0 / 17.0));
    tw_merge_weights_tokens(weights, (const uint64_t[]){10, 150}, 2);
    const float large = weights[1];
    tw_merge_weights_bound(weights, 2);
    assert_true(weights[1] == large);
}

/* Scaling depends only on the contributions that are merged, because an audit knows no others. */
TEST(factors_are_those_of_the_merged_alone) {
    const uint32_t same[] = {10, 10, 10, 10, 10};
    const double norms[] = {1, 1.2, 3.4, 1.1, 90};
    float factors[5], again[4];
    assert_int_equal(tw_guard(factors, norms, same, 5), 1 << 4);
    tw_guard_scale(again, norms, same, 4);
    for (unsigned i = 0; i < 4; i++) assert_true(factors[i] == again[i]);
    /* limit: twice the lower median of 1, 1.1, 1.2, 3.4 */
    assert_true(factors[2] == (float)(2.2 / 3.4));
}

TEST(guard_knows_liars_from_fast_nodes) {
    float factors[5];
    const uint32_t same[] = {10, 10, 10, 10, 10}, fast[] = {10, 10, 10, 10, 250};
    const double liar[] = {1, 1, 1, 1, 9};
    assert_int_equal(tw_guard(factors, liar, same, 5), 1 << 4);
    assert_true(factors[4] == 0.0f && factors[0] == 1.0f);
    /* 25 times the steps count as 4 times: a size of up to 2 * sqrt(4) = 4 is usual. */
    assert_int_equal(tw_guard(factors, liar, fast, 5), 0);
    assert_true(factors[4] == (float)(2.0 / 4.5));
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 3, 1, 1}, same, 5), 0);
    assert_true(factors[2] == (float)(2.0 / 3.0));
    /* If 32 steps all went the same way, the norm is 32 times that of one step. Such a contribution
     * is scaled, like a liar's. */
    const uint32_t slept[] = {1, 1, 32};
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 32}, slept, 3), 0);
    assert_true(factors[2] == 0.125f); /* limit: 2 * sqrt(4) = 4 times the usual norm */
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 33}, slept, 3), 1 << 2);
    /* A false number of steps gains as little. Of 64 times the usual steps, 15 times the norm was
     * once merged in full: one liar of eight ruined a model with that. */
    const uint32_t claimed[] = {10, 10, UINT32_MAX}, liars[] = {10, 10, 640};
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 20}, claimed, 3), 0);
    assert_true(factors[2] == 0.2f);
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 15}, liars, 3), 0);
    assert_true(factors[2] == (float)(2 / 7.5));
    assert_int_equal(tw_guard(factors, (const double[]){1, 1, 33}, claimed, 3), 1 << 2);
    assert_int_equal(tw_guard(factors, (const double[]){1, 100}, same, 2), 0);
    assert_true(factors[1] == 1.0f);
    /* If most sizes are 0, only 0 is usual. If half of them are, neither half is refused. */
    assert_int_equal(tw_guard(factors, (const double[]){0, 0, 5}, same, 3), 1 << 2);
    assert_true(factors[2] == 0.0f && factors[0] == 1.0f);
    assert_int_equal(tw_guard(factors, (const double[]){0, 5, 5, 0}, same, 4), 0);
    /* Rounding errors count as 0, so they do not exclude a node. */
    assert_int_equal(tw_guard(factors, (const double[]){0, 3e-11, 0}, same, 3), 0);
    assert_true(factors[1] == 1.0f);
    assert_int_equal(tw_guard(factors, (const double[]){3e-11, 2e-9, 5}, same, 3), 1 << 2);
    assert_int_equal(tw_guard(factors, (const double[]){0, 0, 0}, same, 3), 0);
    assert_true(factors[1] == 1.0f);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    golden_path = argv[1];
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
