/* Two daemons with the real worker: a run from its first step to its end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/exit_codes.h"
#include "tests/system/cluster.h"

static struct cluster cluster;
static bool has_passed;

static int open_two(void **state) {
    (void)state;
    has_passed = false;
    cluster_open(&cluster, "100k");
    cluster_make(&cluster, 2);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, !has_passed);
    return 0;
}

static void run_is_trained_to_its_end_by_both(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.mixed_peers", 1, 60));
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_says(&cluster, i, "state=finished", 120));
        assert_true(cluster_number(&cluster, i, "run.clock_tokens") >= 100e3);
        const double loss = cluster_number(&cluster, i, "train.loss_nats");
        print_message("node %u: %.3f nats after %.0f steps\n", i, loss,
                      cluster_number(&cluster, i, "train.steps"));
        assert_true(loss > 0 && loss < 5); /* ln 256 = 5.55 at the start */
    }
    assert_null(strstr(cluster_log(&cluster, 0), "ev=misbehaved"));
    assert_null(strstr(cluster_log(&cluster, 1), "ev=misbehaved"));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 30), TW_EXIT_OK);
    }
    has_passed = true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(run_is_trained_to_its_end_by_both, open_two, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
