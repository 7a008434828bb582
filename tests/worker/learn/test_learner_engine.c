/* Tests of worker/learn/learner_engine.c: a step that is given up is as if it had not been called.
 */
#include "worker/learn/learner_engine.h"

#include <stdatomic.h>
#include <unistd.h>

#include "tests/test.h"

enum { TEXT_BYTES = 64 * 1024 };

static char path[] = "/tmp/thinwire-test-XXXXXX";
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;

static int open_text(void **state) {
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (unsigned i = 0; i < TEXT_BYTES; i++) {
        const char letter = (char)('a' + i * i % 23);
        assert_int_equal(write(fd, &letter, 1), 1);
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
    (void)state;
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

/* The cursor too: the step that follows trains on the same batch as one without the interruption.
 */
static void given_up_step_trains_on_its_batch_later(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_up_step_trains_on_its_batch_later),
    };
    return cmocka_run_group_tests(tests, open_text, remove_text);
}
