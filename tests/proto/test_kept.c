/* Tests of proto/run/layout.c, and of the key sync.momentum_type. */
#include "proto/run/layout.h"

#include "tests/test.h"

static struct tw_run run;
static struct tw_error err;
static char text[TW_MANIFEST_BYTES_MAX];
static size_t size;

static bool is_said(void) {
    tw_run_encode(&run, text, &size);
    text[size < sizeof(text) ? size : sizeof(text) - 1] = '\0';
    return strstr(text, "sync.momentum_type") != NULL;
}

/* A run of before the key has its text, and so its id. All other values are in the text. */
TEST(float32_is_not_in_the_canonical_text) {
    static struct tw_run back;
    for (int type = TW_MOMENTUM_TYPE_FLOAT32; type <= TW_MOMENTUM_TYPE_BF16; type++) {
        tw_run_defaults(&run);
        run.sync.momentum_type = (enum tw_momentum_type)type;
        assert_true(is_said() == (type != TW_MOMENTUM_TYPE_FLOAT32));
        assert_int_equal(tw_run_decode(text, size, &back, &err), TW_OK);
        assert_int_equal(back.sync.momentum_type, type);
    }
    static const char said[] = "thinwire-run 1\nsync.preset = local-sgd\n";
    assert_int_equal(tw_run_read(said, sizeof(said) - 1, &run, &err), TW_OK);
    assert_int_equal(run.sync.momentum_type, TW_MOMENTUM_TYPE_AUTO);
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_NONE);
}

TEST(rule_decides_whether_there_is_a_momentum) {
    tw_run_defaults(&run);
    run.sync.outer_momentum_millionths = 500000;
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_FLOAT32);
    run.sync.momentum_type = TW_MOMENTUM_TYPE_BF16;
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_BF16);
    assert_int_equal(tw_run_check(&run, &err), TW_OK);
    run.sync.outer_momentum_millionths = 990001;
    assert_int_equal(tw_run_check(&run, &err), TW_CONFIG);
    run.sync.outer_momentum_millionths = 0;
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_NONE);
    run.sync.outer = TW_OUTER_HEAVYBALL;
    run.sync.gap_penalty_millionths = 100000; /* is computed from the norm of u */
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_BF16);
    run.sync.topology = TW_TOPOLOGY_SOLO;
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_NONE);
    run.sync.momentum_type = TW_MOMENTUM_TYPE_FLOAT32;
    assert_int_equal(tw_run_momentum(&run), TW_MOMENTUM_FLOAT32);
}

TEST(large_model_keeps_less_for_others) {
    enum { M = 1 << 20 };
    struct tw_kept kept = tw_kept(8 * M, 2 * M, M, 16);
    assert_int_equal(kept.states, TW_STATES_KEPT * 2 * M);
    assert_int_equal(kept.rounds, 16);
    kept = tw_kept(UINT64_C(512) * M, 64 * M, 32 * M, 32);
    assert_int_equal(kept.states, 64 * M); /* an eighth, one fragment */
    assert_int_equal(kept.rounds, 8);      /* half a byte per parameter */
    kept = tw_kept(UINT64_C(512) * M, 512 * M, 512 * M, 4);
    assert_int_equal(kept.states, 512 * M); /* never less than one */
    assert_int_equal(kept.rounds, 4);
    kept = tw_kept(UINT64_C(512) * M, 16 * M, 0, 1000);
    assert_int_equal(kept.states, 64 * M);
    assert_int_equal(kept.rounds, TW_RESULT_ROUNDS_MAX);
}
