/* Three daemons in a run with sync.codec = auto: one without a budget, one whose budget limits
 * its contributions, and one whose budget is too small for any contribution. All have the same
 * anchor. */
#include <signal.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { FREE, THRIFTY, POOR, NODES };

static struct cluster cluster;

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Rounds at fixed times, so that the bytes per second hardly depend on the machine's speed. */
#define BY_THE_CLOCK                                                                               \
    {"sync.fragments", "3"}, {"sync.period", "60"}, {"sync.overlap", "2"}, {"sync.codec", "auto"}, \
        {"sync.feedback", "0.95"}, {                                                               \
        "sync.pace", "clock"                                                                       \
    }

static void open_some(uint32_t count, const char *const (*keys)[2], const char *const *budgets) {
    cluster_open(&cluster, "1g");
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct cluster_options options = {.network = budgets[i], .stub = "--step-us 20000"};
        cluster_configure(&cluster, i, &options);
    }
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

FACT(each_node_keeps_to_its_own_budget) {
    static const char *const budgets[NODES] = {
        [POOR] = "budget = 8kbit", [THRIFTY] = "budget = 32kbit"};
    static const char *const keys[][2] = {
        BY_THE_CLOCK, {"sync.interval", "1s"}, {"sync.result", "int4"}, {NULL, NULL}};
    open_some(NODES, keys, budgets);
    /* The nodes start one after the other. Members send the state to a node that joins. That
     * traffic would put the node with the budget in debt. */
    static const uint32_t order[NODES] = {FREE, POOR, THRIFTY};
    for (uint32_t k = 0; k < NODES; k++) {
        cluster_start(&cluster, order[k], NULL);
        assert_true(cluster_reaches(&cluster, order[k], "sync.roster_members", k + 1, 60));
    }
    const bool is_settled =
        cluster_reaches(&cluster, THRIFTY, "sync.rounds_contributed", 8, 90) &&
        cluster_reaches(&cluster, FREE, "contributions.bits_per_parameter", 3.9, 30) &&
        cluster_reaches(&cluster, POOR, "contributions.rounds_left_out", 3, 60);
    for (uint32_t i = 0; i < NODES; i++) show(i);
    assert_true(is_settled);
    assert_true(cluster_number(&cluster, THRIFTY, "contributions.bits_per_parameter") < 3.5);

    /* The other nodes still contribute. POOR has spent its budget, but follows their rounds. */
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
}

/* Partners may send Deltas with different numbers of bits. The anchors, which they also send, cost
 * both the same. */
FACT(partners_keep_to_their_own_budgets) {
    enum { PARTNERS = 2 };
    static const char *const budgets[PARTNERS] = {[THRIFTY] = "budget = 56kbit"};
    static const char *const keys[][2] = {
        {"sync.preset", "noloco"}, BY_THE_CLOCK, {"sync.interval", "1s"}, {NULL, NULL}};
    open_some(PARTNERS, keys, budgets);
    for (uint32_t i = 0; i < PARTNERS; i++) cluster_start(&cluster, i, NULL);
    bool is_settled = true;
    /* Nodes need some rounds to measure the traffic besides contributions. */
    for (uint32_t i = 0; i < PARTNERS; i++)
        is_settled &= cluster_reaches(&cluster, i, "sync.pairs.merged", 12, 120);
    for (uint32_t i = 0; i < PARTNERS; i++) show(i);
    assert_true(is_settled);
    assert_true(cluster_number(&cluster, FREE, "contributions.bits_per_parameter") > 3.9);
    const double bits = cluster_number(&cluster, THRIFTY, "contributions.bits_per_parameter");
    assert_true(bits > 0.0 && bits < 3.5);
    for (uint32_t i = 0; i < PARTNERS; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
    }
}

/* A node that cannot afford an exchange trains at its own pace. No other node misses an exchange
 * because of it. */
FACT(node_that_cannot_afford_a_partner_trains_alone) {
    static const char *const budgets[NODES] = {[POOR] = "budget = 8kbit"};
    static const char *const keys[][2] = {
        {"sync.preset", "noloco"}, BY_THE_CLOCK, {"sync.interval", "1s"}, {NULL, NULL}};
    open_some(NODES, keys, budgets);
    for (uint32_t i = 0; i < NODES; i++) cluster_start(&cluster, i, NULL);
    assert_true(cluster_reaches(&cluster, POOR, "contributions.rounds_left_out", 20, 90));
    /* A round alone is counted when it is applied, a moment after its contribution was left out. */
    assert_true(cluster_reaches(&cluster, POOR, "sync.pairs.alone", 20, 20));
    for (uint32_t i = 0; i < NODES; i++) show(i);
    const double encoded = cluster_number(&cluster, POOR, "sync.pairs.merged"),
                 alone = cluster_number(&cluster, POOR, "sync.pairs.alone");
    assert_true(alone >= 20 && encoded < alone / 4);
    assert_true(cluster_reaches(&cluster, FREE, "sync.pairs.merged", 12, 60));
    assert_true(cluster_number(&cluster, FREE, "sync.pairs.merged") >
                cluster_number(&cluster, FREE, "sync.pairs.alone"));
    for (uint32_t i = 0; i < NODES; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_null(strstr(cluster_log(&cluster, i), "ev=request_refused"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
    }
}
