/* test_profile.c - the times of a step by operator add up to it, and change no result. */
#include "worker/engine/profile.h"

#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"

static int set_up(void **state) {
    return engine_set_up(state, ENGINE_LLAMA_FULL);
}

#define FACT(name) TEST_IN(set_up, engine_tear_down, name)

static struct tw_engine *open_engine(const struct engine_fixture *f, bool is_profiled,
                                     const struct tw_profile **profile) {
    const struct tw_compute_config compute = {
        .compute = TW_COMPUTE_FP32, .device.kind = TW_DEVICE_CPU, .threads = 2, .micro_batch = 3};
    struct tw_engine *engine = engine_with(f, &compute, TW_MATMUL_AUTO);
    if (is_profiled) assert_int_equal(tw_engine_profile(engine, profile, NULL), TW_OK);
    return engine;
}

static void step(struct tw_engine *engine, const struct engine_fixture *f) {
    struct tw_step_result result;
    assert_int_equal(tw_engine_step(engine, f->tokens, 1e-3f, &result, NULL), TW_OK);
}

FACT(times_add_up_to_the_step) {
    const struct engine_fixture *f = *state;
    const struct tw_profile *profile = NULL;
    struct tw_profile_row rows[TW_PROFILE_KINDS];
    struct tw_engine *engine = open_engine(f, true, &profile);
    double step_s = 0, sum_s = 0, share = 0;
    uint64_t steps = 0;
    assert_int_equal(tw_profile_rows(profile, rows, &step_s, &steps), 0);
    for (unsigned i = 0; i < 4; i++) step(engine, f);
    const uint32_t count = tw_profile_rows(profile, rows, &step_s, &steps);
    assert_int_equal(steps, 3); /* without the first step */
    for (uint32_t i = 0; i < count; i++) {
        const bool is_product = rows[i].kind <= TW_PROFILE_HEAD_DW;
        assert_true(rows[i].seconds >= 0);
        assert_true(i == 0 || rows[i].seconds <= rows[i - 1].seconds);
        assert_true((rows[i].flops_s > 0) == is_product);
        if (rows[i].kind == TW_PROFILE_HEAD) assert_int_equal(rows[i].out, ENGINE_VOCAB);
        sum_s += rows[i].seconds;
        share += rows[i].share;
    }
    assert_true(count >= TW_PROFILE_KINDS - 4); /* no biases, packed weights or copies */
    assert_true(sum_s > 0.99 * step_s && sum_s < 1.01 * step_s);
    assert_true(share > 0.99 && share < 1.01);
    tw_engine_destroy(engine);
}

FACT(first_step_counts_if_it_is_the_only_one) {
    const struct engine_fixture *f = *state;
    const struct tw_profile *profile = NULL;
    struct tw_profile_row rows[TW_PROFILE_KINDS];
    struct tw_engine *engine = open_engine(f, true, &profile);
    double step_s = 0;
    uint64_t steps = 0;
    step(engine, f);
    assert_true(tw_profile_rows(profile, rows, &step_s, &steps) > 0);
    assert_int_equal(steps, 1);
    tw_engine_destroy(engine);
}

FACT(measured_steps_have_the_same_bits) {
    const struct engine_fixture *f = *state;
    const struct tw_profile *profile = NULL;
    struct tw_engine *measured = open_engine(f, true, &profile);
    struct tw_engine *other = open_engine(f, false, NULL);
    for (unsigned i = 0; i < 2; i++) step(measured, f);
    for (unsigned i = 0; i < 2; i++) step(other, f);
    assert_memory_equal(measured->theta, other->theta, f->layout.elements * sizeof(float));
    tw_engine_destroy(measured);
    tw_engine_destroy(other);
}
