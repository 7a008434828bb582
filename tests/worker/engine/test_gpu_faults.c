/* test_gpu_faults.c - if any device call fails, the engine reports it, keeps all earlier results
 * unchanged and can be destroyed cleanly. Uses the emulated device, whose calls can be made to
 * fail. */

#include "tests/emulated/emulation.h"
#include "tests/test.h"
#include "tests/worker/engine/engine_fixture.h"

/* Sets the distance between the calls that are made to fail, one per run. Sanitizers make each run
 * four times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 23 };
#else
enum { STRIDE = 7 };
#endif

static int set_up(void **state) {
    return engine_set_up(state, ENGINE_LLAMA_FULL);
}

#define FACT(name) TEST_IN(set_up, engine_tear_down, name)

/* Runs an engine's whole life: create, fill, two steps, a loss, a pull. */
static enum tw_status live(const struct engine_fixture *f, struct tw_step_result *result,
                           struct tw_error *err) {
    const struct tw_engine_config config = {.run = &f->run,
                                            .layout = &f->layout,
                                            .compute = {.device = {.kind = TW_DEVICE_CUDA},
                                                        .compute = TW_COMPUTE_BF16,
                                                        .micro_batch = 3}};
    const uint64_t elements = f->layout.elements;
    struct tw_engine *engine = NULL;
    double loss;
    enum tw_status status = tw_engine_create(&engine, &config, err);
    if (status != TW_OK) return status;
    memcpy(engine->theta, f->engine->theta, elements * sizeof(float));
    status = tw_engine_push(engine, TW_ENGINE_THETA, 0, elements, err);
    for (int i = 0; i < 2 && status == TW_OK; i++)
        status = tw_engine_step(engine, f->tokens, 0.01f, result, err);
    if (status == TW_OK)
        status = tw_engine_loss(engine, f->engine->theta, f->tokens, 2, &loss, err);
    if (status == TW_OK) status = tw_engine_pull(engine, TW_ENGINE_STATE, 0, elements, err);
    if (status != TW_OK) { /* after a failure, all later calls fail too */
        struct tw_error again;
        assert_int_equal(tw_engine_pull(engine, TW_ENGINE_THETA, 0, 1, &again), TW_DEVICE);
        assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, result, &again), TW_DEVICE);
    }
    tw_engine_destroy(engine);
    return status;
}

FACT(every_fault_is_reported) {
    struct engine_fixture *f = *state;
    struct tw_step_result whole, result;
    struct tw_error err = {.message = ""};
    const uint64_t before = tw_emulation_calls();
    if (live(f, &whole, &err) != TW_OK) fail_msg("%s", err.message);
    const uint64_t calls = tw_emulation_calls() - before;
    print_message("%llu calls\n", (unsigned long long)calls);
    assert_true(calls > 100);
    for (uint64_t call = 1; call <= calls; call += call < 40 ? 1 : STRIDE * calls / 500 + 1) {
        err.message[0] = '\0';
        tw_emulation_fail_after(call);
        const enum tw_status status = live(f, &result, &err);
        tw_emulation_fail_after(0);
        if (status != TW_DEVICE && status != TW_NOMEM)
            fail_msg("call %llu: status %d, %s", (unsigned long long)call, status, err.message);
        assert_true(strlen(err.message) > 10);
    }
    if (live(f, &result, &err) != TW_OK) fail_msg("%s", err.message);
    assert_memory_equal(&whole.loss, &result.loss, sizeof(whole.loss));
}

/* If the system refuses to page-lock memory, copies are slower, but the results are the same. */
FACT(a_machine_that_pins_nothing_computes_the_same) {
    struct engine_fixture *f = *state;
    struct tw_step_result pinned, plain;
    struct tw_error err = {.message = ""};
    if (live(f, &pinned, &err) != TW_OK) fail_msg("%s", err.message);
    tw_emulation_set_pins(false);
    if (live(f, &plain, &err) != TW_OK) fail_msg("%s", err.message);
    tw_emulation_set_pins(true);
    assert_memory_equal(&pinned.loss, &plain.loss, sizeof(plain.loss));
}

FACT(a_small_device_takes_smaller_passes) {
    struct engine_fixture *f = *state;
    struct tw_engine_config config = {
        .run = &f->run,
        .layout = &f->layout,
        .compute = {.device = {.kind = TW_DEVICE_CUDA}, .compute = TW_COMPUTE_FP32}};
    struct tw_engine_plan plan;
    struct tw_error err;
    f->run.model.context = ENGINE_LONG_CONTEXT;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_int_equal(plan.micro_batch, ENGINE_BATCH);
    config.compute.memory_bytes = plan.total - 1;
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_true(plan.micro_batch == ENGINE_BATCH && !plan.keeps_outputs);
    config.compute.memory_bytes = 0;
    const uint64_t enough = plan.total - plan.activations / 2;
    /* a tenth of the memory is left for other uses */
    tw_emulation_set_memory(enough / 9 * 10 + (1 << 20));
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_true(plan.micro_batch < ENGINE_BATCH && plan.total <= plan.limit);
    tw_emulation_set_memory(32 << 20);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_NOMEM);
    config.compute.device.kind = TW_DEVICE_AUTO; /* AUTO falls back to the CPU */
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_false(plan.is_on_gpu);
    /* an explicit choice in TW_DEVICE does not fall back */
    assert_int_equal(setenv("TW_DEVICE", "cuda", 1), 0);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_NOMEM);
    assert_int_equal(unsetenv("TW_DEVICE"), 0);
    tw_emulation_set_memory((uint64_t)1 << 30);
    assert_int_equal(tw_engine_plan_make(&plan, &config, &err), TW_OK);
    assert_true(plan.is_on_gpu);
}

int main(void) {
    (void)unsetenv("TW_DEVICE");
    return test_run(NULL, NULL);
}
