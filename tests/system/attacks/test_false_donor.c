/* Ids that hold the run secret, and have no seat, give a newcomer false states: of a run that is
 * over, and of one that goes on. They are linked first, prove the group's history with its own
 * records, and bear each other out. After the end of a run the newcomer finds them out alone. */
#include <signal.h>
#include <time.h>

#include <jansson.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/exit_codes.h"
#include "base/hash.h"
#include "compress/pack.h"
#include "proto/control.h"
#include "proto/shm.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { HONEST = 2, NEWCOMER = 2, IDS = 4, FRAGMENTS = 2, COMMITS = 16, STATE_MAX = 1 << 20 };

struct link {
    struct hostile control, bulk;
    bool is_shut;
};

/* A false state of a fragment. */
struct false_state {
    struct tw_msg_state offer;
    uint8_t chunk[TW_CHUNK_HEADER_BYTES + TW_CHUNK_BYTES_MAX]; /* the packed state, as one chunk */
    uint32_t chunk_bytes;
};

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static struct link puller, ids[IDS];
static struct false_state lies[FRAGMENTS];
static struct tw_message commits[COMMITS]; /* the newest records of the group, oldest first */
static uint32_t commits_count;
static struct tw_msg_status group; /* STATUS of an honest node */
static unsigned pulled, testified;

static int close_all(void **state) {
    for (uint32_t i = 0; i < HONEST; i++) {
        if (cluster.nodes[i].pid > 0) (void)kill(cluster.nodes[i].pid, SIGCONT);
    }
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool link_open(struct link *link, uint16_t port) {
    struct tw_hello hello;
    struct tw_frame frame;
    target.port = port;
    link->is_shut = true;
    if (!hostile_join(&link->control, &target, NULL)) return false;
    if (!hostile_open(&link->bulk, &target, &link->control)) return false;
    hostile_hello(&link->bulk, &target, TW_ROLE_BULK, link->control.tag, &hello);
    link->is_shut = !hostile_say(&link->bulk, &hello) ||
                    hostile_next(&link->bulk, 10, &frame) != TW_OK || frame.kind != TW_FRAME_HELLO;
    return !link->is_shut;
}

static void link_close(struct link *link) {
    hostile_close(&link->bulk);
    hostile_close(&link->control);
}

static bool hear(struct hostile *h, enum tw_message_kind kind, struct tw_message *message) {
    struct tw_frame frame;
    while (hostile_next(h, 10, &frame) == TW_OK) {
        if (frame.kind != kind) continue;
        return tw_control_decode(frame.kind, frame.body, frame.body_bytes, message, NULL) == TW_OK;
    }
    return false;
}

/* ---- the attacker learns the group's history and state -------------------------------------- */

/* Reads the newest records, until no more come. */
static void learn_history(void) {
    static struct tw_message message;
    struct tw_frame frame;
    assert_true(hear(&puller.control, TW_MSG_STATUS, &message));
    group = message.u.status;
    const uint64_t first = group.rounds > COMMITS / 2 ? group.rounds - COMMITS / 2 : 0;
    message = (struct tw_message){.kind = TW_MSG_LOG_GET};
    message.u.log_get = (struct tw_msg_log_get){.lineage = group.lineage, .round = first};
    assert_true(hostile_message(&puller.control, &message));
    for (commits_count = 0; hostile_next(&puller.control, 0.3, &frame) == TW_OK;) {
        if (frame.kind != TW_MSG_COMMIT || commits_count == COMMITS) continue;
        struct tw_message *const commit = &commits[commits_count];
        if (tw_control_decode(frame.kind, frame.body, frame.body_bytes, commit, NULL) == TW_OK &&
            commit->u.commit.record.round == first + commits_count)
            commits_count++;
    }
    assert_true(commits_count > 0);
    const struct tw_record *const tip = &commits[commits_count - 1].u.commit.record;
    group.rounds = tip->round + 1;
    group.clock_tokens = tip->clock_tokens;
    group.tip = tw_record_digest(tip);
}

/* Makes a false state of the packed one: another first parameter. */
static void spoil(struct false_state *lie, uint8_t *packed, uint32_t bytes) {
    static float phi[STATE_MAX], u[STATE_MAX];
    const uint64_t count = tw_get_u64(packed + 8);
    struct tw_packer *packer = NULL;
    size_t size = 0;
    assert_in_range(count, 1, STATE_MAX);
    assert_int_equal(tw_packer_create(&packer, (size_t)count, TW_MOMENTUM_FLOAT32, NULL), TW_OK);
    assert_int_equal(tw_unpack(packer, packed, bytes, phi, u, (size_t)count, NULL), TW_OK);
    phi[0] += 1;
    assert_int_equal(tw_pack(packer, phi, u, (size_t)count, lie->chunk + TW_CHUNK_HEADER_BYTES,
                             TW_CHUNK_BYTES_MAX, &size, NULL),
                     TW_OK);
    tw_packer_destroy(packer);
    lie->offer.digest = tw_shm_digest(phi, u, count, TW_MOMENTUM_FLOAT32);
    lie->offer.hash = tw_sha256(lie->chunk + TW_CHUNK_HEADER_BYTES, size);
    lie->offer.bytes = (uint32_t)size;
    memcpy(lie->chunk, lie->offer.hash.bytes, sizeof(lie->offer.hash.bytes));
    lie->chunk_bytes = TW_CHUNK_HEADER_BYTES + (uint32_t)size;
}

static void learn_state(uint32_t fragment) {
    static struct tw_message message;
    struct false_state *const lie = &lies[fragment];
    struct tw_frame frame;
    message = (struct tw_message){.kind = TW_MSG_STATE_GET};
    message.u.state_get = (struct tw_msg_state_get){.lineage = group.lineage, .fragment = fragment};
    assert_true(hostile_message(&puller.control, &message));
    do assert_true(hear(&puller.control, TW_MSG_STATE, &message));
    while (message.u.state.fragment != fragment || message.u.state.bytes == 0);
    lie->offer = message.u.state;
    assert_true(lie->offer.bytes <= TW_CHUNK_BYTES_MAX);
    message = (struct tw_message){.kind = TW_MSG_PULL};
    message.u.pull = (struct tw_msg_pull){.hash = lie->offer.hash, .count = 1};
    assert_true(hostile_message(&puller.control, &message));
    assert_int_equal(hostile_next(&puller.bulk, 10, &frame), TW_OK);
    assert_int_equal(frame.kind, TW_FRAME_CHUNK);
    static uint8_t packed[TW_CHUNK_BYTES_MAX];
    const uint32_t bytes = frame.body_bytes - TW_CHUNK_HEADER_BYTES;
    memcpy(packed, (const uint8_t *)frame.body + TW_CHUNK_HEADER_BYTES, bytes);
    spoil(lie, packed, bytes);
}

/* ---- the attacker serves the newcomer ------------------------------------------------------- */

static bool say_status(struct link *link, uint32_t id) {
    static struct tw_message message;
    message = (struct tw_message){.kind = TW_MSG_STATUS, .u.status = group};
    message.u.status.nonce = 1000 + id;
    message.u.status.boot = 1;
    return hostile_message(&link->control, &message);
}

static bool answer_log_get(struct link *link, const struct tw_msg_log_get *get) {
    for (uint32_t i = 0; i < commits_count; i++) {
        if (commits[i].u.commit.record.round < get->round) continue;
        if (!hostile_message(&link->control, &commits[i])) return false;
    }
    return true;
}

static bool answer_state_get(struct link *link, const struct tw_msg_state_get *get) {
    static struct tw_message message;
    if (get->fragment >= FRAGMENTS) return true;
    message = (struct tw_message){.kind = TW_MSG_STATE, .u.state = lies[get->fragment].offer};
    if (get->rounds != 0) { /* it bears another id out */
        message.u.state.rounds = get->rounds;
        message.u.state.hash = (struct tw_id){{0}};
        message.u.state.bytes = 0;
        testified++;
    }
    return hostile_message(&link->control, &message);
}

static bool answer_pull(struct link *link, const struct tw_msg_pull *pull) {
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        if (!tw_id_equal(&pull->hash, &lies[f].offer.hash)) continue;
        pulled++;
        return hostile_frame(&link->bulk, TW_FRAME_CHUNK, lies[f].chunk, lies[f].chunk_bytes);
    }
    return true;
}

static void answer_all(struct link *link, uint32_t id) {
    static struct tw_message message;
    struct tw_frame frame;
    enum tw_status status = link->is_shut ? TW_IO : TW_OK;
    while (status == TW_OK) {
        status = hostile_next(&link->control, 0.001, &frame);
        if (status != TW_OK ||
            tw_control_decode(frame.kind, frame.body, frame.body_bytes, &message, NULL) != TW_OK)
            continue;
        bool is_open = true;
        switch ((int)message.kind) {
        case TW_MSG_STATUS: is_open = say_status(link, id); break;
        case TW_MSG_LOG_GET: is_open = answer_log_get(link, &message.u.log_get); break;
        case TW_MSG_STATE_GET: is_open = answer_state_get(link, &message.u.state_get); break;
        case TW_MSG_PULL: is_open = answer_pull(link, &message.u.pull); break;
        default: break;
        }
        if (!is_open) status = TW_IO;
    }
    link->is_shut = status == TW_IO;
}

static void serve_lies(void) {
    for (uint32_t i = 0; i < IDS; i++) answer_all(&ids[i], i);
}

/* ---- the tests ------------------------------------------------------------------------------ */

/* `stub`: arguments of the workers. */
static void open_run(const char *tokens, const char *stub) {
    pulled = testified = 0;
    memset(lies, 0, sizeof(lies));
    for (uint32_t i = 0; i < IDS; i++) ids[i] = (struct link){.is_shut = true};
    cluster_open(&cluster, tokens);
    cluster_make(&cluster, HONEST + 1);
    for (uint32_t i = 0; i <= NEWCOMER; i++)
        cluster_configure(&cluster, i, &(struct cluster_options){.stub = stub});
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    for (uint32_t i = 0; i < HONEST; i++) cluster_start(&cluster, i, NULL);
}

/* True if no known round of a fragment came after the state that the attacker learned of it: a
 * newcomer refuses older ones. */
static bool are_states_new(void) {
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        uint64_t next = lies[f].offer.rounds;
        while (next % FRAGMENTS != f) next++;
        if (lies[f].offer.bytes == 0 || next < group.rounds) return false;
    }
    return true;
}

/* The newcomer meets the liars alone, and has pulled a false state. */
static void meet_liars_first(void) {
    assert_true(link_open(&puller, cluster.nodes[0].port));
    for (unsigned tries = 0; !are_states_new(); tries++) {
        assert_in_range(tries, 0, 50);
        learn_history();
        for (uint32_t f = 0; f < FRAGMENTS; f++) learn_state(f);
        learn_history();
    }
    link_close(&puller);
    for (uint32_t i = 0; i < HONEST; i++) assert_int_equal(kill(cluster.nodes[i].pid, SIGSTOP), 0);
    cluster_start(&cluster, NEWCOMER, NULL);
    assert_true(cluster_reaches(&cluster, NEWCOMER, "node.uptime_s", 0, 30));
    for (uint32_t i = 0; i < IDS; i++) {
        assert_true(link_open(&ids[i], cluster.nodes[NEWCOMER].port));
        assert_true(say_status(&ids[i], i));
        serve_lies();
    }
    for (const double end_s = now_s() + 120; pulled == 0 && now_s() < end_s;) serve_lies();
    assert_true(pulled > 0);
}

static void let_others_come(void) {
    for (uint32_t i = 0; i < HONEST; i++) assert_int_equal(kill(cluster.nodes[i].pid, SIGCONT), 0);
}

/* Serves lies until the newcomer's log says this. */
static void serve_until(const char *text) {
    const double end_s = now_s() + 300;
    while (cluster_lines(&cluster, NEWCOMER, text) == 0) {
        if (now_s() > end_s) fail_msg("the newcomer never says %s", text);
        for (uint32_t i = 0; i < 100; i++) serve_lies();
    }
}

/* No false state was loaded, and a donor of one was named. */
static void assert_truth(void) {
    for (uint32_t i = 0; i < HONEST; i++)
        assert_true(cluster_digests(&cluster, i, NEWCOMER) >= FRAGMENTS);
    for (uint32_t f = 0; f < FRAGMENTS; f++) {
        char digest[TW_ID_HEX_BYTES];
        tw_id_hex(&lies[f].offer.digest, digest);
        digest[16] = '\0'; /* as in the log */
        assert_int_equal(cluster_lines(&cluster, NEWCOMER, digest), 0);
    }
    assert_true(cluster_says(&cluster, NEWCOMER, "level=warn ev=state_false ", 10));
    print_message("%u pulls of false states, %u false testimonies\n", pulled, testified);
}

static void close_run(void) {
    for (uint32_t i = 0; i < IDS; i++) link_close(&ids[i]);
    for (uint32_t i = 0; i <= HONEST; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

FACT(newcomer_to_a_finished_run_gets_its_model) {
    open_run("2m", NULL);
    for (uint32_t i = 0; i < HONEST; i++)
        assert_true(cluster_says(&cluster, i, "state=finished", 120));
    meet_liars_first();
    serve_until("level=warn ev=state_false "); /* the closing record suffices: no other is there */
    let_others_come();
    serve_until("state=finished");
    assert_truth();
    close_run();
}

FACT(newcomer_to_a_running_group_gets_its_state) {
    open_run("1g", "--step-us 100000"); /* the attacker learns states while they are new */
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", HONEST, 30));
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", COMMITS / 2, 60));
    meet_liars_first();
    let_others_come();
    serve_until("state=member");
    assert_truth();
    close_run();
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN); /* daemons close links of liars */
    return test_run(NULL, NULL);
}
