/* Three daemons whose processes are killed at random, one at a time. The others continue, decided
 * rounds stay decided, and after the faults all nodes merge again. TW_CHAOS_FAULTS (default 6) is
 * the number of faults; TW_CHAOS_SEED is the seed.
 *
 * Results are kept only in memory. If all holders of a result died within its round, the lineage
 * would have to be given up. The simulator tests that; here only one process dies at a time. */
#include <signal.h>

#include "base/exit_codes.h"
#include "base/rng.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { NODES = 3 };

static struct cluster cluster;

static int open_three(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, NODES);
    const struct cluster_options options = {.more = "checkpoint_interval = 1s",
                                            .stub = "--step-us 5000"};
    for (uint32_t i = 0; i < NODES; i++) cluster_configure(&cluster, i, &options);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* Causes one fault: a worker is killed, a daemon is killed with its worker, or a daemon must
 * leave. */
static void fault_do(struct tw_rng *rng, uint32_t idx) {
    switch (tw_rng_below(rng, 3)) {
    case 0: {
        const double pid = cluster_number(&cluster, idx, "worker.pid");
        if (pid > 1) (void)kill((pid_t)pid, SIGKILL);
        return;
    }
    case 1: assert_int_equal(cluster_end(&cluster, idx, SIGKILL, 10), 1000 + SIGKILL); break;
    default: assert_int_equal(cluster_end(&cluster, idx, SIGTERM, 40), TW_EXIT_OK);
    }
    cluster_pause(tw_rng_unit(rng));
    cluster_start(&cluster, idx, NULL);
}

/* Waits until every node is in every roster, and every anchor has recent contributions of
 * others. */
static void all_mix(void) {
    for (uint32_t i = 0; i < NODES; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.roster_members", NODES, 100));
        assert_true(cluster_reaches(&cluster, i, "sync.mixed_peers", NODES - 1, 100));
    }
}

TEST_IN(open_three, close_all, killed_processes_never_part_the_nodes) {
    struct tw_rng rng;
    const uint64_t seed = setting("TW_CHAOS_SEED", 7), faults = setting("TW_CHAOS_FAULTS", 6);
    print_message("seed %llu, %llu faults\n", (unsigned long long)seed, (unsigned long long)faults);
    tw_rng_seed(&rng, seed);
    for (uint32_t i = 0; i < NODES; i++) cluster_start(&cluster, i, NULL);
    all_mix();
    for (uint64_t i = 0; i < faults; i++) {
        const uint32_t idx = (uint32_t)tw_rng_below(&rng, NODES), other = (idx + 1) % NODES;
        const double steps = cluster_number(&cluster, other, "train.steps");
        cluster_pause(tw_rng_unit(&rng));
        fault_do(&rng, idx);
        assert_true(cluster_reaches(&cluster, other, "train.steps", steps + 1, 5));
        all_mix();
    }
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    for (uint32_t i = 0; i < NODES; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.rounds_committed", rounds + 10, 60));
        assert_null(strstr(cluster_log(&cluster, i), "ev=anchor_differs"));
        assert_null(strstr(cluster_log(&cluster, i), "assertion failed"));
        assert_true(cluster_digests(&cluster, i, (i + 1) % NODES) >= 10);
    }
    for (uint32_t i = 0; i < NODES; i++) {
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 40), TW_EXIT_OK);
    }
}
