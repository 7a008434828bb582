/* Ids that have the run secret, and never merge, try to use up a node's monthly quota by its
 * traffic for others: they pull the same state again and again, and pipe bytes through it. */
#include <signal.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/exit_codes.h"
#include "proto/control.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum {
    MIB = 1 << 20,
    IDS = 4,
    PULLED_MAX = 24 * MIB, /* no promise: the attackers stop here */
    /* At this quota the share of nodes outside is smaller than the bytes that they get in any case,
     * one state and 1 MiB; and the state of this run is smaller than the 1 MiB that its budget
     * assumes. */
    OUTSIDE_MOST = 2 * MIB + MIB / 4,
};

#define QUOTA "quota = 100MB/month\n"

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;

/* Starts two nodes that merge. They do not know node 2, whose peers they are. */
static void open_two(void) {
    const struct cluster_options first = {.network = QUOTA}, second = {.network = ""};
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 3);
    cluster.nodes_count = 2;
    cluster_configure(&cluster, 0, &first);
    cluster_configure(&cluster, 1, &second);
    cluster.nodes_count = 3;
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 30));
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

static void rounds_go_on(void) {
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 3, 30));
    assert_int_equal(cluster_lines(&cluster, 0, "ev=links_rest"), 0);
}

/* Says HELLO in that role, with an extension beside the features. Returns true if node 0 answers
 * with its own. */
static bool enter(struct hostile *h, enum tw_role role, const uint8_t *call, uint32_t call_bytes) {
    struct tw_hello hello;
    struct tw_frame frame;
    uint8_t features[8];
    hostile_hello(h, &target, role, NULL, &hello);
    tw_put_u64(features, TW_FEATURES);
    tw_extensions_add(&hello.extensions, TW_EXTENSION_FEATURES, features, sizeof(features));
    if (call_bytes > 0) tw_extensions_add(&hello.extensions, TW_EXTENSION_RELAY, call, call_bytes);
    tw_hello_prove(&hello, &secret, h->ekm);
    if (!hostile_say(h, &hello) || hostile_next(h, 10, &frame) != TW_OK) return false;
    if (frame.kind == TW_FRAME_GOODBYE)
        h->has_goodbye =
            tw_goodbye_decode(frame.body, frame.body_bytes, &h->goodbye, NULL) == TW_OK;
    return frame.kind == TW_FRAME_HELLO;
}

/* ---- states -------------------------------------------------------------------------------- */

struct puller {
    struct hostile control, bulk;
};

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Reads control messages until one of that kind comes. */
static bool hear(struct hostile *h, uint16_t kind, double patience_s, struct tw_message *message) {
    const double until_s = now_s() + patience_s;
    struct tw_frame frame;
    while (hostile_next(h, until_s - now_s(), &frame) == TW_OK) {
        if (frame.kind != kind) continue;
        return tw_control_decode(frame.kind, frame.body, frame.body_bytes, message, NULL) == TW_OK;
    }
    return false;
}

static bool puller_open(struct puller *puller) {
    struct tw_hello hello;
    struct tw_frame frame;
    if (!hostile_open(&puller->control, &target, NULL)) return false;
    if (!enter(&puller->control, TW_ROLE_CONTROL, NULL, 0)) return false;
    if (!hostile_open(&puller->bulk, &target, &puller->control)) return false;
    hostile_hello(&puller->bulk, &target, TW_ROLE_BULK, puller->control.tag, &hello);
    return hostile_say(&puller->bulk, &hello) && hostile_next(&puller->bulk, 10, &frame) == TW_OK &&
           frame.kind == TW_FRAME_HELLO;
}

/* Asks for a packed state of fragment 0. */
static bool puller_ask(struct puller *puller, struct tw_msg_state *state) {
    static struct tw_message message;
    for (unsigned i = 0; i < 10; i++) { /* a node that has just started changes its lineage */
        if (!hear(&puller->control, TW_MSG_STATUS, 5, &message)) return false;
        const struct tw_id lineage = message.u.status.lineage;
        message = (struct tw_message){.kind = TW_MSG_STATE_GET};
        message.u.state_get.lineage = lineage;
        if (!hostile_message(&puller->control, &message)) return false;
        if (!hear(&puller->control, TW_MSG_STATE, 1, &message)) continue;
        *state = message.u.state;
        if (state->bytes > 0) return true;
    }
    return false;
}

/* Pulls one chunk of the state again and again, until node 0 gives no more or `most` bytes came.
 * Returns the bytes. */
static uint64_t pull_again_and_again(struct puller *puller, uint64_t most) {
    static struct tw_message message;
    struct tw_msg_state state;
    struct tw_frame frame;
    uint64_t bytes = 0;
    if (!puller_ask(puller, &state)) fail_msg("no state is offered");
    while (bytes < most) {
        message = (struct tw_message){.kind = TW_MSG_PULL};
        message.u.pull.hash = state.hash;
        message.u.pull.count = 1;
        if (!hostile_message(&puller->control, &message)) break;
        if (hostile_next(&puller->bulk, .5, &frame) != TW_OK) break;
        bytes += frame.body_bytes;
    }
    return bytes;
}

static uint64_t pull_with_new_id(uint64_t most) {
    static struct puller puller;
    if (!puller_open(&puller)) fail_msg("an id is not let in");
    const uint64_t bytes = pull_again_and_again(&puller, most);
    hostile_close(&puller.bulk);
    hostile_close(&puller.control);
    return bytes;
}

/* SECURITY.md: "Traffic that serves other nodes alone has a budget": four ids pull one state again
 * and again. Another node then joins: node 0 has no bytes left for it, so it gets its state of
 * node 1. */
FACT(pulled_states_use_up_no_quota) {
    uint64_t bytes = 0;
    open_two();
    for (unsigned i = 0; i < IDS && bytes < PULLED_MAX; i++)
        bytes += pull_with_new_id(PULLED_MAX - bytes);
    print_message("%.2f MB pulled by %d ids\n", (double)bytes / 1e6, IDS);
    assert_true(bytes > MIB / 2);
    assert_true(bytes <= OUTSIDE_MOST);
    assert_true(cluster_number(&cluster, 0, "network.serving.refused_outside") >= 1);
    assert_true(cluster_number(&cluster, 0, "network.serving.outside_today_bytes") <= OUTSIDE_MOST);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=serving_refused"), IDS);
    rounds_go_on();

    cluster_start(&cluster, 2, NULL);
    assert_true(cluster_reaches(&cluster, 1, "sync.roster_members", 3, 60));
    assert_true(cluster_reaches(&cluster, 2, "sync.rounds_contributed", 1, 60));
    rounds_go_on();

    /* A restart gives nodes outside no second share of the day. */
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 40), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 2, 60));
    assert_true(pull_with_new_id(PULLED_MAX) < MIB / 4);
    rounds_go_on();
}

/* ---- messages ------------------------------------------------------------------------------ */

/* One id that is in no roster floods node 0 with messages. Its link ends, as an offence, before it
 * has used up much of the quota. */
FACT(messages_use_up_no_quota) {
    static struct hostile flood;
    static struct tw_message message;
    uint64_t bytes = 0;
    open_two();
    assert_true(hostile_join(&flood, &target, NULL));
    message = (struct tw_message){.kind = TW_MSG_LINKS};
    message.u.links.direct_count = TW_PEERS_MAX;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++)
        message.u.links.direct[i] = (struct tw_id){{1, (uint8_t)(i + 1)}};
    const double end_s = now_s() + 120;
    /* More than the node reads may wait in the buffers of the kernel: its own count matters. */
    while (now_s() < end_s && hostile_message(&flood, &message))
        bytes += TW_PEERS_MAX * sizeof(struct tw_id);
    print_message("%.2f MB of messages\n", (double)bytes / 1e6);
    assert_true(now_s() < end_s);
    assert_true(hostile_ends(&flood, 10));
    hostile_close(&flood);
    const double used = cluster_number(&cluster, 0, "network.caps.month_bytes");
    assert_true(used > 0 && used < PULLED_MAX);
    rounds_go_on();
}

/* ---- relayed bytes ------------------------------------------------------------------------- */

/* Pipes bytes from one end to the other, until node 0 ends the pipe. Returns the bytes. */
static uint64_t pump(struct hostile *from, struct hostile *to) {
    static uint8_t noise[64 * 1024];
    uint64_t bytes = 0;
    struct tw_frame frame;
    while (bytes < PULLED_MAX && hostile_bytes(from, noise, sizeof(noise))) {
        bytes += sizeof(noise);
        (void)hostile_next(to, 0, &frame); /* reads the noise, which is no frame */
        tw_reader_init(&to->reader, to->in, sizeof(to->in));
    }
    return bytes;
}

/* Two ids of one holder, linked to node 0 and in no roster, call each other through it. */
FACT(nodes_outside_pipe_nothing) {
    static struct hostile caller, called, from, to;
    static struct tw_message message;
    uint8_t call[TW_RELAY_TOKEN_BYTES + sizeof(struct tw_id)] = {42};
    uint64_t bytes = 0;
    open_two();
    assert_true(hostile_open(&caller, &target, NULL) && hostile_open(&called, &target, NULL));
    assert_true(enter(&caller, TW_ROLE_CONTROL, NULL, 0));
    assert_true(enter(&called, TW_ROLE_CONTROL, NULL, 0));
    memcpy(call + TW_RELAY_TOKEN_BYTES, called.identity.id.bytes, sizeof(struct tw_id));
    assert_true(hostile_open(&from, &target, &caller) && hostile_open(&to, &target, &called));
    struct tw_hello hello;
    hostile_hello(&from, &target, TW_ROLE_RELAY, NULL, &hello);
    tw_extensions_add(&hello.extensions, TW_EXTENSION_RELAY, call, sizeof(call));
    tw_hello_prove(&hello, &secret, from.ekm);
    assert_true(hostile_say(&from, &hello));
    if (hear(&called, TW_MSG_RELAY_CALL, 2, &message) &&
        enter(&to, TW_ROLE_RELAY, call, TW_RELAY_TOKEN_BYTES))
        bytes = pump(&from, &to);
    print_message("%.2f MB piped\n", (double)bytes / 1e6);
    assert_int_equal(bytes, 0);
    assert_true(hostile_ends(&from, 5) && from.has_goodbye);
    assert_non_null(strstr(from.goodbye.sentence, "in the roster of this relay"));
    assert_true(cluster_number(&cluster, 0, "network.relay.calls_refused") >= 1);
    assert_int_equal((int)cluster_number(&cluster, 0, "network.relay.relayed_bytes"), 0);
    hostile_close(&from);
    hostile_close(&to);
    hostile_close(&caller);
    hostile_close(&called);
    rounds_go_on();
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN);
    return test_run(NULL, NULL);
}
