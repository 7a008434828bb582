/* test_generate.c - sampling, and held-out evaluation, on a model that learnt a pattern. */
#include "worker/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/eval.h"

enum { CONTEXT = 16, BATCH = 4, FILE_BYTES = 4000 };

struct fixture {
    struct tw_run run;
    struct tw_layout layout;
    struct tw_data data;
    struct tw_engine *engine;
};

/* A text that goes round "abcde", and a model trained on it for some steps. */
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
        tw_data_draw(&f->data, 3, &cursor, BATCH, tokens);
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

static void held_out_loss_falls_below_the_start(void **state) {
    struct fixture *f = *state;
    double trained, some, fresh;
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 0, &trained, NULL),
                     TW_OK);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, f->engine->theta, 3, &some, NULL), TW_OK);
    float *start = calloc(f->layout.elements, sizeof(*start));
    tw_engine_init_params(&f->run, &f->layout, start);
    assert_int_equal(tw_eval_heldout(f->engine, &f->data, start, 0, &fresh, NULL), TW_OK);
    print_message("held-out loss %.3f -> %.3f (three windows: %.3f)\n", fresh, trained, some);
    assert_true(fabs(fresh - log(256.0)) < 0.2);
    assert_true(trained < 0.5);
    assert_true(fabs(some - trained) < 0.5);
    free(start);
}

static void greedy_text_goes_on_with_the_pattern_beyond_the_context(void **state) {
    struct fixture *f = *state;
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    uint32_t tokens[3 * CONTEXT] = {'c', 'd', 'e', 'a', 'b'};
    for (size_t count = 5; count < 3 * CONTEXT; count++) {
        const struct tw_generate_config greedy = {.temperature = 0.0f};
        assert_int_equal(tw_generate_next(f->engine, f->engine->theta, greedy, &rng, tokens, count,
                                          &tokens[count], NULL),
                         TW_OK);
        assert_int_equal(tokens[count], "abcde"[(count + 2) % 5]);
    }
}

static void top_one_is_greedy_and_heat_is_not(void **state) {
    struct fixture *f = *state;
    struct tw_rng rng;
    tw_rng_seed(&rng, 1);
    const uint32_t prompt[] = {'a', 'b', 'c'};
    unsigned others = 0;
    for (unsigned i = 0; i < 200; i++) {
        uint32_t next;
        assert_int_equal(tw_generate_next(f->engine, f->engine->theta,
                                          (struct tw_generate_config){1.0f, 1}, &rng, prompt, 3,
                                          &next, NULL),
                         TW_OK);
        assert_int_equal(next, 'd');
        assert_int_equal(tw_generate_next(f->engine, f->engine->theta,
                                          (struct tw_generate_config){50.0f, 0}, &rng, prompt, 3,
                                          &next, NULL),
                         TW_OK);
        assert_true(next < 256);
        others += next != 'd';
    }
    assert_true(others > 100);
}

static void damaged_parameters_are_named(void **state) {
    struct fixture *f = *state;
    struct tw_rng rng;
    struct tw_error err;
    uint32_t next = 0;
    const uint32_t prompt[] = {'a'};
    tw_rng_seed(&rng, 1);
    f->engine->theta[tw_layout_find(&f->layout, "ln_f.weight")->offset] = NAN;
    assert_int_equal(tw_generate_next(f->engine, f->engine->theta, (struct tw_generate_config){0},
                                      &rng, prompt, 1, &next, &err),
                     TW_CORRUPT);
    assert_non_null(strstr(err.message, "not finite"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(held_out_loss_falls_below_the_start),
        TEST(greedy_text_goes_on_with_the_pattern_beyond_the_context),
        TEST(top_one_is_greedy_and_heat_is_not),
        TEST(damaged_parameters_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
