/* Tests of daemon/net/probe.c. A probe dials as a node does, names the failed stage and the
 * cause, and occupies no peer slot. */
#include <stdatomic.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/net/probe.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static struct tw_identity identity;
static struct tw_tls_context tls;
static atomic_bool is_over;
static struct tw_probe_question question;
static struct tw_probe_answer answer;

static int setup(void **state) {
    world_init(&world);
    assert_int_equal(tw_identity_ephemeral(&identity, NULL), TW_OK);
    assert_int_equal(tw_tls_context_init(&tls, &identity, NULL), TW_OK);
    question = (struct tw_probe_question){
        .tls = &tls,
        .hello = {.version_min = 1,
                  .version_max = 1,
                  .role = TW_ROLE_PROBE,
                  .boot = 1,
                  .run = world.run,
                  .id = identity.id},
        .secret = &world.secrets.list[0],
        .patience_us = 2 * 1000 * 1000,
    };
    return 0;
}

static int teardown(void **state) {
    tw_tls_context_deinit(&tls);
    tw_identity_close(&identity);
    world_deinit(&world);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

static void *run(void *unused) {
    tw_probe_run(&question, &answer);
    atomic_store(&is_over, true);
    return NULL;
}

/* Runs a probe, which blocks, in another thread, while this thread runs the nodes' event loop. */
static void probe(const char *address) {
    pthread_t thread;
    question.address = address;
    atomic_store(&is_over, false);
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    WAIT_WHILE(&world, !atomic_load(&is_over));
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static const char *address_of(const struct world_node *node) {
    static char address[TW_ADDR_BYTES];
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(node->transport, 0));
    return address;
}

static void failed_at(enum tw_probe_stage stage, enum tw_dial_cause cause, const char *word) {
    assert_int_equal(answer.stage, stage);
    assert_int_equal(answer.cause, cause);
    if (strstr(answer.sentence, word) == NULL) fail_msg("`%s` lacks `%s`", answer.sentence, word);
    assert_non_null(strstr(answer.sentence, question.address));
}

FACT(node_that_would_take_us_says_so_and_has_no_new_peer) {
    struct world_node *node = world_start(&world, 0, NULL);
    probe(address_of(node));
    assert_int_equal(answer.stage, TW_PROBE_DONE);
    assert_int_equal(answer.cause, TW_DIAL_NONE);
    assert_string_equal(answer.sentence, "");
    assert_true(answer.has_id && tw_id_equal(&answer.id, &node->identity.id));
    assert_string_equal(answer.remote, question.address);
    assert_true(answer.mtu_bytes >= 1280);
    assert_int_equal(node->ups, 0);
}

/* The owner runs `thinwire doctor` while this machine's daemon is linked. */
FACT(probe_with_the_identity_of_a_linked_node_leaves_its_link_alone) {
    struct world_node *a = world_start(&world, 0, NULL), *b = world_start(&world, 1, NULL);
    world_dial(a, b);
    WAIT_WHILE(&world, a->ups == 0 || b->ups == 0);
    tw_tls_context_deinit(&tls);
    assert_int_equal(tw_tls_context_init(&tls, &a->identity, NULL), TW_OK);
    question.hello.id = a->identity.id;
    probe(address_of(b));
    assert_int_equal(answer.stage, TW_PROBE_DONE);
    world_turn(&world, 20);
    assert_int_equal(a->downs + b->downs, 0);
}

FACT(wrong_secret_fails_at_the_last_stage) {
    const struct tw_secret other = {{9}};
    question.secret = &other;
    probe(address_of(world_start(&world, 0, NULL)));
    failed_at(TW_PROBE_HELLO, TW_DIAL_WRONG_SECRET, "wrong run secret");
}

FACT(other_run_fails_at_the_last_stage) {
    memset(&question.hello.run, 0x44, sizeof(question.hello.run));
    probe(address_of(world_start(&world, 0, NULL)));
    failed_at(TW_PROBE_HELLO, TW_DIAL_OTHER_RUN, "44444444");
}

FACT(older_version_fails_at_the_last_stage) {
    question.hello.version_min = question.hello.version_max = 7;
    probe(address_of(world_start(&world, 0, NULL)));
    failed_at(TW_PROBE_HELLO, TW_DIAL_VERSION, "7 to 7");
}

FACT(another_id_fails_in_tls) {
    const struct world_node *node = world_start(&world, 0, NULL);
    question.expected = &world.nodes[1].identity.id;
    probe(address_of(node));
    failed_at(TW_PROBE_TLS, TW_DIAL_WRONG_ID, "answers there, not");
    assert_true(tw_id_equal(&answer.id, &node->identity.id));
}

FACT(closed_port_fails_in_tcp) {
    probe("127.0.0.1:1");
    failed_at(TW_PROBE_TCP, TW_DIAL_CLOSED, "nothing listens");
}

FACT(probe_leaves_by_the_line_that_is_configured) {
    static const char v4[TW_BIND_MAX][TW_ADDR_BYTES] = {"127.0.0.2"};
    static const char v6[TW_BIND_MAX][TW_ADDR_BYTES] = {"::1"};
    static const char foreign[TW_BIND_MAX][TW_ADDR_BYTES] = {"192.0.2.1"};
    struct tw_egress egress;
    const char *const address = address_of(world_start(&world, 0, NULL));
    question.egress = &egress;
    assert_int_equal(tw_egress_init(&egress, "lo", v4, NULL), TW_OK);
    probe(address);
    if (answer.cause == TW_DIAL_FORBIDDEN) return; /* this user may not bind to an interface */
    assert_int_equal(answer.stage, TW_PROBE_DONE);
    assert_int_equal(tw_egress_init(&egress, NULL, v6, NULL), TW_OK);
    probe(address);
    failed_at(TW_PROBE_TCP, TW_DIAL_NO_ROUTE, "no route");
    assert_int_equal(tw_egress_init(&egress, NULL, foreign, NULL), TW_OK);
    probe(address);
    failed_at(TW_PROBE_TCP, TW_DIAL_NO_ROUTE, "no route");
}

FACT(name_without_address_fails_first) {
    probe("no-such-name.invalid:4747");
    failed_at(TW_PROBE_NAME, TW_DIAL_DNS, "cannot be resolved");
    assert_string_equal(answer.remote, "");
    probe("no port at all");
    failed_at(TW_PROBE_NAME, TW_DIAL_DNS, "not host:port");
}

/* Listens, but never accepts: the kernel completes the TCP handshake, and then nothing follows. */
static int deaf_listener(char address[TW_ADDR_BYTES]) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    (void)snprintf(address, TW_ADDR_BYTES, "127.0.0.1:%u", (unsigned)ntohs(name.sin_port));
    return fd;
}

FACT(silence_after_the_connect_is_told_from_a_closed_port) {
    char address[TW_ADDR_BYTES];
    const int fd = deaf_listener(address);
    question.patience_us = 50 * 1000;
    probe(address);
    failed_at(TW_PROBE_TLS, TW_DIAL_STALLED, "sends nothing");
    (void)close(fd);
}

static void *speak_http(void *user) {
    static const char words[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    char heard[512];
    const int fd = accept(*(int *)user, NULL, NULL);
    (void)recv(fd, heard, sizeof(heard), 0);
    (void)send(fd, words, sizeof(words) - 1, MSG_NOSIGNAL);
    (void)recv(fd, heard, sizeof(heard), 0);
    (void)close(fd);
    return NULL;
}

FACT(another_program_is_no_thinwire_node) {
    char address[TW_ADDR_BYTES];
    int fd = deaf_listener(address);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, speak_http, &fd), 0);
    probe(address);
    failed_at(TW_PROBE_TLS, TW_DIAL_NOT_THINWIRE, "not a Thinwire node");
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(fd);
}
