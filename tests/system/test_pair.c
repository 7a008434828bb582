/* Two daemons: they meet, mix, survive the death of each other's parts, and refuse strangers. */
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
static bool has_passed;

static int open_two(void **state) {
    (void)state;
    has_passed = false;
    cluster_open(&cluster);
    cluster_make(&cluster, 2);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, !has_passed);
    return 0;
}

static void start_both(void) {
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.roster_members", 2, 20));
}

/* Every APPLY of one log that the other log has too (same fragment, same rounds): same digest? */
static unsigned digests_compare(void) {
    static char first[4 * CLUSTER_TEXT_MAX];
    unsigned equal = 0;
    (void)snprintf(first, sizeof(first), "%s", cluster_log(&cluster, 0));
    const char *second = cluster_log(&cluster, 1);
    for (const char *at = first; (at = strstr(at, "ev=applied ")) != NULL; at++) {
        char line[160], digest[17];
        unsigned fragment;
        unsigned long long rounds;
        if (sscanf(at, "ev=applied fragment=%u rounds=%llu ok=1 digest=%16s", &fragment, &rounds,
                   digest) != 3) {
            continue;
        }
        (void)snprintf(line, sizeof(line),
                       "ev=applied fragment=%u rounds=%llu ok=1 digest=", fragment, rounds);
        const char *other = strstr(second, line);
        if (other == NULL) continue;
        if (strncmp(other + strlen(line), digest, 16) == 0) equal++;
    }
    return equal;
}

static void two_nodes_meet_and_hold_the_same_anchor(void **state) {
    (void)state;
    start_both();
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 20));
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", rounds + 10, 20));
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 10, 20));
    print_message("%u equal digests\n", digests_compare());
    assert_true(digests_compare() >= 10);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
    has_passed = true;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_nodes_meet_and_hold_the_same_anchor, open_two,
                                        close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
