/* Tests of worker/learn/learner_engine.c: a batch drawn ahead is the one that would be drawn when
 * its step begins, after all that may happen in between. The test asks in place of a device. */
#include "worker/learn/learner_engine.h"

#include <unistd.h>

#include "tests/test.h"
#include "tests/worker/data/dataset_folder.h"
#include "worker/engine/engine_memory.h"

enum { CONTEXT = 8, BATCH = 3, TOKENS = BATCH * (CONTEXT + 1), STEP_TOKENS = BATCH * CONTEXT };

struct fixture {
    char folder[64];
    struct tw_run run;
    struct tw_layout layout;
    struct tw_engine *engine;
    struct tw_data data;
    struct tw_batches batches;
    struct dataset_plan plan;
};

static struct tw_error err;

/* The token encodes shard and place. */
static uint32_t token(uint32_t source, bool is_heldout, uint32_t shard, uint32_t i) {
    return 4 + ((source + 3u * is_heldout + shard) * 1000 + i) % 4000;
}

static void hide(const struct fixture *f, const char *name, bool is_hidden) {
    char there[256], hidden[256];
    (void)snprintf(there, sizeof(there), "%s/%s", f->folder, name);
    (void)snprintf(hidden, sizeof(hidden), "%s/%s.part", f->folder, name);
    assert_int_equal(is_hidden ? rename(there, hidden) : rename(hidden, there), 0);
}

static int set_up(void **state) {
    struct fixture *const f = calloc(1, sizeof(*f));
    (void)snprintf(f->folder, sizeof(f->folder), "/tmp/tw-test-batches-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    f->plan = (struct dataset_plan){.vocab = 4096,
                                    .separator = 3,
                                    .tokenizer = {{1}},
                                    .heldout_millionths = 50000,
                                    .sources_count = 1,
                                    .train_shards = 3,
                                    .heldout_shards = 1,
                                    .shard_tokens = 1000,
                                    .document_tokens = 100,
                                    .token = token};
    tw_run_defaults(&f->run);
    static const char *const keys[][2] = {{"model.layers", "1"},   {"model.width", "16"},
                                          {"model.heads", "2"},    {"model.context", "8"},
                                          {"train.batch", "3"},    {"data.tokenizer", "ids"},
                                          {"sync.fragments", "2"}, {"model.vocab", "4096"}};
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (tw_run_set(&f->run, keys[i][0], keys[i][1], &err) != TW_OK) fail_msg("%s", err.message);
    f->run.data.form = TW_FORM_DATASET;
    f->run.data.sha256 = dataset_folder_write(f->folder, &f->plan);
    if (tw_layout_init(&f->layout, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    const struct tw_engine_config config = {
        .run = &f->run, .layout = &f->layout, .compute = {.threads = 1}};
    if (tw_engine_create(&f->engine, &config, &err) != TW_OK) fail_msg("%s", err.message);
    *state = f;
    return 0;
}

static void open_all(struct fixture *f) {
    if (tw_data_open(&f->data, f->folder, &f->run, &err) != TW_OK) fail_msg("%s", err.message);
    assert_int_equal(tw_batches_open(&f->batches, f->engine, &f->data, 7, &err), TW_OK);
}

static int tear_down(void **state) {
    struct fixture *const f = *state;
    tw_batches_close(&f->batches);
    tw_data_close(&f->data);
    tw_engine_destroy(f->engine);
    dataset_folder_remove(f->folder);
    free(f);
    return 0;
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

/* Asks for the next batch, as a device does while it computes. */
static const uint32_t *ask(const struct fixture *f) {
    return f->engine->memory->next(f->engine->memory->next_self);
}

/* Draws at the cursor and compares with a draw of its own. */
static void draw(struct fixture *f, uint64_t *cursor) {
    uint32_t want[TOKENS];
    uint64_t at = *cursor;
    assert_int_equal(tw_data_draw(&f->data, 7, &at, BATCH, want, &err), TW_OK);
    assert_int_equal(tw_batches_draw(&f->batches, cursor, &err), TW_OK);
    assert_int_equal(*cursor, at);
    assert_memory_equal(f->batches.tokens, want, sizeof(want));
}

FACT(the_batch_drawn_ahead_is_the_next_one) {
    struct fixture *const f = *state;
    uint64_t cursor = 0;
    open_all(f);
    for (unsigned i = 0; i < 200; i++) { /* more than an epoch */
        draw(f, &cursor);
        const uint32_t *const next = ask(f);
        assert_non_null(next);
        draw(f, &cursor);
        assert_ptr_equal(f->batches.tokens, next); /* it was not drawn again */
        if (i % 3 == 0) (void)ask(f), (void)ask(f);
    }
}

/* The state of another node was taken over, or a step was given up and its batch is drawn again. */
FACT(another_cursor_draws_its_own_batch) {
    struct fixture *const f = *state;
    uint64_t cursor = 0;
    open_all(f);
    draw(f, &cursor);
    (void)ask(f);
    cursor = 0;
    draw(f, &cursor);
    (void)ask(f);
    cursor = 40 * STEP_TOKENS;
    draw(f, &cursor);
    (void)ask(f);
    cursor += STEP_TOKENS;
    draw(f, &cursor);
}

FACT(files_that_arrive_are_drawn_from_at_once) {
    struct fixture *const f = *state;
    static const char name[] = "prose-train-00001.shard";
    unsigned changed = 0;
    for (uint64_t begin = 0; begin < 10 * STEP_TOKENS; begin += STEP_TOKENS) {
        uint64_t cursor = begin;
        hide(f, name, true);
        open_all(f);
        draw(f, &cursor);
        const uint32_t *const next = ask(f);
        assert_non_null(next);
        hide(f, name, false);
        tw_data_refresh(&f->data);
        draw(f, &cursor);
        assert_ptr_not_equal(f->batches.tokens, next);
        changed += memcmp(f->batches.tokens, next, TOKENS * sizeof(*next)) != 0;
        tw_batches_close(&f->batches);
        tw_data_close(&f->data);
    }
    assert_true(changed > 0);
}

/* Failure to draw ahead is no error until the step begins. */
FACT(an_error_is_reported_by_the_step_that_draws) {
    struct fixture *const f = *state;
    uint64_t cursor = 0;
    open_all(f);
    draw(f, &cursor);
    static const char *const names[] = {"prose-train-00000.shard", "prose-train-00001.shard",
                                        "prose-train-00002.shard"};
    for (unsigned i = 0; i < 3; i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/%s", f->folder, names[i]);
        assert_int_equal(truncate(path, 100), 0);
    }
    assert_null(ask(f));
    const uint64_t before = cursor;
    assert_int_equal(tw_batches_draw(&f->batches, &cursor, &err), TW_DATA);
    assert_int_equal(cursor, before);
}
