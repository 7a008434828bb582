/* A node with the run secret tells of invented nodes, so that others dial hosts of its choice:
 * hosts of the network behind them, and of third parties. Runs in a network namespace of its own,
 * where this machine has the addresses of all of them. Wants root; skipped otherwise. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/router/dial_budget.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { IDS = 256, WATCH_S = 14, SERVICES = 5 };

#define PUBLIC "203.0.113.66"      /* the attacker's address */
#define BEHIND "192.168.77.9"      /* a host of the victim's network */
#define THIRD_PARTY "198.51.100.7" /* a host of the internet that runs no node */

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static bool has_namespace;
static struct service {
    const char *host;
    uint16_t port;
    int fd;
    unsigned dials;
} services[SERVICES];

static int setup_all(void **state) {
    has_namespace = geteuid() == 0 && unshare(CLONE_NEWNET) == 0 &&
                    system("ip link set lo up && ip addr add " PUBLIC "/32 dev lo && "
                           "ip addr add " BEHIND "/24 dev lo && "
                           "ip addr add " THIRD_PARTY "/32 dev lo") == 0;
    return 0;
}

static int close_all(void **state) {
    if (has_namespace) cluster_close(&cluster, !test_has_passed);
    return 0;
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void service_open(struct service *service) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    service->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(service->fd >= 0 && inet_pton(AF_INET, service->host, &at.sin_addr) == 1);
    assert_int_equal(bind(service->fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(service->fd, 64), 0);
    assert_int_equal(getsockname(service->fd, (struct sockaddr *)&at, &size), 0);
    service->port = ntohs(at.sin_port);
}

/* Counts and closes the connections that have come. */
static void count_dials(void) {
    for (unsigned i = 0; i < SERVICES; i++) {
        int fd;
        while ((fd = accept(services[i].fd, NULL, NULL)) >= 0) {
            services[i].dials++;
            (void)close(fd);
        }
    }
}

/* Tells of all invented nodes, each at one of the services. */
static bool tell(struct hostile *h) {
    static struct tw_message peers;
    for (unsigned i = 0; i < IDS; i += TW_MEMBER_ROWS_PER_MESSAGE) {
        peers = (struct tw_message){.kind = TW_MSG_PEERS};
        peers.u.peers.count = TW_MEMBER_ROWS_PER_MESSAGE;
        for (unsigned k = 0; k < TW_MEMBER_ROWS_PER_MESSAGE; k++) {
            const struct service *service = &services[(i + k) % SERVICES];
            struct tw_member_row *row = &peers.u.peers.rows[k];
            row->id.bytes[0] = (uint8_t)(i + k);
            row->id.bytes[1] = 0x55;
            (void)snprintf(row->addrs[0], TW_ADDR_BYTES, "%s:%u", service->host,
                           (unsigned)service->port);
        }
        if (!hostile_message(h, &peers)) return false;
    }
    return true;
}

/* "Nobody makes a node dial hosts of its own network, or one host often." */
TEST_IN(setup_all, close_all, invented_nodes_are_hardly_dialled) {
    static struct hostile h;
    static const char *const hosts[SERVICES] = {BEHIND, BEHIND, THIRD_PARTY, THIRD_PARTY,
                                                THIRD_PARTY};
    unsigned behind = 0, third = 0;
    if (!has_namespace) skip();
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 1);
    for (unsigned i = 0; i < SERVICES; i++) {
        services[i].host = hosts[i];
        service_open(&services[i]);
    }
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    target.from = PUBLIC;
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=ready", 30));
    const double begin_s = now_s();
    assert_true(hostile_join(&h, &target, NULL));
    for (double told_s = 0; now_s() < begin_s + WATCH_S; cluster_pause(.02)) {
        count_dials();
        if (now_s() < told_s + 1) continue;
        told_s = now_s();
        assert_true(tell(&h)); /* the link is not closed: other nodes tell of dead nodes too */
    }
    count_dials();
    for (unsigned i = 0; i < SERVICES; i++)
        *(services[i].host == hosts[0] ? &behind : &third) += services[i].dials;
    print_message("%u dials to the network behind, %u to a third party\n", behind, third);
    assert_int_equal(behind, 0);
    /* 8 dials, and then pauses of 4, 8, 16 s. */
    assert_in_range(third, 1, TW_DIAL_BUDGET_FREE + 3);
    hostile_close(&h);
    for (unsigned i = 0; i < SERVICES; i++) (void)close(services[i].fd);
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    return test_run(NULL, NULL);
}
