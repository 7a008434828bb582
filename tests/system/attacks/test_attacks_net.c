/* Attacks on a live daemon over the network: by strangers, and by nodes that have the secret but
 * never merge. Each test names the promise of SECURITY.md that it tries to break. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/exit_codes.h"
#include "daemon/auth/identity.h"
#include "daemon/net/bans.h"
#include "proto/control.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { KIB = 1024, MIB = 1024 * KIB };

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static pid_t child; /* process that floods node 0; 0: none */

/* Opens a cluster whose node 0 will be attacked. `network` is added to its [network] section. */
static void open_cluster(const char *network) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    const struct cluster_options options = {.network = network};
    cluster_configure(&cluster, 0, &options);
}

/* Opens a cluster of two honest nodes that merge. */
static void open_with(const char *network) {
    open_cluster(network);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 30));
}

static void end_child(void) {
    if (child == 0) return;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    child = 0;
}

static int close_all(void **state) {
    end_child();
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Checks that rounds are still decided and no honest link broke. */
static void rounds_go_on(void) {
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 30));
    assert_int_equal(cluster_lines(&cluster, 1, "ev=peer_down"), 0);
}

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- strangers ----------------------------------------------------------------------------- */

/* Sends raw bytes until the daemon closes the connection or `most` bytes are sent. Returns the
 * number of bytes sent. */
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

/* Opens a connection, is refused, and then sends as much as it can. Returns the number of bytes
 * sent. */
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

FACT(refused_stranger_costs_no_download) {
    open_with("download = 10mbit\n");
    target.secret = NULL;
    const size_t sent = pump_refused();
    print_message("%zu bytes sent after the refusal\n", sent);
    assert_true(sent < 32 * MIB); /* the kernels at both ends buffer less than this */
    rounds_go_on();
}

/* Strangers have used up their share: a host that no member came from gets no byte, but a node
 * that knocks is let in from any host. */
static void strangers_are_out(const char *from) {
    static struct hostile h;
    uint8_t hello[KIB], answer[KIB];
    target.from = from;
    target.secret = NULL;
    const size_t size = hostile_client_hello(&target, hello, sizeof(hello));
    const int fd = hostile_tcp(&target);
    assert_true(fd >= 0 && send(fd, hello, size, MSG_NOSIGNAL) == (ssize_t)size);
    assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
    (void)close(fd);
    target.secret = &secret;
    assert_true(hostile_join(&h, &target, NULL));
    hostile_close(&h);
    target.from = NULL;
    assert_true(hostile_join(&h, &target, NULL));
    hostile_close(&h);
}

/* SECURITY.md promises that strangers use up no quota: a stranger sends more than the quota, and
 * known hosts and nodes that knock are still admitted. */
FACT(strangers_use_up_no_quota) {
    static struct hostile h;
    open_cluster("quota = 2MB/month\n");
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=ready", 30));
    assert_true(hostile_join(&h, &target, NULL)); /* makes 127.0.0.1 a known host */
    hostile_close(&h);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 40), TW_EXIT_OK);
    /* 127.0.0.1 stays a known host after a restart. */
    cluster_start(&cluster, 0, NULL);
    for (unsigned i = 0; i < 300 && cluster_lines(&cluster, 0, "ev=ready") < 2; i++)
        cluster_pause(.1);
    target.from = "127.0.1.7";
    target.secret = NULL;
    for (unsigned i = 0; i < 100 && cluster_lines(&cluster, 0, "ev=strangers_out") == 0; i++)
        (void)pump_refused();
    assert_true(cluster_says(&cluster, 0, "ev=strangers_out", 5));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=links_rest"), 0);
    strangers_are_out("127.0.1.7");
    assert_true(cluster_number(&cluster, 0, "network.caps.strangers_refused") >= 1);
    /* A restart gives strangers no second share, and counts the first share in no month. */
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 40), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL);
    for (unsigned i = 0; i < 300 && cluster_lines(&cluster, 0, "ev=strangers_out") < 2; i++)
        cluster_pause(.1);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=strangers_out"), 2);
    strangers_are_out("127.0.1.8");
    assert_int_equal(cluster_lines(&cluster, 0, "ev=links_rest"), 0);
    assert_true(cluster_number(&cluster, 0, "network.caps.month_bytes") < 1e6);
}

/* Opens about `per_s` connections per second, each from another network, until it is killed.
 * Every second connection sends a ClientHello; the others stay silent. */
static void flood(unsigned per_s, unsigned at_once) {
    enum { OPEN_MAX = 256 };
    static int open_fds[OPEN_MAX];
    uint8_t hello[KIB];
    target.secret = NULL;
    const size_t size = hostile_client_hello(&target, hello, sizeof(hello));
    const struct timespec pause = {.tv_nsec = 1000000000L / per_s};
    for (unsigned i = 0;; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "127.%u.%u.1", 10 + i / 250 % 100, i % 250);
        target.from = host;
        int *slot = &open_fds[i % OPEN_MAX];
        if (*slot > 0) (void)close(*slot);
        *slot = hostile_tcp(&target);
        if (*slot >= 0 && (i % 2 == 0 || i < at_once)) (void)send(*slot, hello, size, MSG_NOSIGNAL);
        if (i >= at_once) (void)nanosleep(&pause, NULL);
    }
}

/* "A flood shuts no new member out": 400 connections a second from thousands of networks. */
FACT(flood_shuts_no_new_member_out) {
    enum { TRIES = 20 };
    static struct hostile h;
    unsigned in = 0;
    open_with("");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) flood(400, TW_HANDSHAKE_LIMITER_BURST + 300);
    assert_true(cluster_says(&cluster, 0, "a second from strangers", 20));
    for (unsigned i = 0; i < TRIES; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "127.200.%u.1", i);
        target.from = host;
        if (!hostile_join(&h, &target, NULL)) continue;
        in++;
        hostile_close(&h);
    }
    end_child();
    print_message("%u of %u new members got in\n", in, (unsigned)TRIES);
    assert_int_equal(in, TRIES);
    rounds_go_on();
}

/* Sends the same ClientHello repeatedly from one network. Beyond the limits for strangers,
 * connections are closed without a byte. */
static void repeat_client_hello(void) {
    uint8_t hello[KIB], answer[KIB];
    const size_t size = hostile_client_hello(&target, hello, sizeof(hello));
    const double begin_s = now_s();
    unsigned answered = 0, silent = 0;
    target.from = "127.30.0.1";
    for (unsigned i = 0; i < 2 * TW_HANDSHAKE_LIMITER_NET_BURST; i++) {
        const int fd = hostile_tcp(&target);
        assert_true(fd >= 0 && send(fd, hello, size, MSG_NOSIGNAL) == (ssize_t)size);
        const ssize_t got = recv(fd, answer, sizeof(answer), 0);
        answered += got > 0;
        silent += got == 0;
        (void)close(fd);
    }
    /* The bucket fills while the connections are made. */
    const double refilled = TW_HANDSHAKE_LIMITER_NET_PER_S * (now_s() - begin_s);
    assert_true(answered <= TW_HANDSHAKE_LIMITER_NET_BURST + 1 + (unsigned)refilled);
    assert_true(answered + silent == 2 * TW_HANDSHAKE_LIMITER_NET_BURST);
}

FACT(stranger_gets_no_byte_in_a_flood) {
    open_with("");
    target.secret = NULL;
    repeat_client_hello();
    rounds_go_on();
}

/* SECURITY.md: "A knock that is seen twice is none". Copies of a ClientHello count towards the
 * limits for strangers, so the buckets of new members stay full. */
FACT(copied_knock_pays_as_a_stranger) {
    static struct hostile h;
    open_with("");
    repeat_client_hello();
    /* Another node in the same network gets in with a fresh knock. */
    assert_true(hostile_join(&h, &target, NULL));
    hostile_close(&h);
    rounds_go_on();
}

/* Sends noise from changing hosts until `until_s`, at no more than 1 Gbit/s. Half of the noise
 * follows a refused HELLO, and half replaces TLS. Writes the number of bytes sent to the pipe. */
static void pump_gigabit(double until_s, int told_fd) {
    enum { PER_S = 125 * 1000 * 1000, AT_ONCE = 4 * MIB };
    const double begin_s = now_s();
    uint64_t sent = 0;
    target.secret = NULL;
    for (unsigned i = 0; now_s() < until_s; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "127.%u.%u.1", 10 + i / 250 % 100, i % 250);
        target.from = host;
        const int fd = i % 2 == 0 ? -1 : hostile_tcp(&target);
        sent += i % 2 == 0 ? pump_refused() : fd >= 0 ? pump(fd, AT_ONCE) : 0;
        if (fd >= 0) (void)close(fd);
        while (now_s() < until_s && (double)sent > (now_s() - begin_s) * PER_S)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    TW_ASSERT(write(told_fd, &sent, sizeof(sent)) == sizeof(sent));
    _exit(0);
}

/* A stranger floods a node that has a download cap and a quota, at up to 1 Gbit/s. The node's
 * rounds continue during the flood and afterwards. TW_FLOOD_S: seconds of the flood, 3 by
 * default. */
FACT(gigabit_of_a_stranger_stops_no_round) {
    const char *text = getenv("TW_FLOOD_S");
    const unsigned seconds = text != NULL ? (unsigned)strtoul(text, NULL, 10) : 3;
    uint64_t sent = 0;
    int ends[2];
    open_with("download = 10mbit\nquota = 1TB/month\n");
    assert_int_equal(pipe(ends), 0);
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    const double begin_s = now_s();
    child = fork();
    assert_true(child >= 0);
    if (child == 0) pump_gigabit(begin_s + seconds, ends[1]);
    for (unsigned i = 1; i <= seconds; i++) { /* rounds end in every second of the flood */
        const double now = cluster_number(&cluster, 0, "sync.rounds_committed");
        assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", now + 1, 5));
        while (now_s() < begin_s + i) cluster_pause(.05);
    }
    const double made = cluster_number(&cluster, 0, "sync.rounds_committed") - rounds;
    assert_true(read(ends[0], &sent, sizeof(sent)) == sizeof(sent));
    (void)waitpid(child, NULL, 0);
    child = 0;
    (void)close(ends[0]);
    (void)close(ends[1]);
    print_message("%u s, %.1f MB sent, %.0f rounds, %.0f bytes of strangers\n", seconds,
                  (double)sent / 1e6, made,
                  cluster_number(&cluster, 0, "network.caps.strangers_bytes"));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=links_rest"), 0);
    rounds_go_on();
}

/* "A stranger learns nothing of the run". Tests the replies to a HELLO of another run and to a
 * HELLO without the secret. */
FACT(stranger_learns_no_run) {
    static struct hostile h;
    char run[9];
    open_with("");
    tw_id_short(&target.run, run);
    for (unsigned i = 0; i < 2; i++) {
        struct hostile_target stranger = target;
        struct tw_hello hello;
        stranger.secret = NULL;
        if (i == 1) memset(&stranger.run, 0x42, sizeof(stranger.run));
        assert_true(hostile_open(&h, &stranger, NULL));
        hostile_hello(&h, &stranger, TW_ROLE_CONTROL, NULL, &hello);
        assert_true(hostile_say(&h, &hello) && hostile_ends(&h, 5) && h.has_goodbye);
        assert_int_equal(h.goodbye.status, i == 0 ? TW_WRONG_SECRET : TW_OTHER_RUN);
        assert_null(strstr(h.goodbye.sentence, run));
        hostile_close(&h);
    }
    rounds_go_on();
}

/* ---- peers of no merge -------------------------------------------------------------------- */

/* Links as a member does, and announces these ports of `host` as its addresses. */
static bool join_announcing(struct hostile *h, const char *host, const uint16_t *ports,
                            uint32_t count) {
    struct tw_hello hello;
    struct tw_frame frame;
    uint8_t features[8];
    if (!hostile_open(h, &target, NULL)) return false;
    hostile_hello(h, &target, TW_ROLE_CONTROL, NULL, &hello);
    for (uint32_t i = 0; i < count; i++)
        (void)snprintf(hello.addrs[i], TW_ADDR_BYTES, "%s:%u", host, (unsigned)ports[i]);
    hello.addrs_count = count;
    tw_put_u64(features, TW_FEATURES);
    tw_extensions_add(&hello.extensions, TW_EXTENSION_FEATURES, features, sizeof(features));
    tw_hello_prove(&hello, target.secret, h->ekm);
    if (hostile_say(h, &hello) && hostile_next(h, 10, &frame) == TW_OK &&
        frame.kind == TW_FRAME_HELLO)
        return true;
    hostile_close(h);
    return false;
}

/* Links, asks to be dialled back, and counts the answers of a moment. */
static unsigned probe_ports(const char *host, const uint16_t *ports, uint32_t count) {
    static struct hostile h;
    static struct tw_message probe;
    struct tw_frame frame;
    unsigned answers = 0;
    assert_true(join_announcing(&h, host, ports, count));
    probe = (struct tw_message){.kind = TW_MSG_PROBE};
    probe.u.probe.token = 7;
    assert_true(hostile_message(&h, &probe));
    for (unsigned i = 0; i < 20 && hostile_next(&h, .05, &frame) == TW_OK; i++)
        answers += frame.kind == TW_MSG_PROBED;
    hostile_close(&h);
    return answers;
}

/* "A peer has no ports scanned": it asks for ports of two hosts, each time over a fresh link. */
FACT(peer_has_no_ports_scanned) {
    open_with("");
    target.from = "127.0.0.5";
    const uint16_t ports[4] = {1, 2, cluster.nodes[0].port, cluster.nodes[1].port};
    unsigned answers = 0;
    for (unsigned i = 0; i < 5; i++) answers += probe_ports("127.0.0.1", ports, 4);
    for (unsigned i = 0; i < 5; i++) answers += probe_ports("127.0.0.5", ports, 4);
    /* No port, open or closed, is reported at once, and only a few are dialled. */
    assert_int_equal(answers, 0);
    rounds_go_on();
}

/* "Chunks that nobody asked for end the link", even small ones. */
FACT(unasked_chunks_end_the_link) {
    static struct hostile h, bulk;
    uint8_t body[TW_CHUNK_HEADER_BYTES + KIB] = {77};
    struct tw_hello hello;
    open_with("download = 1mbit\n");
    assert_true(hostile_join(&h, &target, NULL) && hostile_open(&bulk, &target, &h));
    hostile_hello(&bulk, &target, TW_ROLE_BULK, h.tag, &hello);
    assert_true(hostile_say(&bulk, &hello));
    for (unsigned i = 0; i < 100; i++)
        (void)hostile_frame(&bulk, TW_FRAME_CHUNK, body, sizeof(body));
    assert_true(hostile_ends(&h, 5));
    assert_true(h.has_goodbye && h.goodbye.status == TW_PROTO);
    assert_non_null(strstr(h.goodbye.sentence, "nobody asked for"));
    hostile_close(&bulk);
    hostile_close(&h);
    rounds_go_on();
}

/* Links fresh ids, numbered first to end - 1, from target.from. Returns the number that were
 * admitted. */
static unsigned crowd_join(struct hostile **crowd, unsigned first, unsigned end) {
    unsigned in = 0;
    for (unsigned i = first; i < end; i++) {
        crowd[i] = malloc(sizeof(*crowd[i]));
        TW_ASSERT(crowd[i] != NULL);
        in += hostile_join(crowd[i], &target, NULL);
    }
    return in;
}

static void crowd_leave(struct hostile **crowd, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (crowd[i]->fd >= 0) hostile_close(crowd[i]);
        free(crowd[i]);
    }
}

/* "New links do not make a node tell everybody each time": a peer counts the PEERS messages it
 * gets. */
FACT(new_links_are_told_of_together) {
    enum { COUNT = 30 };
    static struct hostile *crowd[COUNT];
    static struct hostile watcher;
    struct tw_frame frame;
    unsigned told = 0;
    open_with("");
    assert_true(hostile_join(&watcher, &target, NULL));
    const double begin_s = now_s();
    assert_true(crowd_join(crowd, 0, COUNT) == COUNT);
    while (hostile_next(&watcher, .3, &frame) == TW_OK && now_s() < begin_s + 5)
        told += frame.kind == TW_MSG_PEERS;
    print_message("%u PEERS\n", told);
    assert_true(told > 0 && told <= 2 + now_s() - begin_s);
    crowd_leave(crowd, COUNT);
    hostile_close(&watcher);
    rounds_go_on();
}

/* "No crowd of fresh ids shuts a member out", whether it comes from one host or from many. */
FACT(crowd_shuts_no_member_out) {
    enum {
        OF_ONE = TW_PEERS_FREE_MAX + 1,
        HOSTS = 4,
        OF_HOST = 4,
        CROWD = OF_ONE + HOSTS * OF_HOST
    };
    static struct hostile *crowd[CROWD];
    static struct tw_message alive = {.kind = TW_MSG_PROBE};
    open_with("");
    assert_int_equal(cluster_end(&cluster, 1, SIGKILL, 10), 1000 + SIGKILL);
    target.from = "127.0.2.1";
    unsigned in = crowd_join(crowd, 0, OF_ONE);
    assert_int_equal(in, TW_PEERS_FREE_MAX);
    for (unsigned i = 0; i < HOSTS; i++) {
        char host[32];
        (void)snprintf(host, sizeof(host), "127.0.3.%u", 1 + i);
        target.from = host;
        const unsigned first = OF_ONE + i * OF_HOST;
        in += crowd_join(crowd, first, first + OF_HOST);
        /* messages keep the earlier links from being closed as silent */
        for (unsigned k = 0; k < first; k++)
            if (crowd[k]->fd >= 0) (void)hostile_message(crowd[k], &alive);
    }
    assert_int_equal(in, TW_PEERS_MAX); /* every peer slot is taken */
    const unsigned ups = cluster_lines(&cluster, 1, "ev=peer_up");
    cluster_start(&cluster, 1, NULL);
    for (unsigned i = 0; i < CROWD; i++)
        if (crowd[i]->fd >= 0) (void)hostile_message(crowd[i], &alive);
    for (unsigned i = 0; i < 50 && cluster_lines(&cluster, 1, "ev=peer_up") == ups; i++)
        cluster_pause(.1);
    assert_true(cluster_lines(&cluster, 1, "ev=peer_up") > ups);
    assert_true(cluster_lines(&cluster, 0, "needs the place") >= 1);
    crowd_leave(crowd, CROWD);
}

/* Breaks the protocol with one id until that id is banned. */
static void earn_ban(void) {
    static struct hostile h, first;
    const unsigned before = cluster_lines(&cluster, 0, "ev=peer_banned");
    assert_true(hostile_open(&first, &target, NULL));
    for (unsigned i = 0; i < TW_BAN_OFFENCES; i++) {
        if (!hostile_join(&h, &target, &first)) fail_msg("let in %u times", i);
        (void)hostile_frame(&h, TW_MSG_STATUS, "garbage", 7);
        assert_true(hostile_ends(&h, 10));
        hostile_close(&h);
    }
    hostile_close(&first);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=peer_banned"), before + 1);
}

static bool may_join(const char *host) {
    static struct hostile h;
    target.from = host;
    const bool is_in = hostile_join(&h, &target, NULL);
    const bool is_named = strstr(h.goodbye.sentence, "a node of this host broke the") != NULL;
    assert_int_equal(is_in, !is_named);
    hostile_close(&h);
    return is_in;
}

/* "A new id does not end a ban". Yet members on the same host need not wait, nor does any node
 * on a member's host. */
FACT(banned_node_has_to_change_its_host) {
    open_with("");
    target.from = "127.0.5.1";
    assert_true(may_join("127.0.5.1"));
    earn_ban();
    assert_false(may_join("127.0.5.1"));
    assert_true(may_join("127.0.5.2"));
    target.from = NULL; /* now the attacker shares the host of node 1 */
    earn_ban();
    assert_true(may_join(NULL));
    assert_int_equal(cluster_end(&cluster, 1, SIGKILL, 10), 1000 + SIGKILL);
    const unsigned ups = cluster_lines(&cluster, 1, "ev=peer_up");
    for (unsigned i = 0; i < 100 && may_join(NULL); i++) cluster_pause(.1);
    assert_false(may_join(NULL)); /* no member is linked from that host now */
    cluster_start(&cluster, 1, NULL);
    for (unsigned i = 0; i < 50 && cluster_lines(&cluster, 1, "ev=peer_up") == ups; i++)
        cluster_pause(.1);
    /* The member itself can still link. */
    assert_true(cluster_lines(&cluster, 1, "ev=peer_up") > ups);
}

/* Finds the address from which this machine dials the internet. Returns false if there is none. */
static bool find_outer(char host[INET_ADDRSTRLEN]) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, own;
    socklen_t size = sizeof(own);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && inet_pton(AF_INET, "192.0.2.1", &to.sin_addr) == 1);
    const bool is_found = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
                          getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
                          inet_ntop(AF_INET, &own.sin_addr, host, INET_ADDRSTRLEN) != NULL;
    (void)close(fd);
    return is_found;
}

/* Opens a service on the node's machine that listens on loopback only. Returns its socket. */
static int service_open(uint16_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* "Nobody has a node dial its own machine": neither with addresses in a HELLO, nor with a PEERS
 * row about another node. */
FACT(peer_has_no_local_service_dialled) {
    static struct hostile h;
    static struct tw_message peers = {.kind = TW_MSG_PEERS};
    char outer[INET_ADDRSTRLEN];
    uint16_t port;
    open_cluster("");
    const int service = service_open(&port);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=ready", 30));
    if (!find_outer(outer)) skip();
    target.from = outer;
    assert_true(join_announcing(&h, "127.0.0.1", &port, 1));
    peers.u.peers.count = 1;
    memset(&peers.u.peers.rows[0].id, 0x55, sizeof(peers.u.peers.rows[0].id));
    (void)snprintf(peers.u.peers.rows[0].addrs[0], TW_ADDR_BYTES, "localhost:%u", (unsigned)port);
    assert_true(hostile_message(&h, &peers));
    cluster_pause(.3); /* lets the node read the message */
    hostile_close(&h);
    cluster_pause(1.5);
    assert_int_equal(accept(service, NULL, NULL), -1);
    (void)close(service);
}

/* Returns the number of events with that name in /v1/events. */
static unsigned count_events(const char *name) {
    json_t *all = cluster_get(&cluster, 0, "/v1/events"), *row;
    size_t i;
    unsigned count = 0;
    json_array_foreach(json_object_get(all, "events"), i, row) {
        const char *of_row = json_string_value(json_object_get(row, "name"));
        count += of_row != NULL && strcmp(of_row, name) == 0;
    }
    json_decref(all);
    return count;
}

/* "Fresh ids push no events out", and a bad message causes only one log line. */
FACT(fresh_ids_push_no_events_out) {
    static struct hostile h;
    open_cluster("");
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=ready", 30));
    for (unsigned i = 0; i < 70; i++) {
        assert_true(hostile_join(&h, &target, NULL));
        if (i == 0) (void)hostile_frame(&h, TW_MSG_STATUS, "garbage", 7);
        if (i == 0) assert_true(hostile_ends(&h, 5));
        hostile_close(&h);
    }
    assert_in_range(count_events("peer_up"), 1, 12);
    assert_in_range(count_events("peer_down"), 1, 12);
    assert_int_equal(cluster_lines(&cluster, 0, "malformed protobuf"), 1);
}

/* Reads frames until the next message of this kind. */
static bool hear(struct hostile *h, enum tw_message_kind kind, struct tw_message *message) {
    struct tw_frame frame;
    while (hostile_next(h, 10, &frame) == TW_OK) {
        if (frame.kind != kind) continue;
        return tw_control_decode(frame.kind, frame.body, frame.body_bytes, message, NULL) == TW_OK;
    }
    return false;
}

/* "A payload has a size that its codec can need". The attacker announces a larger packed state. */
FACT(claim_above_the_codec_ends_the_link) {
    static struct hostile h;
    static struct tw_message message;
    open_with("");
    assert_true(hostile_join(&h, &target, NULL) && hear(&h, TW_MSG_STATUS, &message));
    const struct tw_msg_state claim = {.lineage = message.u.status.lineage,
                                       .rounds = message.u.status.rounds,
                                       .digest.bytes = {1},
                                       .hash.bytes = {2},
                                       .bytes = 16 * MIB};
    message = (struct tw_message){.kind = TW_MSG_STATE, .u.state = claim};
    assert_true(hostile_message(&h, &message));
    assert_true(hostile_ends(&h, 5));
    assert_true(h.has_goodbye && h.goodbye.status == TW_PROTO);
    hostile_close(&h);
    rounds_go_on();
}

/* "An old round is no cheap question". A peer sends 300 messages of the last round, each of
 * which could cause a COMMIT as reply. */
FACT(old_round_is_no_cheap_question) {
    static struct hostile h;
    static struct tw_message message;
    struct tw_frame frame;
    unsigned commits = 0;
    open_with("");
    assert_true(hostile_join(&h, &target, NULL) && hear(&h, TW_MSG_STATUS, &message));
    const struct tw_msg_prepare old = {
        .lineage = message.u.status.lineage, .round = message.u.status.rounds - 1, .ballot = 64};
    message = (struct tw_message){.kind = TW_MSG_PREPARE, .u.prepare = old};
    for (unsigned i = 0; i < 300; i++) assert_true(hostile_message(&h, &message));
    const double begin_s = now_s();
    while (now_s() < begin_s + 1)
        if (hostile_next(&h, .2, &frame) == TW_OK) commits += frame.kind == TW_MSG_COMMIT;
    assert_int_equal(commits, 0); /* the attacker is in no roster and follows no peer */
    hostile_close(&h);
    rounds_go_on();
}

/* Returns the resident memory of node 0, in pages. */
static unsigned long resident_pages(void) {
    char path[64];
    unsigned long total = 0, resident = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)cluster.nodes[0].pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    (void)fclose(file);
    return resident;
}

/* Makes a message of this kind for the group's open round. Its other fields are zero or
 * invented. */
static void invent(const struct tw_msg_status *at, enum tw_message_kind kind, unsigned n,
                   struct tw_message *message) {
    struct tw_id name = {{(uint8_t)n, (uint8_t)(n >> 8), 1}};
    *message = (struct tw_message){.kind = kind};
    switch ((int)kind) { /* other kinds need no fields */
    case TW_MSG_LOG_GET: message->u.log_get.lineage = at->lineage; break;
    case TW_MSG_STATE_GET: message->u.state_get.lineage = at->lineage; break;
    case TW_MSG_PULL: message->u.pull = (struct tw_msg_pull){.hash = name, .count = 1}; break;
    case TW_MSG_PREPARE:
        message->u.prepare = (struct tw_msg_prepare){
            .lineage = at->lineage, .round = at->rounds + n % 100, .ballot = 64 + n};
        break;
    case TW_MSG_JOIN:
        message->u.join = (struct tw_msg_join){
            .lineage = at->lineage, .rounds = at->rounds, .nonce = 1 + n, .weight = 1};
        break;
    case TW_MSG_ACCUSE: message->u.accuse.lineage = at->lineage; break;
    case TW_MSG_RELAY_CALL: message->u.relay_call.from = name; break;
    case TW_MSG_STATUS:
        message->u.status = *at;
        message->u.status.rounds += n;
        break;
    case TW_MSG_PEERS:
        message->u.peers.count = 1;
        message->u.peers.rows[0].id = name;
        (void)snprintf(message->u.peers.rows[0].addrs[0], TW_ADDR_BYTES, "10.%u.%u.9:1",
                       n >> 8 & 255, n & 255);
        break;
    default: message->u.probe.token = n; break;
    }
}

static void sign_join(const struct hostile *h, struct tw_msg_join *join) {
    const struct tw_ballot_vote vote = {.run = target.run,
                                        .lineage = join->lineage,
                                        .nonce = join->nonce,
                                        .round = join->rounds,
                                        .phase = TW_VOTE_JOIN};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(&vote, text);
    tw_sign(h->identity.key, text, sizeof(text), join->signature);
}

#ifdef __SANITIZE_ADDRESS__
#define GROWTH_MAX (512UL * MIB) /* AddressSanitizer keeps freed memory for a while */
#else
#define GROWTH_MAX (32UL * MIB)
#endif

/* "No message is a cheap question with a dear answer". An id that reads no replies sends 2000
 * messages of each kind. They stop no round and use no lasting memory. */
FACT(cheap_questions_stop_no_round) {
    static const enum tw_message_kind kinds[] = {
        TW_MSG_LOG_GET, TW_MSG_STATE_GET,  TW_MSG_PULL,   TW_MSG_PREPARE, TW_MSG_JOIN,
        TW_MSG_ACCUSE,  TW_MSG_RELAY_CALL, TW_MSG_STATUS, TW_MSG_PEERS,   TW_MSG_PROBE};
    enum { COUNT = sizeof(kinds) / sizeof(kinds[0]), TIMES = 2000 };
    static struct hostile h;
    static struct tw_message message;
    open_with("");
    const unsigned long before = resident_pages();
    for (unsigned k = 0; k < COUNT; k++) {
        unsigned sent = 0;
        assert_true(hostile_join(&h, &target, NULL) && hear(&h, TW_MSG_STATUS, &message));
        const struct tw_msg_status at = message.u.status;
        do {
            invent(&at, kinds[k], sent, &message);
            if (kinds[k] == TW_MSG_JOIN) sign_join(&h, &message.u.join);
        } while (sent < TIMES && hostile_message(&h, &message) && ++sent > 0);
        const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
        assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 10));
        print_message("%s: %u sent\n", tw_message_name(kinds[k]), sent);
        hostile_close(&h);
    }
    const unsigned long grown = resident_pages() - before;
    print_message("%lu pages more\n", grown);
    assert_true(resident_pages() < before + GROWTH_MAX / 4096);
    rounds_go_on();
}

/* Takes one optional argument: a pattern of the names of the tests to run. */
int main(int argc, char **argv) {
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return test_run(NULL, NULL);
}
