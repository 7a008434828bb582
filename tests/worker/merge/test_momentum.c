/* Tests of worker/merge/anchor.c, and of the momentum of each type from merge to joiner. */
#include "tests/test.h"

#include <math.h>

#include "kernels/outer.h"
#include "tests/worker/merge/two_nodes.h"
#include "worker/merge/anchor.h"

#define FACT(name) TEST_IN(open_two, close_two, name)

static void open_type(enum tw_momentum_type type, enum tw_outer_rule rule,
                      uint32_t momentum_millionths) {
    struct tw_run run;
    (void)close_two(NULL);
    run_with(&run, momentum_millionths, TW_CODEC_INT8);
    run.sync.outer = rule;
    run.sync.momentum_type = type;
    for (uint64_t i = 0; i < 2; i++) node_open(&nodes[i], i + 1, &run);
}

/* Merges fragment 1 `count` times. Both nodes must get the same bits each time. */
static void merge_often(uint64_t count) {
    for (uint64_t r = 0; r < count; r++) {
        struct round round = {.round = 1 + 3 * r, .fragment = 1};
        struct tw_wmsg_applied replies[2];
        for (int i = 0; i < 2; i++) node_step(&nodes[i], 3);
        round_merge(&round);
        for (int i = 0; i < 2; i++) {
            const struct tw_wmsg_apply request = round_apply(&round, i, TW_APPLY_MIX);
            assert_int_equal(tw_anchor_apply(&nodes[i].merger, &request, &replies[i], &err), TW_OK);
        }
        assert_memory_equal(&replies[0].digest, &replies[1].digest, sizeof(struct tw_id));
        check_digest(&nodes[0], 1);
    }
}

/* With momentum 0 no step reads u: leaving it out changes no bit of phi. */
FACT(rule_without_momentum_keeps_none) {
    for (int rule = TW_OUTER_NESTEROV; rule <= TW_OUTER_HEAVYBALL; rule++) {
        open_type(TW_MOMENTUM_TYPE_FLOAT32, (enum tw_outer_rule)rule, 0);
        merge_often(5);
        const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, 1);
        const uint64_t with_u = nodes[0].dae.shm.geometry.bytes;
        float *const kept = malloc(n * sizeof(float));
        memcpy(kept, view_of(&nodes[0], 1).phi, n * sizeof(float));
        open_type(TW_MOMENTUM_TYPE_AUTO, (enum tw_outer_rule)rule, 0);
        assert_int_equal(nodes[0].dae.shm.momentum, TW_MOMENTUM_NONE);
        assert_true(nodes[0].dae.shm.geometry.bytes < with_u);
        assert_true(nodes[0].dae.shm.geometry.u == nodes[0].dae.shm.geometry.spare_phi);
        merge_often(5);
        assert_memory_equal(kept, view_of(&nodes[0], 1).phi, n * sizeof(float));
        free(kept);
    }
}

static double wide(const void *u, size_t i) {
    const uint32_t bits = (uint32_t)((const uint16_t *)u)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* u in bf16 stays within its rounding of u in float32, and is the same at both nodes. */
FACT(momentum_in_bf16_stays_near) {
    enum { ROUNDS = 8 };
    for (int rule = TW_OUTER_NESTEROV; rule <= TW_OUTER_HEAVYBALL; rule++) {
        open_type(TW_MOMENTUM_TYPE_AUTO, (enum tw_outer_rule)rule, 800000);
        merge_often(1);
        const size_t n = (size_t)tw_shm_fragment_elements(&nodes[0].dae.shm, 1);
        float *const u = malloc(n * sizeof(float));
        memcpy(u, view_of(&nodes[0], 1).u, n * sizeof(float));
        open_type(TW_MOMENTUM_TYPE_BF16, (enum tw_outer_rule)rule, 800000);
        merge_often(1);
        double most = 0;
        for (size_t i = 0; i < n; i++) {
            const double apart = fabs(wide(view_of(&nodes[0], 1).u, i) - (double)u[i]);
            assert_true(apart <= fabs((double)u[i]) / 256);
            most = fmax(most, apart);
        }
        assert_true(most > 0);
        free(u);
        merge_often(ROUNDS);
    }
}

/* A joiner gets (phi, u) to the bit, with each type of u. */
FACT(momentum_of_each_type_is_handed_on) {
    static const enum tw_momentum_type types[] = {TW_MOMENTUM_TYPE_FLOAT32, TW_MOMENTUM_TYPE_BF16,
                                                  TW_MOMENTUM_TYPE_AUTO};
    uint32_t bytes[3];
    for (int i = 0; i < 3; i++) {
        struct tw_wmsg_applied reply;
        open_type(types[i], TW_OUTER_NESTEROV, types[i] == TW_MOMENTUM_TYPE_AUTO ? 0 : 900000);
        merge_often(6);
        const struct tw_wmsg_solo solo = {.round = 90, .fragment = 1};
        const struct tw_wmsg_load load = exported(1, TW_LOAD_RESET);
        bytes[i] = load.in.bytes;
        assert_int_equal(tw_anchor_solo(&nodes[1].merger, &solo, &reply, &err), TW_OK);
        check_digest(&nodes[1], 1);
        assert_int_equal(tw_anchor_load(&nodes[1].merger, &load, &reply, &err), TW_OK);
        const struct tw_shm_view a = view_of(&nodes[0], 1), b = view_of(&nodes[1], 1);
        const enum tw_momentum momentum = nodes[0].dae.shm.momentum;
        assert_memory_equal(a.phi, b.phi, a.elements * sizeof(float));
        if (momentum != TW_MOMENTUM_NONE)
            assert_memory_equal(a.u, b.u, a.elements * tw_momentum_bytes(momentum));
        assert_memory_equal(&a.state, &b.state, sizeof(a.state));
        if (momentum == TW_MOMENTUM_NONE) continue;
        ((uint8_t *)(uintptr_t)b.u)[a.elements * tw_momentum_bytes(momentum) - 1] ^= 1;
        const struct tw_id other = tw_shm_digest(b.phi, b.u, b.elements, momentum);
        assert_false(tw_id_equal(&other, &b.state.digest)); /* digests cover all of u */
    }
    print_message("packed: %u bytes with float32, %u with bf16, %u without\n", bytes[0], bytes[1],
                  bytes[2]);
    assert_true(bytes[2] < bytes[1]);
    assert_true(bytes[1] < bytes[0]);
}

/* Rounds to nearest, ties to even, in double: 8 bits of fraction. */
static float rounded(float x) {
    int exponent;
    const double fraction = frexp((double)x, &exponent);
    return (float)ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

enum { N = 5000, BEGIN = 16 };

/* Every element of a range takes its step in float32; u is then rounded, and the rest stays. */
TEST(step_in_bf16_is_the_formula) {
    static float phi[N], delta[N], own[N], theirs[N];
    static uint16_t u[N];
    const struct tw_outer rule = {.lr = 0.7f, .momentum = 0.9f, .gain = 0.5f, .limit = 0.3f};
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < N; i++) {
            phi[i] = sinf((float)i), delta[i] = cosf(3 * (float)i) / 3;
            own[i] = sinf(5 * (float)i), theirs[i] = sinf(7 * (float)i);
            u[i] = (uint16_t)(0x3c00 + i % 512 + (i % 2 == 0 ? 0x8000 : 0)); /* 0.008 to 0.5 */
        }
        const struct tw_momentum_step step = {
            .momentum = TW_MOMENTUM_BF16, .phi = phi, .u = u, .begin = BEGIN, .n = N - 2 * BEGIN};
        if (kind == 0) tw_momentum_nesterov(&step, delta, rule);
        if (kind == 1) tw_momentum_heavyball(&step, delta, rule);
        if (kind == 2) tw_momentum_pull(&step, own, theirs, 0.35f);
        for (int i = 0; i < N; i++) {
            const uint16_t bits = (uint16_t)(0x3c00 + i % 512 + (i % 2 == 0 ? 0x8000 : 0));
            float wanted = sinf((float)i), v = (float)wide(&bits, 0);
            const int k = i - BEGIN;
            const bool is_in = k >= 0 && k < N - 2 * BEGIN;
            if (is_in && kind == 0) tw_outer_nesterov_ref(&wanted, &v, delta + k, 1, rule);
            if (is_in && kind == 1) tw_outer_heavyball_ref(&wanted, &v, delta + k, 1, rule);
            if (is_in && kind == 2) tw_outer_pull_ref(&wanted, &v, own + k, theirs + k, 0.35f, 1);
            assert_true(phi[i] == wanted);
            assert_true((float)wide(u, (size_t)i) == rounded(v));
        }
    }
}

TEST(overflow_by_rounding_is_found) {
    float phi = 0, delta = 3.4e38f;
    uint16_t u[3000] = {0};
    const struct tw_outer rule = {.lr = 1e-30f, .momentum = 0};
    const struct tw_momentum_step step = {
        .momentum = TW_MOMENTUM_BF16, .phi = &phi, .u = &u[2999], .n = 1};
    tw_momentum_nesterov(&step, &delta, rule);
    assert_true(isfinite(phi));
    assert_false(tw_momentum_is_finite(TW_MOMENTUM_BF16, u, 3000));
    assert_true(tw_momentum_is_finite(TW_MOMENTUM_BF16, u, 2999));
    u[2999] = 0x3f80;
    assert_true(tw_momentum_squared(TW_MOMENTUM_BF16, u, 0, 3000) == 1);
    assert_true(tw_momentum_squared(TW_MOMENTUM_BF16, u, 2999, 1) == 1);
    assert_true(tw_momentum_squared(TW_MOMENTUM_NONE, NULL, 0, 3000) == 0);
}

FACT(infinite_momentum_is_not_published) {
    struct tw_anchor_publish stage;
    struct tw_shm_state sealed;
    open_type(TW_MOMENTUM_TYPE_BF16, TW_OUTER_NESTEROV, 900000);
    tw_anchor_publish_begin(&nodes[0].merger, 1, &stage);
    memcpy(stage.phi, stage.phi_old, stage.elements * sizeof(float));
    memset(stage.u, 0, stage.elements * 2);
    assert_int_equal(tw_anchor_publish_seal(&stage, 1, &sealed, &err), TW_OK);
    ((uint16_t *)stage.u)[stage.elements - 1] = 0x7f80;
    assert_int_equal(tw_anchor_publish_seal(&stage, 1, &sealed, &err), TW_CORRUPT);
}
