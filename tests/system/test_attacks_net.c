/* Attacks on a live daemon by way of the network: by strangers, and by ids that hold the secret but
 * merge with nobody. Each one names the promise of SECURITY.md that it tries to break. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/system/hostile.h"

enum { KIB = 1024, MIB = 1024 * KIB };

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static bool has_passed;

/* Two honest nodes that merge; node 0 is attacked. `network`: lines added to its [network]. */
static void open_with(const char *network) {
    has_passed = false;
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    const struct cluster_options options = {.network = network};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 30));
}

static int close_all(void **state) {
    (void)state;
    cluster_close(&cluster, !has_passed);
    return 0;
}

/* Rounds go on, and no honest link broke. */
static void rounds_go_on(void) {
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 30));
    assert_int_equal(cluster_lines(&cluster, 1, "ev=peer_down"), 0);
    has_passed = true;
}

/* ---- strangers ----------------------------------------------------------------------------- */

/* Sends raw bytes until the daemon closes or `most` are sent. Returns the number sent. */
static size_t pump(int fd, size_t most) {
    static uint8_t noise[64 * KIB];
    size_t sent = 0;
    while (sent < most) {
        const ssize_t got = send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
        if (got <= 0) break;
        sent += (size_t)got;
    }
    return sent;
}

/* A connection that is refused, and then pumps. */
static size_t pump_refused(void) {
    static struct hostile h;
    struct tw_hello hello;
    if (!hostile_open(&h, &target, NULL)) return 0;
    hostile_hello(&h, &target, TW_ROLE_CONTROL, NULL, &hello);
    (void)hostile_say(&h, &hello);
    struct tw_frame frame;
    (void)hostile_next(&h, 10, &frame); /* the refusal */
    const size_t sent = pump(h.fd, (size_t)1 << 30);
    hostile_close(&h);
    return sent;
}

static void refused_stranger_costs_no_download(void **state) {
    (void)state;
    open_with("download = 10mbit\n");
    target.secret = NULL;
    const size_t sent = pump_refused();
    print_message("%zu bytes sent after the refusal\n", sent);
    assert_true(sent < 32 * MIB); /* buffers of both kernels */
    rounds_go_on();
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, close_all)
    const struct CMUnitTest tests[] = {
        TEST(refused_stranger_costs_no_download),
    };
#undef TEST
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
