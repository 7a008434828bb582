/* test_gpu_ahead.c - inputs of the next step that are brought to the device during a step, and
 * steps that are given up for a pause: neither changes a bit of any result. Built for the emulated
 * device and for a card; skips itself without a card. */
#include "tests/test.h"

#include <math.h>
#include <stdatomic.h>

#include "kernels/cuda/runtime.h"
#include "tests/worker/engine/engine_fixture.h"

#ifdef TW_CUDA_EMULATED
#include "tests/emulated/emulation.h"
#endif

enum { BATCHES = 5, PAUSES = 15, LOSS_SEQUENCES = 2 * ENGINE_BATCH };

static struct tw_error err;

static int set_up_0(void **state) {
    return engine_set_up(state, ENGINE_GPT2);
}
static int set_up_3(void **state) {
    return engine_set_up(state, ENGINE_LLAMA_FULL);
}

static struct tw_engine *on_gpu(const struct engine_fixture *f, uint32_t micro_batch) {
    const struct tw_engine_config config = {.run = &f->run,
                                            .layout = &f->layout,
                                            .compute = {.device = {.kind = TW_DEVICE_CUDA},
                                                        .compute = TW_COMPUTE_FP32,
                                                        .micro_batch = micro_batch}};
    struct tw_engine *engine;
    if (tw_engine_create(&engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    memcpy(engine->theta, f->engine->theta, f->layout.elements * sizeof(float));
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, f->layout.elements, &err), TW_OK);
    return engine;
}

static void assert_same(struct tw_engine *a, struct tw_engine *b) {
    const uint64_t n = a->layout->elements;
    assert_int_equal(tw_engine_pull(a, TW_ENGINE_STATE, 0, n, &err), TW_OK);
    assert_int_equal(tw_engine_pull(b, TW_ENGINE_STATE, 0, n, &err), TW_OK);
    assert_int_equal(a->updates, b->updates);
    assert_memory_equal(a->theta, b->theta, n * sizeof(float));
    assert_memory_equal(a->m, b->m, n * sizeof(float));
    assert_memory_equal(a->v, b->v, n * sizeof(float));
}

/* Different batches, and the answer to the engine's question for the next one. */
struct batches {
    uint32_t tokens[BATCHES][ENGINE_TOKENS];
    const uint32_t *answer;
    uint32_t asked;
};

static const uint32_t *answer(void *self) {
    struct batches *batches = self;
    batches->asked++;
    return batches->answer;
}

static struct batches *make_batches(const struct engine_fixture *f) {
    struct batches *batches = calloc(1, sizeof(*batches));
    assert_non_null(batches);
    for (uint32_t b = 0; b < BATCHES; b++) {
        for (uint32_t i = 0; i < ENGINE_TOKENS; i++)
            batches->tokens[b][i] = (f->tokens[i] + b * (i % 3)) % ENGINE_VOCAB;
    }
    return batches;
}

/* ---- the next batch -------------------------------------------------------------------------- */

static void step_both(struct tw_engine *ahead, struct tw_engine *plain, const uint32_t *tokens) {
    struct tw_step_result got, want;
    if (tw_engine_step(ahead, tokens, 0.01f, &got, &err) != TW_OK) fail_msg("%s", err.message);
    if (tw_engine_step(plain, tokens, 0.01f, &want, &err) != TW_OK) fail_msg("%s", err.message);
    assert_memory_equal(&got.loss, &want.loss, sizeof(got.loss));
    assert_memory_equal(&got.grad_norm, &want.grad_norm, sizeof(got.grad_norm));
    assert_false(got.is_skipped);
}

/* Enough passes to use every staging block again. */
static void lose_both(struct tw_engine *ahead, struct tw_engine *plain,
                      const struct engine_fixture *f) {
    static uint32_t tokens[LOSS_SEQUENCES * (ENGINE_CONTEXT + 1)];
    double got, want;
    for (uint32_t i = 0; i < LOSS_SEQUENCES * (ENGINE_CONTEXT + 1); i++)
        tokens[i] = f->tokens[i % ENGINE_TOKENS] ^ 1u;
    assert_int_equal(tw_engine_loss(ahead, ahead->theta, tokens, LOSS_SEQUENCES, &got, &err),
                     TW_OK);
    assert_int_equal(tw_engine_loss(plain, plain->theta, tokens, LOSS_SEQUENCES, &want, &err),
                     TW_OK);
    assert_true(got == want);
}

static void push_half(struct tw_engine *engine) {
    const uint64_t n = engine->layout->elements;
    assert_int_equal(tw_engine_pull(engine, TW_ENGINE_THETA, 0, n, &err), TW_OK);
    for (uint64_t i = 0; i < n; i++) engine->theta[i] *= 0.5f;
    assert_int_equal(tw_engine_push(engine, TW_ENGINE_THETA, 0, n, &err), TW_OK);
}

/* Every step follows an answer (right, wrong or none). Between steps come the calls of a worker
 * that use the device: a merge into theta, held-out loss, a text. */
static void look_ahead_with(struct engine_fixture *f, uint32_t micro_batch) {
    static float logits[ENGINE_VOCAB];
    struct tw_engine *ahead = on_gpu(f, micro_batch), *plain = on_gpu(f, micro_batch);
    struct batches *batches = make_batches(f);
    static uint32_t foreign[ENGINE_TOKENS];
    memset(foreign, 0xff, sizeof(foreign)); /* outside the vocabulary */
    tw_engine_look_ahead(ahead, answer, batches);
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t *next = batches->tokens[(i + 1) % BATCHES];
        const uint32_t *answers[] = {next, next, NULL, batches->tokens[i % BATCHES], foreign, next};
        batches->answer = answers[i % 6];
        step_both(ahead, plain, batches->tokens[i % BATCHES]);
        assert_int_equal(batches->asked, i + 1);
        if (i % 4 == 1) lose_both(ahead, plain, f);
        if (i % 5 == 2) push_half(ahead), push_half(plain);
        if (i % 7 == 3)
            assert_int_equal(tw_engine_logits(ahead, ahead->theta, f->tokens, 5, logits, &err),
                             TW_OK);
        assert_same(ahead, plain);
    }
    /* The tokens of an answer may change afterwards: the step trains on its own. */
    batches->answer = batches->tokens[0];
    step_both(ahead, plain, batches->tokens[1]);
    batches->tokens[0][0] = (batches->tokens[0][0] + 1) % ENGINE_VOCAB;
    step_both(ahead, plain, batches->tokens[0]);
    assert_same(ahead, plain);
    free(batches);
    tw_engine_destroy(ahead);
    tw_engine_destroy(plain);
}

static void looking_ahead_changes_no_bit(void **state) {
    look_ahead_with(*state, ENGINE_BATCH);
}

/* Three passes, of 3, 3 and 1 sequences. */
static void looking_ahead_with_masked_documents_changes_no_bit(void **state) {
    engine_mask(*state, 4);
    look_ahead_with(*state, 3);
}

#ifdef TW_CUDA_EMULATED

static uint64_t calls_of(struct tw_engine *engine, struct batches *batches, uint32_t batch,
                         const uint32_t *next) {
    struct tw_step_result result;
    const uint64_t before = tw_emulation_calls();
    batches->answer = next;
    assert_int_equal(tw_engine_step(engine, batches->tokens[batch], 0.01f, &result, &err), TW_OK);
    return tw_emulation_calls() - before;
}

/* The copy of a step's inputs is one of the calls of the step before it. */
static void inputs_of_the_next_step_are_there_when_it_begins(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine *engine = on_gpu(f, ENGINE_BATCH);
    struct batches *batches = make_batches(f);
    double loss;
    tw_engine_look_ahead(engine, answer, batches);
    for (uint32_t i = 0; i < 3; i++) (void)calls_of(engine, batches, 0, NULL); /* then a graph */
    const uint64_t usual = calls_of(engine, batches, 0, NULL);
    assert_int_equal(calls_of(engine, batches, 0, batches->tokens[1]), usual + 1);
    assert_int_equal(calls_of(engine, batches, 1, NULL), usual - 1);
    assert_int_equal(calls_of(engine, batches, 0, batches->tokens[1]), usual + 1);
    assert_int_equal(calls_of(engine, batches, 1, batches->tokens[2]), usual);
    assert_int_equal(calls_of(engine, batches, 3, NULL), usual); /* not the batch that came */
    assert_int_equal(calls_of(engine, batches, 0, batches->tokens[1]), usual + 1);
    assert_int_equal(tw_engine_loss(engine, engine->theta, f->tokens, 2, &loss, &err), TW_OK);
    assert_int_equal(calls_of(engine, batches, 1, NULL), usual); /* overwritten: copied again */
    free(batches);
    tw_engine_destroy(engine);
}

/* ---- a pause --------------------------------------------------------------------------------- */

static void raise_flag(void *self) {
    atomic_store((_Atomic bool *)self, true);
}

/* Pauses come at calls spread over a step. If the step is given up, nothing has changed. Taken
 * again with the same batch, it has the bits of a step without a pause. */
static void pause_often(struct engine_fixture *f, uint32_t plain_steps) {
    struct tw_engine *engine = on_gpu(f, 3), *twin = on_gpu(f, 3);
    struct batches *batches = make_batches(f);
    _Atomic bool stop = false;
    uint32_t given_up = 0, completed = 0;
    tw_engine_look_ahead(engine, answer, batches);
    for (uint32_t i = 0; i < plain_steps; i++) step_both(engine, twin, batches->tokens[4]);
    uint64_t calls = tw_emulation_calls();
    step_both(engine, twin, batches->tokens[4]);
    calls = (tw_emulation_calls() - calls) / 2;
    const uint64_t stride = calls / PAUSES + 1;
    for (uint64_t call = 1; call <= calls; call += stride) {
        const uint32_t *tokens = batches->tokens[call / stride % 3];
        struct tw_step_result got, want;
        /* Right after every second step, and else wrong. */
        batches->answer = call / stride % 2 == 0 ? batches->tokens[(call / stride + 1) % 3] : NULL;
        tw_engine_watch(engine, &stop);
        tw_emulation_run_after(call, raise_flag, &stop);
        enum tw_status status = tw_engine_step(engine, tokens, 0.01f, &got, &err);
        tw_emulation_run_after(0, NULL, NULL);
        atomic_store(&stop, false);
        if (status == TW_AGAIN) {
            given_up++;
            assert_same(engine, twin);
            status = tw_engine_step(engine, tokens, 0.01f, &got, &err);
        } else {
            completed++;
        }
        assert_int_equal(status, TW_OK);
        assert_int_equal(tw_engine_step(twin, tokens, 0.01f, &want, &err), TW_OK);
        assert_memory_equal(&got.loss, &want.loss, sizeof(got.loss));
        assert_memory_equal(&got.grad_norm, &want.grad_norm, sizeof(got.grad_norm));
        assert_same(engine, twin);
    }
    print_message("%llu calls of a step: given up at %u, completed at %u\n",
                  (unsigned long long)calls, given_up, completed);
    assert_true(given_up > 0 && completed > 0);
    free(batches);
    tw_engine_destroy(engine);
    tw_engine_destroy(twin);
}

static void a_paused_step_taken_again_has_the_same_bits(void **state) {
    pause_often(*state, 3);
}

/* From the first step on: passes that no graph was made of yet. */
static void a_paused_first_step_has_the_same_bits(void **state) {
    pause_often(*state, 0);
}

/* A pause that comes after the update does not wait for another batch to be drawn. */
static void nothing_is_drawn_once_a_pause_is_asked_for(void **state) {
    struct engine_fixture *f = *state;
    struct tw_engine *engine = on_gpu(f, ENGINE_BATCH);
    struct batches *batches = make_batches(f);
    struct tw_step_result result;
    _Atomic bool stop = false;
    tw_engine_look_ahead(engine, answer, batches);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, &err), TW_OK);
    assert_int_equal(batches->asked, 4);
    const uint64_t before = tw_emulation_calls();
    assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, &err), TW_OK);
    tw_engine_watch(engine, &stop);
    /* The last call of a step copies its numbers to the host. */
    tw_emulation_run_after(tw_emulation_calls() - before, raise_flag, &stop);
    assert_int_equal(tw_engine_step(engine, f->tokens, 0.01f, &result, &err), TW_OK);
    assert_true(atomic_load(&stop));
    assert_int_equal(batches->asked, 5);
    free(batches);
    tw_engine_destroy(engine);
}

#endif

int main(void) {
    struct tw_error why = {.message = ""};
    struct tw_cuda_info info;
    if (tw_cuda_count(&why) == 0 || tw_cuda_info(&info, 0, &why) != TW_OK ||
        info.reason[0] != '\0') {
        print_message("no device: %s%s\n", why.message, why.message[0] == '\0' ? info.reason : "");
        return 77;
    }
    (void)unsetenv("TW_DEVICE");
#define ROW(name, kind)                                                                            \
    { #name " " #kind, name, set_up_##kind, engine_tear_down, NULL }
    const struct CMUnitTest tests[] = {
        ROW(looking_ahead_changes_no_bit, 0),
        ROW(looking_ahead_with_masked_documents_changes_no_bit, 3),
#ifdef TW_CUDA_EMULATED
        ROW(inputs_of_the_next_step_are_there_when_it_begins, 0),
        ROW(a_paused_step_taken_again_has_the_same_bits, 0),
        ROW(a_paused_first_step_has_the_same_bits, 3),
        ROW(nothing_is_drawn_once_a_pause_is_asked_for, 0),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
