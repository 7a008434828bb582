/* One daemon alone: training, status, death of a worker, end, and every way not to start. */
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

static struct cluster cluster;

static int open_one(void **state) {
    (void)state;
    cluster_open(&cluster);
    cluster_make(&cluster, 1);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, false);
    return 0;
}

static void node_without_peers_trains_and_says_solo(void **state) {
    (void)state;
    char text[96];
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 30, 20));
    cluster_string(&cluster, 0, "state", text);
    assert_string_equal(text, "solo");
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(node_without_peers_trains_and_says_solo, open_one,
                                        close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
