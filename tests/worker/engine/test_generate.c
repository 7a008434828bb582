/* test_generate.c - sampling and held-out evaluation of a model that learnt a pattern. */
#include "worker/engine/generate.h"

#include <math.h>
#include <unistd.h>

#include "tests/test.h"
#include "worker/learn/learner_engine.h"

enum { CONTEXT = 16, BATCH = 4, FILE_BYTES = 4000 };

struct fixture {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_data data;
    struct tw_engine *engine;
};

/* A text that repeats "abcde", and a model trained on it for some steps. */
static int set_up(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    char path[] = "/tmp/tw-test-generate-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    char text[FILE_BYTES];
    for (size_t i = 0; i < FILE_BYTES; i++) text[i] = "abcde"[i % 5];
    assert_int_equal(write(fd, text, FILE_BYTES), FILE_BYTES);
    (void)close(fd);
    tw_run_defaults(&f->run);
    f->run.model.layers = 1;
    f->run.model.width = 16;
    f->run.model.heads = 2;
    f->run.model.context = CONTEXT;
    f->run.train.batch = BATCH;
    tw_run_apply_preset(&f->run, TW_PRESET_STREAMING);
    struct tw_error err;
    if (tw_layout_init(&f->layout, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(tw_data_open(&f->data, path, &f->run, NULL), TW_OK);
    (void)unlink(path);
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.threads = 1}};
    assert_int_equal(tw_engine_create(&f->engine, &config, NULL), TW_OK);
    tw_engine_init_params(&f->run, &f->layout, f->engine->theta);
    uint64_t cursor = 0;
    for (int i = 0; i < 120; i++) {
        uint32_t tokens[BATCH * (CONTEXT + 1)];
        struct tw_step_result result;
        assert_int_equal(tw_data_draw(&f->data, 3, &cursor, BATCH, tokens, NULL), TW_OK);
        assert_int_equal(tw_engine_step(f->engine, tokens, 0.02f, &result, NULL), TW_OK);
    }
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct fixture *f = *state;
    tw_engine_destroy(f->engine);
    tw_data_close(&f->data);
    free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

FACT(held_out_loss_falls_below_the_start) {
    struct fixture *f = *state;
    struct tw_eval trained, some, fresh;
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 0, &trained, NULL),
                     TW_OK);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 3, &some, NULL), TW_OK);
    float *start = calloc(f->layout.elements, sizeof(*start));
    tw_engine_init_params(&f->run, &f->layout, start);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, start, 0, &fresh, NULL), TW_OK);
    print_message("held-out loss %.3f -> %.3f (three windows: %.3f)\n", fresh.nats, trained.nats,
                  some.nats);
    assert_true(fabs(fresh.nats - log(256.0)) < 0.2);
    assert_true(trained.nats < 0.5);
    assert_true(fabs(some.nats - trained.nats) < 0.5);
    assert_int_equal(some.windows, 3);
    assert_int_equal(some.tokens, 3 * CONTEXT);
    free(start);
}

struct told {
    uint64_t times, done, all;
};

static void tell(void *user, uint64_t done, uint64_t all) {
    struct told *const told = user;
    assert_true(done > told->done && done <= all);
    *told = (struct told){told->times + 1, done, all};
}

FACT(evaluation_reports_its_progress) {
    struct fixture *f = *state;
    struct tw_eval shown, plain;
    struct told told = {0};
    const struct tw_eval_wish wish = {.windows = 12, .progress = tell, .user = &told};
    assert_int_equal(
        tw_eval_heldout_shown(f->engine, &f->data, f->engine->theta, &wish, &shown, NULL), TW_OK);
    assert_int_equal(told.times, 12); /* with fewer than 16 windows, each is its own group */
    assert_int_equal(told.done, 12);
    assert_int_equal(told.all, 12);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 12, &plain, NULL),
                     TW_OK);
    assert_true(memcmp(&shown.nats, &plain.nats, sizeof(double)) == 0);
}

/* Mean and standard error match the plain formulas, computed window by window. */
FACT(standard_error_is_that_of_the_groups) {
    struct fixture *f = *state;
    enum { WINDOWS = 12 }; /* with fewer than 16 windows, each is its own group */
    double sum = 0, squares = 0;
    struct tw_eval eval;
    for (uint64_t i = 0; i < WINDOWS; i++) {
        uint32_t tokens[CONTEXT + 1];
        double loss;
        assert_int_equal(tw_data_heldout(&f->data, i, WINDOWS, tokens, NULL), TW_OK);
        assert_int_equal(tw_engine_loss(f->engine, f->engine->theta, tokens, 1, &loss, NULL),
                         TW_OK);
        sum += loss;
        squares += loss * loss;
    }
    const double mean = sum / WINDOWS;
    const double error = sqrt((squares / WINDOWS - mean * mean) / (WINDOWS - 1));
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, WINDOWS, &eval, NULL),
                     TW_OK);
    assert_true(fabs(eval.nats - mean) < 1e-6);
    assert_true(error > 0 && fabs(eval.standard_error - error) < 1e-4 * error + 1e-9);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 1, &eval, NULL), TW_OK);
    assert_true(isnan(eval.standard_error));
}

static void next(struct tw_generator *generator, uint32_t *token) {
    struct tw_error err;
    if (tw_generator_next(generator, token, &err) != TW_OK) fail_msg("%s", err.message);
}

FACT(greedy_text_goes_on_with_the_pattern_beyond_the_context) {
    struct fixture *f = *state;
    struct tw_generator generator;
    const struct tw_sample_config greedy = {.temperature = 0};
    const uint32_t prompt[] = {'c', 'd', 'e', 'a', 'b'};
    assert_int_equal(tw_generator_open(&generator, f->engine, &greedy, NULL), TW_OK);
    /* the second sequence does not depend on the first */
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(tw_generator_begin(&generator, 1, prompt, 5, NULL), TW_OK);
        for (size_t count = 5; count < 5 * CONTEXT; count++) {
            uint32_t token;
            next(&generator, &token);
            assert_int_equal(token, "abcde"[(count + 2) % 5]);
        }
    }
    tw_generator_close(&generator);
}

/* Cached keys and values give the same tokens as a full pass over the sequence. */
FACT(kept_keys_and_values_change_no_choice) {
    struct fixture *f = *state;
    struct tw_generator generator;
    const struct tw_sample_config hot = {.temperature = 3};
    uint32_t tokens[CONTEXT] = {'c', 'd'};
    float logits[256];
    struct tw_candidate candidates[256];
    struct tw_rng rng;
    assert_int_equal(tw_generator_open(&generator, f->engine, &hot, NULL), TW_OK);
    assert_int_equal(tw_generator_begin(&generator, 5, tokens, 2, NULL), TW_OK);
    tw_rng_seed(&rng, 5);
    for (uint32_t count = 2; count < CONTEXT; count++) {
        next(&generator, &tokens[count]);
    }
    for (uint32_t count = 2; count < CONTEXT; count++) {
        assert_int_equal(tw_engine_logits(f->engine, f->engine->theta, tokens, count, logits, NULL),
                         TW_OK);
        assert_int_equal(tokens[count], tw_sample(logits, 256, &hot, candidates, &rng));
    }
    tw_generator_close(&generator);
}

FACT(top_one_is_greedy_and_heat_is_not) {
    struct fixture *f = *state;
    const uint32_t prompt[] = {'a', 'b', 'c'};
    const struct tw_sample_config configs[] = {{.temperature = 1, .top_k = 1}, {.temperature = 50}};
    for (unsigned i = 0; i < 2; i++) {
        struct tw_generator generator;
        unsigned others = 0;
        assert_int_equal(tw_generator_open(&generator, f->engine, &configs[i], NULL), TW_OK);
        for (uint64_t seed = 0; seed < 200; seed++) {
            uint32_t token;
            assert_int_equal(tw_generator_begin(&generator, seed, prompt, 3, NULL), TW_OK);
            next(&generator, &token);
            assert_true(token < 256);
            others += token != 'd';
        }
        assert_true(i == 0 ? others == 0 : others > 100);
        tw_generator_close(&generator);
    }
}

FACT(damaged_parameters_are_named) {
    struct fixture *f = *state;
    struct tw_generator generator;
    struct tw_error err;
    const uint32_t prompt[] = {'a'};
    const struct tw_sample_config greedy = {.temperature = 0};
    f->engine->theta[tw_layout_find(&f->layout, "ln_f.weight")->offset] = NAN;
    assert_int_equal(tw_generator_open(&generator, f->engine, &greedy, NULL), TW_OK);
    assert_int_equal(tw_generator_begin(&generator, 1, prompt, 1, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "not finite"));
    tw_generator_close(&generator);
}
