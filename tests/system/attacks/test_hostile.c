/* Attacks on a live daemon by strangers, by attackers that know the secret, and by a node that
 * merges with it. After each attack the daemon's memory is within its budget, the honest link is
 * unbroken and rounds have continued. The log names the reason and is not flooded. */
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/exit_codes.h"
#include "base/rng.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
    SLACK_KIB = 24 * KIB, /* change in memory use that merging alone causes */
};

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;

/* ---- the honest pair ----------------------------------------------------------------------- */

static int open_pair(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 30));
    assert_true(cluster_reaches(&cluster, 0, "sync.mixed_peers", 1, 30));
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_pair, close_all, name)

static unsigned long memory_kib(const char *key) {
    char path[64], line[128];
    unsigned long kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)cluster.nodes[0].pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) (void)sscanf(line + strlen(key), ": %lu", &kib);
    }
    (void)fclose(file);
    return kib;
}

static struct {
    unsigned long rss_kib;
    double rounds, steps;
    size_t log_at, log_at_other;
} before;

static void watch(void) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)cluster.nodes[0].pid);
    FILE *file = fopen(path, "we");
    if (file != NULL) { /* resets the peak */
        (void)fputs("5", file);
        (void)fclose(file);
    }
    before.rss_kib = memory_kib("VmRSS");
    before.rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    before.steps = cluster_number(&cluster, 0, "train.steps");
    before.log_at_other = strlen(cluster_log(&cluster, 1));
    before.log_at = strlen(cluster_log(&cluster, 0));
}

/* Returns the number of node 0's log lines with this text since `watch`. */
static unsigned said(const char *text) {
    unsigned count = 0;
    for (const char *at = cluster_log(&cluster, 0) + before.log_at; at != NULL; count++) {
        at = strstr(at, text);
        if (at == NULL) break;
        at++;
    }
    return count;
}

static void judge(unsigned budget_kib) {
    const unsigned long peak_kib = memory_kib("VmHWM");
    const unsigned long more_kib = peak_kib > before.rss_kib ? peak_kib - before.rss_kib : 0;
    print_message("memory: %lu KiB before, %lu KiB more at its peak\n", before.rss_kib, more_kib);
    assert_true(more_kib <= budget_kib + SLACK_KIB);
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", before.rounds + 3, 20));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", before.steps + 20, 20));
    assert_true(cluster_number(&cluster, 1, "sync.roster_members") >= 2);
    assert_null(strstr(cluster_log(&cluster, 1) + before.log_at_other, "ev=peer_down"));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 30), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 30), TW_EXIT_OK);
}

static void must_say_once(const char *text) {
    const unsigned count = said(text);
    if (count != 1) fail_msg("'%s' is in the log %u times", text, count);
}

/* ---- strangers ----------------------------------------------------------------------------- */

FACT(silent_connections_shut_nobody_out) {
    enum { COUNT = 600 };
    static int fds[COUNT];
    watch();
    target.from = "127.0.7.7";
    for (unsigned i = 0; i < COUNT; i++) fds[i] = hostile_tcp(&target);
    /* Meanwhile a member links from another address. */
    static struct hostile friend;
    target.from = NULL;
    target.secret = &secret;
    assert_true(hostile_join(&friend, &target, NULL));
    for (unsigned i = 0; i < COUNT; i++) {
        if (fds[i] >= 0) (void)close(fds[i]);
    }
    hostile_close(&friend);
    judge(64 * 256);
}

/* Makes a key whose short id consists of letters only. About one key in 2600 does. */
static void lettered(struct tw_identity *identity) {
    char name[9];
    for (;;) {
        assert_int_equal(tw_identity_ephemeral(identity, NULL), TW_OK);
        tw_id_short(&identity->id, name);
        if (strcspn(name, "0123456789") == strlen(name)) return;
        tw_identity_close(identity);
    }
}

FACT(wrong_secrets_are_refused_and_reported_once) {
    static struct hostile h, letters;
    lettered(&letters.identity);
    watch();
    target.from = "127.0.7.7";
    unsigned refused = 0, slowed = 0;
    for (unsigned i = 0; i < 200; i++) {
        struct tw_hello hello;
        if (!hostile_open(&h, &target, i % 2 == 1 ? &letters : NULL)) {
            slowed++;
            continue;
        }
        hostile_hello(&h, &target, TW_ROLE_CONTROL, NULL, &hello);
        (void)hostile_say(&h, &hello);
        assert_true(hostile_ends(&h, 10));
        refused += h.has_goodbye && h.goodbye.status == TW_WRONG_SECRET;
        hostile_close(&h);
    }
    tw_identity_close(&letters.identity);
    print_message("%u refused, %u not even heard\n", refused, slowed);
    assert_true(refused > 0);
    must_say_once("reason=wrong_secret");
    judge(4 * KIB);
}

FACT(handshake_byte_by_byte_is_cut_off) {
    static const uint8_t hello_start[] = {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3};
    watch();
    const int fd = hostile_tcp(&target);
    assert_true(fd >= 0);
    bool is_cut = false;
    for (unsigned i = 0; i < 30 && !is_cut; i++) {
        const uint8_t *byte = &hello_start[i < sizeof(hello_start) ? i : 4];
        is_cut = send(fd, byte, 1, MSG_NOSIGNAL) != 1;
        char answer;
        is_cut |= recv(fd, &answer, 1, MSG_DONTWAIT) == 0;
        cluster_pause(0.5);
    }
    assert_true(is_cut);
    (void)close(fd);
    must_say_once("no complete handshake in time");
    judge(4 * KIB);
}

FACT(noise_instead_of_tls_is_refused) {
    static uint8_t noise[256 * KIB];
    struct tw_rng rng;
    tw_rng_seed(&rng, 7);
    watch();
    target.from = "127.0.7.7";
    for (unsigned i = 0; i < 50; i++) {
        for (size_t k = 0; k < sizeof(noise); k++) noise[k] = (uint8_t)tw_rng_next(&rng);
        if (i % 2 == 0) memcpy(noise, (const uint8_t[]){22, 3, 1, 0x40, 0}, 5);
        const int fd = hostile_tcp(&target);
        if (fd < 0) continue;
        (void)send(fd, noise, sizeof(noise), MSG_NOSIGNAL);
        (void)close(fd);
    }
    judge(64 * 256);
}

FACT(replayed_hello_is_refused) {
    static struct hostile h, again;
    struct tw_hello hello;
    watch();
    target.secret = &secret;
    assert_true(hostile_open(&h, &target, NULL));
    hostile_hello(&h, &target, TW_ROLE_CONTROL, NULL, &hello);
    assert_true(hostile_open(&again, &target, &h));
    assert_true(hostile_say(&again, &hello)); /* a valid proof, but for another TLS session */
    assert_true(hostile_ends(&again, 10));
    assert_true(again.has_goodbye);
    assert_int_equal(again.goodbye.status, TW_WRONG_SECRET);
    hostile_close(&h);
    hostile_close(&again);
    must_say_once("reason=wrong_secret");
    judge(4 * KIB);
}

FACT(big_frames_before_admission_are_refused) {
    static struct hostile h;
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    watch();
    assert_true(hostile_open(&h, &target, NULL));
    (void)hostile_frame(&h, 1, body, sizeof(body));
    assert_true(hostile_ends(&h, 10));
    hostile_close(&h);
    must_say_once("ev=refused");
    judge(4 * KIB);
}

/* ---- with the secret ----------------------------------------------------------------------- */

static void join(struct hostile *h) {
    target.secret = &secret;
    if (!hostile_join(h, &target, NULL)) fail_msg("not let in: %s", h->goodbye.sentence);
}

FACT(lengths_beyond_the_kind_are_refused) {
    static struct hostile h;
    static const struct {
        uint16_t kind;
        uint32_t size;
    } cases[] = {{1, TW_CONTROL_BYTES_MAX + 1},
                 {1, UINT32_MAX},
                 {TW_FRAME_CHUNK, TW_FRAME_BODY_MAX},
                 {TW_FRAME_GOODBYE, 1025},
                 {0x3ff, TW_CONTROL_BYTES_MAX + 1}};
    watch();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t header[TW_FRAME_HEADER_BYTES];
        join(&h);
        tw_frame_header(header, 1, 0, NULL, 0);
        tw_put_u16(header + 6, cases[i].kind);
        tw_put_u32(header + 8, cases[i].size);
        (void)hostile_bytes(&h, header, sizeof(header));
        assert_true(hostile_ends(&h, 10));
        hostile_close(&h);
    }
    judge(4 * KIB);
}

FACT(bombs_of_fields_stay_within_bounds) {
    static struct hostile h;
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    watch();
    for (uint16_t kind = 1; kind < 32; kind++) {
        for (unsigned field = 1; field <= 15; field += 7) {
            join(&h);
            for (size_t i = 0; i < sizeof(body); i += 2) { /* fills the body with empty messages */
                body[i] = (uint8_t)(field << 3 | 2);
                body[i + 1] = 0;
            }
            (void)hostile_frame(&h, kind, body, sizeof(body));
            hostile_close(&h);
        }
    }
    judge(4 * KIB);
}

FACT(key_update_flood_ends_the_session) {
    static struct hostile h;
    watch();
    join(&h);
    for (unsigned i = 0; i < 200; i++) {
        if (SSL_key_update(h.ssl, SSL_KEY_UPDATE_REQUESTED) != 1) break;
        if (SSL_do_handshake(h.ssl) != 1) break;
    }
    assert_true(hostile_ends(&h, 10));
    hostile_close(&h);
    must_say_once("TLS key updates in a minute");
    judge(4 * KIB);
}

FACT(started_frame_that_never_ends_is_cut_off) {
    static struct hostile h;
    uint8_t header[TW_FRAME_HEADER_BYTES];
    watch();
    join(&h);
    tw_frame_header(header, 1, 0, header, 20);
    bool is_open = hostile_bytes(&h, header, sizeof(header));
    for (unsigned i = 0; i < 19 && is_open; i++) {
        is_open = hostile_bytes(&h, header, 1);
        struct tw_frame frame;
        enum tw_status status;
        while ((status = hostile_next(&h, 1, &frame)) == TW_OK) {
        }
        is_open &= status == TW_AGAIN;
    }
    assert_false(is_open);
    hostile_close(&h);
    judge(4 * KIB);
}

static void status_make(struct tw_message *message) {
    memset(message, 0, sizeof(*message));
    message->kind = TW_MSG_STATUS;
    message->u.status.state = 1;
    message->u.status.boot = 1;
    message->u.status.lineage.bytes[0] = 7;
}

/* Sends messages for `seconds`, as fast as the connection allows. Returns the number of
 * messages. */
static unsigned flood(struct hostile *h, const struct tw_message *message, double seconds) {
    unsigned sent = 0;
    struct timespec begin, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        const double passed =
            (double)(now.tv_sec - begin.tv_sec) + (double)(now.tv_nsec - begin.tv_nsec) * 1e-9;
        if (passed > seconds || !hostile_message(h, message)) return sent;
        sent++;
    }
}

static double lag(void) {
    return cluster_number(&cluster, 0, "node.loop_lag_us");
}

FACT(flood_of_messages_slows_nobody_else) {
    static struct hostile h;
    struct tw_message message;
    watch();
    join(&h);
    status_make(&message);
    const unsigned sent = flood(&h, &message, 6);
    print_message("%u messages in 6 s, lag %g\n", sent, lag());
    hostile_close(&h);
    judge(4 * KIB);
}

FACT(peer_that_asks_and_does_not_read_is_closed) {
    static struct hostile h;
    struct tw_message message;
    watch();
    target.receive_bytes = 4096; /* else the kernel could buffer replies for many seconds */
    join(&h);
    target.receive_bytes = 0;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PULL;
    message.u.pull = (struct tw_msg_pull){.hash = {{9}}, .first = 0, .count = 8};
    const unsigned sent = flood(&h, &message, 60);
    print_message("%u asked\n", sent);
    assert_true(hostile_ends(&h, 10));
    hostile_close(&h);
    judge(4 * KIB);
}

FACT(invented_members_fill_nothing) {
    static struct hostile h;
    struct tw_message message;
    watch();
    join(&h);
    for (unsigned i = 0; i < 200; i++) {
        memset(&message, 0, sizeof(message));
        message.kind = TW_MSG_PEERS;
        message.u.peers.count = TW_MEMBER_ROWS_PER_MESSAGE;
        for (unsigned k = 0; k < TW_MEMBER_ROWS_PER_MESSAGE; k++) {
            struct tw_member_row *record = &message.u.peers.rows[k];
            tw_put_u32(record->id.bytes, 1 + i * 16 + k);
            for (unsigned a = 0; a < TW_ADDRS_MAX; a++)
                (void)snprintf(record->addrs[a], TW_ADDR_BYTES, "127.0.9.%u:%u", 1 + a,
                               1000 + i * 16 + k);
        }
        if (!hostile_message(&h, &message)) break;
    }
    hostile_close(&h);
    judge(4 * KIB);
}

/* Sends all of the largest frame but its last byte. So the node keeps the frame until its
 * deadline. */
static void leave_unfinished(struct hostile *h, uint16_t kind, uint32_t body_bytes) {
    static uint8_t frame[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    tw_frame_header(frame, kind, 0, frame + TW_FRAME_HEADER_BYTES, body_bytes);
    (void)hostile_bytes(h, frame, TW_FRAME_HEADER_BYTES + (size_t)body_bytes - 1);
}

FACT(full_peer_table_costs_bounded_memory) {
    enum { COUNT = 70, PLACES = TW_PEERS_MAX - 1 };
    static struct hostile *links[COUNT][2];
    unsigned in = 0, bulks = 0;
    watch();
    target.secret = &secret;
    for (unsigned i = 0; i < COUNT; i++) {
        struct tw_hello hello;
        struct hostile *control = malloc(sizeof(*control)), *bulk = malloc(sizeof(*bulk));
        TW_ASSERT(control != NULL && bulk != NULL);
        links[i][0] = control;
        links[i][1] = bulk;
        bulk->fd = control->fd = -1;
        if (!hostile_join(control, &target, NULL)) continue;
        in++;
        leave_unfinished(control, TW_MSG_STATUS, TW_CONTROL_BYTES_MAX);
        if (!hostile_open(bulk, &target, control)) continue;
        hostile_hello(bulk, &target, TW_ROLE_BULK, control->tag, &hello);
        bulks += hostile_say(bulk, &hello);
        leave_unfinished(bulk, TW_FRAME_CHUNK, TW_FRAME_BODY_MAX);
    }
    print_message("%u members more, %u with bulk\n", in, bulks);
    assert_true(in > PLACES / 2 && bulks > 0);
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned k = 0; k < 2; k++) {
            if (links[i][k]->fd >= 0) hostile_close(links[i][k]);
            free(links[i][k]);
        }
    }
    judge(PLACES * 2 * KIB);
}

/* Links with a control and a bulk connection. */
static void join_bulk(struct hostile *h, struct hostile *bulk) {
    struct tw_hello hello;
    join(h);
    assert_true(hostile_open(bulk, &target, h));
    hostile_hello(bulk, &target, TW_ROLE_BULK, h->tag, &hello);
    assert_true(hostile_say(bulk, &hello));
}

FACT(chunks_nobody_asked_for_are_dropped) {
    static struct hostile h, bulk;
    static uint8_t body[TW_CHUNK_HEADER_BYTES + TW_CHUNK_BYTES_MAX];
    watch();
    join_bulk(&h, &bulk);
    body[0] = 77;
    for (unsigned i = 0; i < 50; i++)
        assert_true(hostile_frame(&bulk, TW_FRAME_CHUNK, body, sizeof(body)));
    tw_put_u32(body + 32, TW_CHUNKS_MAX); /* above the last chunk index of any payload */
    (void)hostile_frame(&bulk, TW_FRAME_CHUNK, body, sizeof(body));
    assert_true(hostile_ends(&bulk, 10));
    hostile_close(&bulk);
    hostile_close(&h);
    judge(8 * KIB);
}

/* A node that sent garbage three times, although it has the secret, is banned for an hour. The
 * ban survives a restart. */
FACT(node_that_breaks_the_protocol_three_times_is_banned) {
    static struct hostile h, first;
    struct tw_hello hello;
    watch();
    target.secret = &secret;
    assert_true(hostile_open(&first, &target, NULL)); /* all connections use this key */
    for (unsigned i = 0; i < 3; i++) {
        if (!hostile_join(&h, &target, &first)) fail_msg("let in %u times", i);
        (void)hostile_frame(&h, TW_MSG_STATUS, "garbage", 7);
        assert_true(hostile_ends(&h, 10));
        hostile_close(&h);
    }
    assert_true(cluster_says(&cluster, 0, "ev=peer_banned", 5));
    assert_false(hostile_join(&h, &target, &first));
    must_say_once("ev=peer_banned");
    assert_int_equal((int)cluster_number(&cluster, 0, "network.banned"), 1);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 30), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 30));
    assert_true(hostile_open(&h, &target, &first));
    hostile_hello(&h, &target, TW_ROLE_CONTROL, NULL, &hello);
    (void)hostile_say(&h, &hello);
    assert_true(hostile_ends(&h, 10));
    assert_true(h.has_goodbye);
    assert_int_equal(h.goodbye.status, TW_BANNED);
    hostile_close(&h);
    hostile_close(&first);
    if (!hostile_join(&h, &target, NULL)) fail_msg("a node of another key: %s", h.goodbye.sentence);
    hostile_close(&h);
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    /* With a larger quarantine, freed memory would count as used. */
    (void)setenv("ASAN_OPTIONS", "quarantine_size_mb=1", 1);
    return test_run(NULL, NULL);
}
