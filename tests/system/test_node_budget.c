/* Three daemons in a run with sync.codec = auto, over real sockets: one without a budget, one that
 * has to send less, and one that cannot afford any round. They share one anchor all the same. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/exit_codes.h"
#include "tests/system/cluster.h"

enum { FREE, THRIFTY, POOR, NODES };

static struct cluster cluster;
static bool has_passed;

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, !has_passed);
    return 0;
}

static void open_three(const char *const budgets[NODES]) {
    static const char *const keys[][2] = {{"sync.fragments", "3"},
                                          {"sync.period", "60"},
                                          {"sync.overlap", "2"},
                                          {"sync.codec", "auto"},
                                          {"sync.result", "int4"},
                                          {"sync.feedback", "0.95"},
                                          {NULL, NULL}};
    has_passed = false;
    cluster_open(&cluster, "1g");
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        const struct cluster_options options = {.network = budgets[i], .stub = "--step-us 20000"};
        cluster_configure(&cluster, i, &options);
    }
    for (uint32_t i = 0; i < NODES; i++) cluster_start(&cluster, i, NULL);
}

/* Waits until a number is at most so much, and known. */
static bool falls_to(uint32_t node, const char *path, double most, unsigned tries) {
    for (unsigned i = 0; i < tries; i++) {
        const double value = cluster_number(&cluster, node, path);
        if (value >= 0 && value <= most) return true;
        cluster_pause(0.5);
    }
    return false;
}

static void show(uint32_t node) {
    print_message("node %u: %.2f bits, %.0f of %.0f B/s used, %.0f of it rest; %.0f rounds with "
                  "it, %.0f left out\n",
                  node, cluster_number(&cluster, node, "contributions.bits_per_parameter"),
                  cluster_number(&cluster, node, "contributions.used_bytes_per_s"),
                  cluster_number(&cluster, node, "contributions.budget_bytes_per_s"),
                  cluster_number(&cluster, node, "contributions.rest_bytes_per_s"),
                  cluster_number(&cluster, node, "sync.rounds_contributed"),
                  cluster_number(&cluster, node, "contributions.rounds_left_out"));
}

/* What a node sends, in bytes a second, once it has settled: it follows from how fast this machine
 * is. */
static double upload_rate(uint32_t node) {
    assert_true(cluster_reaches(&cluster, node, "sync.rounds_contributed", 40, 90));
    return cluster_number(&cluster, node, "network.out_bytes_per_s");
}

static void restart(uint32_t node, const char *network) {
    const struct cluster_options options = {.network = network, .stub = "--step-us 20000"};
    assert_int_equal(cluster_end(&cluster, node, SIGTERM, 40), TW_EXIT_OK);
    cluster_configure(&cluster, node, &options);
    cluster_start(&cluster, node, NULL);
}

static void each_node_keeps_to_its_own_budget(void **state) {
    (void)state;
    static const char *const budgets[NODES] = {[POOR] = "budget = 8kbit"};
    char line[64];
    open_three(budgets);
    for (uint32_t i = 0; i < NODES; i++)
        assert_true(cluster_reaches(&cluster, i, "sync.rounds_committed", 10, 60));
    assert_true(cluster_reaches(&cluster, FREE, "contributions.bits_per_parameter", 3.9, 30));
    const bool is_left_out =
        cluster_reaches(&cluster, POOR, "contributions.rounds_left_out", 3, 60);

    /* A third of what it sends is contributions: with a fifth less they have to be smaller. While a
     * group is new its nodes send more, and who was restarted other parts: so that comes first. */
    restart(THRIFTY, NULL);
    (void)snprintf(line, sizeof(line), "budget = %.0fbit", 0.8 * 8 * upload_rate(THRIFTY));
    restart(THRIFTY, line);
    const bool is_thrifty = falls_to(THRIFTY, "contributions.bits_per_parameter", 3.5, 180);
    for (uint32_t i = 0; i < NODES; i++) show(i);
    assert_true(is_thrifty && is_left_out);

    /* The others go on, and it follows. */
    const double rounds = cluster_number(&cluster, FREE, "sync.rounds_contributed");
    assert_true(cluster_reaches(&cluster, FREE, "sync.rounds_contributed", rounds + 5, 60));
    assert_true(cluster_reaches(&cluster, POOR, "sync.rounds_committed", rounds + 5, 60));
    char counts[96];
    cluster_string(&cluster, POOR, "contributions.budget_counts", counts);
    assert_string_equal(counts, "upload");
    for (uint32_t i = 0; i < NODES; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_null(strstr(cluster_log(&cluster, i), "ev=request_refused"));
    }
    for (uint32_t i = 0; i < NODES; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
    assert_true(cluster_digests(&cluster, FREE, THRIFTY) >= 10);
    assert_true(cluster_digests(&cluster, FREE, POOR) >= 10);
    has_passed = true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(each_node_keeps_to_its_own_budget, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
