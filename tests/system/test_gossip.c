/* Three daemons in a run in pairs. The others do not wait for a killed node. When that node returns
 * without its state, it fetches one. The run ends for every node. */
#include <signal.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { NODES = 3 };

static struct cluster cluster;

static void open_three(const char *tokens) {
    static const char *const keys[][2] = {{"sync.topology", "pair"},
                                          {"sync.merge", "mean"},
                                          {"sync.sent", "keep"},
                                          {"sync.mix", "0"},
                                          {"sync.outer", "heavyball"},
                                          {"sync.outer_lr", "0.7"},
                                          {"sync.outer_momentum", "0.5"},
                                          {"sync.outer_ramp", "0"},
                                          {"sync.consensus", "0.7"},
                                          {"sync.fragments", "3"},
                                          {"sync.period", "30"},
                                          {"sync.overlap", "2"},
                                          {"sync.codec", "int4"},
                                          {"sync.feedback", "1"},
                                          {"sync.lead", "0"},
                                          {NULL, NULL}};
    cluster_open(&cluster, tokens);
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, NODES);
    const struct cluster_options options = {.more = "checkpoint_interval = 1s",
                                            .stub = "--step-us 5000"};
    for (uint32_t i = 0; i < NODES; i++) cluster_configure(&cluster, i, &options);
    for (uint32_t i = 0; i < NODES; i++) cluster_start(&cluster, i, NULL);
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

static void assert_sound(void) {
    for (uint32_t i = 0; i < NODES; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_null(strstr(cluster_log(&cluster, i), "assertion failed"));
        assert_null(strstr(cluster_log(&cluster, i), "ev=request_refused"));
    }
}

FACT(three_daemons_merge_two_by_two) {
    open_three("1g");
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(cluster_reaches(&cluster, i, "sync.pairs.merged", 10, 60));
    const double alone = cluster_number(&cluster, 0, "sync.pairs.alone");
    print_message("node 0: %.0f merged, %.0f alone, %.0f one-sided\n",
                  cluster_number(&cluster, 0, "sync.pairs.merged"), alone,
                  cluster_number(&cluster, 0, "sync.pairs.one_sided"));

    /* A node is killed, and all it had in memory is lost. The others continue to merge, and it
     * returns. */
    assert_int_equal(cluster_end(&cluster, 2, SIGKILL, 10), 1000 + SIGKILL);
    const double merged = cluster_number(&cluster, 0, "sync.pairs.merged");
    const double steps = cluster_number(&cluster, 0, "train.steps");
    assert_true(cluster_reaches(&cluster, 0, "sync.pairs.merged", merged + 5, 60));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps + 50, 20));
    cluster_start(&cluster, 2, NULL);
    assert_true(cluster_reaches(&cluster, 2, "sync.pairs.merged", 5, 60));

    /* If a worker dies in the middle of an exchange, only this exchange is lost. */
    const double pid = cluster_number(&cluster, 1, "worker.pid");
    assert_true(pid > 1);
    (void)kill((pid_t)pid, SIGKILL);
    const double before = cluster_number(&cluster, 1, "sync.pairs.merged");
    assert_true(cluster_reaches(&cluster, 1, "sync.pairs.merged", before + 5, 60));
    assert_sound();
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
}

FACT(run_in_pairs_ends_for_each) {
    open_three("300k");
    for (uint32_t i = 0; i < NODES; i++) {
        assert_true(cluster_says(&cluster, i, "state=finished", 120));
        assert_true(cluster_number(&cluster, i, "run.clock_tokens") >= 300e3);
        assert_true(cluster_number(&cluster, i, "sync.pairs.merged") >= 1);
    }
    assert_sound();
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
}
