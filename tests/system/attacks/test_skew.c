/* A live daemon and nodes of other releases. The daemon ignores newer fields, and sends no peer
 * a message that the peer does not understand. If it refuses a version, the message names a
 * remedy. */
#include <signal.h>

#include "base/bytes.h"
#include "base/exit_codes.h"
#include "proto/control.h"
#include "proto/run/run.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { KIND_LATER = 40 }; /* a message kind that this version does not know */

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static struct hostile peer;

static int open_one(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 1);
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 1, 30));
    return 0;
}

static int close_all(void **state) {
    hostile_close(&peer);
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_one, close_all, name)

/* Sends a HELLO that offers versions lowest to highest. `features` NULL means no features. */
static void hello(uint32_t lowest, uint32_t highest, const uint64_t *features) {
    static const uint8_t unknown[] = "what nobody knows yet";
    struct tw_hello hello;
    assert_true(hostile_open(&peer, &target, NULL));
    hostile_hello(&peer, &target, TW_ROLE_CONTROL, NULL, &hello);
    hello.version_min = lowest;
    hello.version_max = highest;
    if (features != NULL) {
        uint8_t bytes[8];
        tw_put_u64(bytes, *features);
        tw_extensions_add(&hello.extensions, TW_EXTENSION_FEATURES, bytes, sizeof(bytes));
        tw_extensions_add(&hello.extensions, 77, unknown, sizeof(unknown));
    }
    tw_hello_prove(&hello, &secret, peer.ekm);
    assert_true(hostile_say(&peer, &hello));
}

static void must_be_let_in(void) {
    struct tw_frame frame;
    assert_int_equal(hostile_next(&peer, 10, &frame), TW_OK);
    assert_int_equal(frame.kind, TW_FRAME_HELLO);
    struct tw_hello theirs;
    assert_int_equal(tw_hello_decode(frame.body, frame.body_bytes, &theirs, NULL), TW_OK);
    assert_int_equal(theirs.version_min, TW_WIRE_VERSION);
    assert_int_equal(theirs.version_max, TW_WIRE_VERSION);
    assert_true((tw_extensions_features(&theirs.extensions) & TW_FEATURES) == TW_FEATURES);
}

/* Reads for some seconds. Returns the set of received kinds below 32. Bit 63 is set if the
 * daemon closed the connection. */
static uint64_t kinds_heard(double seconds) {
    uint64_t kinds = 0;
    for (unsigned i = 0; i < (unsigned)(seconds * 10); i++) {
        struct tw_frame frame;
        enum tw_status status;
        while ((status = hostile_next(&peer, 0.1, &frame)) == TW_OK)
            kinds |= UINT64_C(1) << (frame.kind & 31);
        if (status != TW_AGAIN) return kinds | UINT64_C(1) << 63;
    }
    return kinds;
}

static bool has_kind(uint64_t kinds, unsigned kind) {
    return (kinds >> kind & 1) != 0;
}

static void end(void) {
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 30), TW_EXIT_OK);
}

FACT(newer_node_is_let_in_and_its_new_fields_are_skipped) {
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    const uint64_t all = UINT64_MAX;
    hello(TW_WIRE_VERSION, TW_WIRE_VERSION + 1, &all);
    must_be_let_in();
    /* message kinds of later versions */
    assert_true(hostile_frame(&peer, KIND_LATER, body, sizeof(body)));
    assert_true(hostile_frame(&peer, 0x2ff, NULL, 0));
    assert_true(hostile_frame(&peer, 0xffff, body, 100));
    struct tw_message status = {.kind = TW_MSG_STATUS};
    status.u.status.lineage.bytes[0] = 7;
    size_t size = 0;
    assert_int_equal(tw_control_encode(&status, body, sizeof(body), &size, NULL), TW_OK);
    /* field number 1023, of type bytes */
    static const uint8_t field[] = {0xfa, 0x3f, 3, 'n', 'e', 'w'};
    memcpy(body + size, field, sizeof(field));
    assert_true(hostile_frame(&peer, TW_MSG_STATUS, body, (uint32_t)(size + sizeof(field))));
    const uint64_t kinds = kinds_heard(2);
    assert_true(has_kind(kinds, TW_MSG_STATUS));
    assert_false(has_kind(kinds, 63));
    assert_null(strstr(cluster_log(&cluster, 0), "reason=PROTO"));
    end();
}

FACT(only_newer_versions_are_refused_with_the_way_out) {
    hello(TW_WIRE_VERSION + 1, TW_WIRE_VERSION + 2, NULL);
    assert_true(hostile_ends(&peer, 10));
    assert_true(peer.has_goodbye);
    assert_int_equal(peer.goodbye.status, TW_VERSION);
    assert_non_null(strstr(peer.goodbye.sentence, "2 to 3"));
    assert_true(cluster_says(&cluster, 0, "reason=version", 5));
    assert_non_null(strstr(cluster_log(&cluster, 0), "update the older"));
    end();
}

FACT(frames_of_another_version_end_the_link) {
    uint8_t header[TW_FRAME_HEADER_BYTES];
    hello(TW_WIRE_VERSION, TW_WIRE_VERSION + 1, NULL);
    must_be_let_in();
    tw_frame_header(header, TW_MSG_STATUS, 0, NULL, 0);
    header[4] = TW_WIRE_VERSION + 1;
    assert_true(hostile_bytes(&peer, header, sizeof(header)));
    assert_true(hostile_ends(&peer, 10));
    assert_true(peer.has_goodbye);
    assert_int_equal(peer.goodbye.status, TW_VERSION);
    end();
}

/* A peer is asked to use a feature only if it has announced it. */
FACT(features_go_to_those_that_have_them) {
    const uint64_t all = UINT64_MAX, none = ~(uint64_t)TW_FEATURES;
    hello(TW_WIRE_VERSION, TW_WIRE_VERSION, &none);
    must_be_let_in();
    assert_false(has_kind(kinds_heard(7), TW_MSG_PROBE));
    hostile_close(&peer);
    hello(TW_WIRE_VERSION, TW_WIRE_VERSION, NULL);
    must_be_let_in();
    assert_false(has_kind(kinds_heard(7), TW_MSG_PROBE));
    hostile_close(&peer);
    hello(TW_WIRE_VERSION, TW_WIRE_VERSION, &all);
    must_be_let_in();
    uint64_t kinds = 0;
    for (unsigned i = 0; i < 15 && !has_kind(kinds, TW_MSG_PROBE); i++) kinds |= kinds_heard(1);
    assert_true(has_kind(kinds, TW_MSG_PROBE));
    end();
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    return test_run(NULL, NULL);
}
