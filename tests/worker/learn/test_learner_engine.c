/* Tests of worker/learn/learner_engine.c: an abandoned step has no effect, and neither has a text
 * sample. */
#include "worker/learn/learner_engine.h"

#include <stdatomic.h>
#include <unistd.h>

#include "tests/test.h"
#include "worker/support/utf8.h"

enum { TEXT_BYTES = 64 * 1024 };

static char path[] = "/tmp/thinwire-test-XXXXXX";
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;

static int open_text(void **state) {
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < TEXT_BYTES / 2; i++) {
        char letter[2] = {(char)0xC3, (char)(0xA0 + i * i % 23)}; /* from U+00E0 on */
        assert_int_equal(write(fd, letter, 2), 2);
    }
    assert_int_equal(close(fd), 0);
    tw_run_defaults(&run);
    static const char *const keys[][2] = {{"model.layers", "1"}, {"model.width", "16"},
                                          {"model.heads", "2"},  {"model.context", "16"},
                                          {"train.batch", "4"},  {"sync.fragments", "2"}};
    for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (tw_run_set(&run, keys[i][0], keys[i][1], &err) != TW_OK) fail_msg("%s", err.message);
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    return 0;
}

static int remove_text(void **state) {
    return unlink(path);
}

static void open_learner(struct tw_learner_engine *real, struct tw_learner *learner) {
    const struct tw_learner_config config = {
        .run = &run,
        .layout = &layout,
        .data_path = path,
        .data_seed = 7,
        .compute = {.compute = TW_COMPUTE_FP32, .threads = 1, .micro_batch = 2}};
    if (tw_learner_engine_open(real, learner, &config, &err) != TW_OK) fail_msg("%s", err.message);
    learner->init(learner->self, learner->theta);
}

/* The cursor is unchanged, too: the next step trains on the same batch as one without the
 * interruption. */
TEST(given_up_step_trains_on_its_batch_later) {
    static struct tw_learner_engine reals[2];
    struct tw_learner learners[2];
    uint64_t cursors[2] = {0, 0};
    _Atomic bool stop = true;
    for (unsigned i = 0; i < 2; i++) open_learner(&reals[i], &learners[i]);
    for (unsigned turn = 0; turn < 3; turn++) {
        struct tw_step_result result;
        const uint64_t before = cursors[0];
        atomic_store(&stop, true);
        learners[0].watch(learners[0].self, &stop);
        assert_int_equal(learners[0].step(learners[0].self, &cursors[0], 0.01f, &result, &err),
                         TW_AGAIN);
        assert_int_equal(cursors[0], before);
        atomic_store(&stop, false);
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(learners[i].step(learners[i].self, &cursors[i], 0.01f, &result, &err),
                             TW_OK);
        assert_int_equal(cursors[0], cursors[1]);
        assert_true(cursors[0] > before);
        assert_memory_equal(learners[0].theta, learners[1].theta,
                            (size_t)layout.elements * sizeof(float));
    }
    double loss;
    atomic_store(&stop, true);
    assert_int_equal(learners[0].heldout(learners[0].self, learners[0].theta, &loss, &err),
                     TW_AGAIN);
    for (unsigned i = 0; i < 2; i++) tw_learner_engine_close(&reals[i]);
}

/* The worker of a node that merges for others: it takes no steps. */
TEST(learner_without_data_measures_nothing) {
    static struct tw_learner_engine real;
    struct tw_learner learner;
    const struct tw_learner_config config = {
        .run = &run,
        .layout = &layout,
        .data_path = "",
        .compute = {.compute = TW_COMPUTE_FP32, .threads = 1, .micro_batch = 2}};
    if (tw_learner_engine_open(&real, &learner, &config, &err) != TW_OK)
        fail_msg("%s", err.message);
    learner.init(learner.self, learner.theta);
    double loss;
    assert_int_equal(learner.heldout(learner.self, learner.theta, &loss, &err), TW_AGAIN);
    tw_learner_engine_close(&real);
}

/* Returns the number of characters of the sample. Each is a whole character of the training text
 * or, if `is_free`, any character. */
static unsigned count_characters(const char *text, bool is_free) {
    unsigned count = 0;
    for (size_t left = strlen(text), at = 0; left > 0; count++) {
        const int size = tw_utf8_size((const uint8_t *)text + at, left);
        if (!is_free && (size != 2 || (uint8_t)text[at] != 0xC3)) fail_msg("not of the text");
        assert_true(size > 0);
        at += (size_t)size;
        left -= (size_t)size;
    }
    return count;
}

TEST(sample_continues_the_text_and_changes_nothing) {
    static struct tw_learner_engine reals[2];
    struct tw_learner learners[2];
    uint64_t cursors[2] = {0, 0};
    struct tw_wmsg_sample before = {0}, sample;
    for (unsigned i = 0; i < 2; i++) open_learner(&reals[i], &learners[i]);
    for (unsigned turn = 0; turn < 3; turn++) {
        struct tw_step_result result;
        assert_int_equal(learners[0].sample(learners[0].self, 30, &sample, &err), TW_OK);
        assert_in_range(count_characters(sample.prompt, false), 3, 8);
        assert_in_range(strlen(sample.text), 30, 33);
        assert_true(count_characters(sample.text, true) > 0);
        assert_string_not_equal(sample.prompt, before.prompt);
        before = sample;
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(learners[i].step(learners[i].self, &cursors[i], 0.01f, &result, &err),
                             TW_OK);
        assert_memory_equal(learners[0].theta, learners[1].theta,
                            (size_t)layout.elements * sizeof(float));
    }
    for (unsigned i = 0; i < 2; i++) tw_learner_engine_close(&reals[i]);
}

TEST(sample_ends_for_a_pause) {
    static struct tw_learner_engine real;
    struct tw_learner learner;
    struct tw_wmsg_sample sample;
    _Atomic bool stop = true;
    open_learner(&real, &learner);
    learner.watch(learner.self, &stop);
    assert_int_equal(learner.sample(learner.self, 1000, &sample, &err), TW_OK);
    assert_string_equal(sample.text, "");
    atomic_store(&stop, false);
    assert_int_equal(learner.sample(learner.self, 5000, &sample, &err), TW_OK);
    assert_in_range(strlen(sample.text), TW_SAMPLE_BYTES_MAX - 4, TW_SAMPLE_BYTES_MAX - 1);
    tw_learner_engine_close(&real);
}

/* Without a tokenizer, the text of token ids is unknown. The last test: it changes the run. */
TEST(tokens_without_a_tokenizer_have_no_sample) {
    static struct tw_learner_engine real;
    struct tw_learner learner;
    struct tw_wmsg_sample sample;
    run.data.tokenizer = TW_TOKENIZER_IDS;
    run.model.vocab = 65536;
    if (tw_layout_init(&layout, &run, &err) != TW_OK) fail_msg("%s", err.message);
    open_learner(&real, &learner);
    assert_int_equal(learner.sample(learner.self, 30, &sample, &err), TW_AGAIN);
    tw_learner_engine_close(&real);
}

int main(void) {
    return test_run(open_text, remove_text);
}
