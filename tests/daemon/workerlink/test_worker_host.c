/* Tests of the daemon's side of the worker link. The test plays the worker, and may send false
 * messages. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"
#include "daemon/workerlink/worker_host.h"
#include "tests/test.h"

enum { EVENTS_MAX = 64 };

static struct {
    uv_loop_t loop;
    struct tw_run run;
    struct tw_layout layout;
    struct tw_worker_host *host;
    char dir[32], path[64];
    int fd, memfd;
    struct tw_shm shm;
    struct tw_wmsg_welcome welcome;
    struct tw_event events[EVENTS_MAX];
    unsigned events_count, gone, refused, frozen, worked;
    char sentence[256];
    struct tw_encoded encoded; /* argument of the newest `encoded` callback */
    unsigned encoded_count;
} t;

/* ---- the daemon's side --------------------------------------------------------------------- */

static void on_event(void *user, const struct tw_event *event) {
    assert_true(t.events_count < EVENTS_MAX);
    t.events[t.events_count++] = *event;
}

static void on_gone(void *user, const char *sentence) {
    t.gone++;
    (void)snprintf(t.sentence, sizeof(t.sentence), "%s", sentence);
}

static void on_refused(void *user, const char *sentence) {
    t.refused++;
    (void)snprintf(t.sentence, sizeof(t.sentence), "%s", sentence);
}

static void on_worked(void *user) {
    t.worked++;
}

static void on_frozen(void *user) {
    t.frozen++;
}

static void on_encoded(void *user, const struct tw_encoded *encoded) {
    t.encoded = *encoded;
    t.encoded_count++;
}

static int host_open(void **state) {
    memset(&t, 0, sizeof(t));
    t.fd = t.memfd = -1;
    struct tw_error err = {0};
    tw_run_defaults(&t.run);
    t.run.sync.codec = t.run.sync.result = TW_CODEC_INT8;
    assert_int_equal(tw_run_set(&t.run, "model.layers", "1", &err), TW_OK);
    assert_int_equal(tw_run_set(&t.run, "model.width", "64", &err), TW_OK);
    assert_int_equal(tw_run_set(&t.run, "model.heads", "2", &err), TW_OK);
    assert_int_equal(tw_run_set(&t.run, "sync.fragments", "2", &err), TW_OK);
    assert_int_equal(tw_layout_init(&t.layout, &t.run, &err), TW_OK);
    (void)strcpy(t.dir, "/tmp/tw-host-XXXXXX");
    assert_non_null(mkdtemp(t.dir));
    (void)snprintf(t.path, sizeof(t.path), "%s/worker.sock", t.dir);
    assert_int_equal(uv_loop_init(&t.loop), 0);
    const struct tw_worker_host_config config = {
        .loop = &t.loop,
        .run = &t.run,
        .layout = &t.layout,
        .socket_path = t.path,
        .data_path = "/text",
        .pool_bytes = 1 << 20,
        .events = {.event = on_event,
                   .gone = on_gone,
                   .refused = on_refused,
                   .frozen = on_frozen,
                   .worked = on_worked,
                   .encoded = on_encoded},
    };
    if (tw_worker_host_create(&t.host, &config, &err) != TW_OK) fail_msg("%s", err.message);
    return 0;
}

static int host_close(void **state) {
    if (t.fd >= 0) (void)close(t.fd);
    if (t.memfd >= 0) {
        (void)munmap(t.shm.base, t.shm.geometry.bytes);
        (void)close(t.memfd);
    }
    tw_worker_host_close(t.host);
    (void)uv_run(&t.loop, UV_RUN_DEFAULT);
    tw_worker_host_destroy(t.host);
    assert_int_equal(uv_loop_close(&t.loop), 0);
    assert_int_equal(access(t.path, F_OK), -1); /* the socket file is gone, too */
    (void)rmdir(t.dir);
    return 0;
}

#define FACT(name) TEST_IN(host_open, host_close, name)

FACT(socket_is_for_the_daemons_user_alone) {
    struct stat info;
    assert_int_equal(stat(t.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
}

/* Runs the loop until the condition holds. If it never does, CTest's timeout ends the test. */
#define PUMP_UNTIL(condition)                                                                      \
    while (!(condition)) (void)uv_run(&t.loop, UV_RUN_ONCE)

/* ---- the worker's side --------------------------------------------------------------------- */

static int worker_connect(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", t.path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static struct tw_worker_msg message(enum tw_worker_msg_kind kind) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = kind;
    msg.bytes = tw_worker_msg_bytes(kind);
    return msg;
}

static void say(const struct tw_worker_msg *msg) {
    assert_int_equal(send(t.fd, msg, msg->bytes, 0), (ssize_t)msg->bytes);
}

/* Reads the next message from the daemon, which must be of this kind. */
static struct tw_worker_msg hear(enum tw_worker_msg_kind kind) {
    struct tw_worker_msg msg;
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&msg, sizeof(msg)};
    struct msghdr header = {.msg_iov = &iov,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof(control)};
    memset(&msg, 0, sizeof(msg));
    ssize_t size;
    while ((size = recvmsg(t.fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0) {
        (void)uv_run(&t.loop, UV_RUN_ONCE);
    }
    assert_int_equal(size, (ssize_t)msg.bytes);
    assert_int_equal(msg.kind, kind);
    const struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
    if (cmsg != NULL) memcpy(&t.memfd, CMSG_DATA(cmsg), sizeof(int));
    return msg;
}

static void hear_nothing(void) {
    struct tw_worker_msg msg;
    for (unsigned i = 0; i < 8; i++) (void)uv_run(&t.loop, UV_RUN_NOWAIT);
    assert_int_equal(recv(t.fd, &msg, sizeof(msg), MSG_DONTWAIT), -1);
}

static void worker_hello(void) {
    struct tw_worker_msg hello = message(TW_WMSG_HELLO);
    hello.u.hello.version = TW_WORKER_VERSION;
    t.fd = worker_connect();
    say(&hello);
    t.welcome = hear(TW_WMSG_WELCOME).u.welcome;
    assert_true(t.memfd >= 0);
    void *base =
        mmap(NULL, t.welcome.geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t.memfd, 0);
    assert_true(base != MAP_FAILED);
    tw_shm_bind(&t.shm, base, &t.welcome.geometry, &t.layout);
}

static void worker_ready(void) {
    struct tw_worker_msg ready = message(TW_WMSG_READY);
    ready.u.ready.step = 7;
    ready.u.ready.tokens = 700;
    say(&ready);
    (void)hear(TW_WMSG_CLOCK);
    assert_true(tw_worker_host_is_ready(t.host));
}

/* Opens a ready worker, and consumes its WORKER_UP event. */
static void worker_open(void) {
    worker_hello();
    worker_ready();
    t.events_count = 0;
}

static void worker_close(void) {
    (void)close(t.fd);
    t.fd = -1;
    const unsigned gone = t.gone;
    PUMP_UNTIL(t.gone > gone);
    (void)munmap(t.shm.base, t.shm.geometry.bytes);
    (void)close(t.memfd);
    t.memfd = -1;
}

static uint8_t *bytes_at(struct tw_span span) {
    uint8_t *bytes = tw_shm_pool(&t.shm, span.offset, span.bytes);
    assert_non_null(bytes);
    return bytes;
}

static struct tw_wmsg_encode encode_ask(uint64_t round, uint64_t count) {
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_ENCODE;
    action.u.encode.round = round;
    action.u.encode.parts_count = 1;
    action.u.encode.parts[0].count = count;
    tw_worker_host_act(t.host, &action);
    return hear(TW_WMSG_ENCODE).u.encode;
}

static void encode_answer(uint64_t round, uint32_t bytes) {
    struct tw_worker_msg msg = message(TW_WMSG_ENCODED);
    msg.u.encoded.round = round;
    msg.u.encoded.parts_count = 1;
    msg.u.encoded.bytes[0] = bytes;
    say(&msg);
}

/* Makes a payload of these bytes in the pool, and returns its hash. */
static struct tw_id payload_make(uint64_t round, const void *bytes, uint32_t size) {
    const struct tw_wmsg_encode encode = encode_ask(round, 1024);
    memcpy(bytes_at(encode.parts[0].out), bytes, size);
    encode_answer(round, size);
    const unsigned before = t.events_count;
    PUMP_UNTIL(t.events_count > before);
    return t.events[before].u.encoded.hashes[0];
}

/* ---- facts --------------------------------------------------------------------------------- */

FACT(worker_is_welcomed_with_sealed_memory) {
    worker_hello();
    assert_int_equal(t.welcome.start, TW_START_FRESH);
    assert_string_equal(t.welcome.data_path, "/text");
    assert_true((fcntl(t.memfd, F_GET_SEALS) & (F_SEAL_GROW | F_SEAL_SHRINK)) ==
                (F_SEAL_GROW | F_SEAL_SHRINK));
    assert_int_equal(ftruncate(t.memfd, 1), -1);
    assert_int_equal(t.events_count, 0); /* the core gets no event before READY */
    worker_ready();
    assert_int_equal(t.events[0].kind, TW_EV_WORKER_UP);
    assert_int_equal(t.events[0].u.worker->step, 7);
}

/* Without training data a worker must wait. It gets WELCOME when there is data. */
FACT(held_worker_is_welcomed_when_it_is_let_go) {
    struct tw_worker_msg hello = message(TW_WMSG_HELLO);
    hello.u.hello.version = TW_WORKER_VERSION;
    tw_worker_host_set_held(t.host, true);
    t.fd = worker_connect();
    say(&hello);
    PUMP_UNTIL(t.host->state == TW_HOST_VERIFYING);
    hear_nothing();
    (void)close(t.fd); /* the worker gives up waiting, and connects again */
    PUMP_UNTIL(t.gone == 1);
    t.fd = worker_connect();
    say(&hello);
    PUMP_UNTIL(t.host->state == TW_HOST_VERIFYING);
    tw_worker_host_set_held(t.host, false);
    (void)hear(TW_WMSG_WELCOME);
    assert_true(t.memfd >= 0);
    (void)close(t.memfd);
    t.memfd = -1;
}

FACT(requests_before_ready_are_dropped) {
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_ENCODE;
    action.u.encode.parts_count = 1;
    action.u.encode.parts[0].count = 1024;
    worker_hello();
    tw_worker_host_act(t.host, &action);
    worker_ready();
    hear_nothing();
    assert_int_equal(t.host->payloads.pool.used, 0);
}

FACT(output_gets_the_name_of_its_bytes) {
    static uint8_t bytes[600 * 1024]; /* too large to be hashed on the loop's thread */
    worker_open();
    for (uint32_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 31);
    static const uint32_t sizes[] = {1000, sizeof(bytes)};
    for (unsigned i = 0; i < 2; i++) {
        const struct tw_wmsg_encode encode = encode_ask(i, sizes[i] < 5000 ? 1024 : 512 * 1024);
        assert_true(encode.parts[0].out.bytes >= sizes[i] || i == 1);
        const uint32_t size =
            sizes[i] < encode.parts[0].out.bytes ? sizes[i] : encode.parts[0].out.bytes;
        memcpy(bytes_at(encode.parts[0].out), bytes, size);
        encode_answer(i, size);
        PUMP_UNTIL(t.events_count == i + 1);
        const struct tw_event *event = &t.events[i];
        const struct tw_id name = tw_sha256(bytes, size);
        assert_int_equal(event->kind, TW_EV_ENCODED);
        assert_true(event->ok);
        assert_int_equal(event->u.encoded.bytes[0], size);
        assert_memory_equal(&event->u.encoded.hashes[0], &name, sizeof(name));
        assert_true(tw_pool_find(&t.host->payloads.pool, &name) >= 0);
    }
}

FACT(unasked_answer_closes_the_worker) {
    worker_open();
    encode_answer(3, 10);
    PUMP_UNTIL(t.gone == 1);
    assert_int_equal(t.events[t.events_count - 1].kind, TW_EV_WORKER_DOWN);
    assert_false(tw_worker_host_is_ready(t.host));
}

FACT(second_answer_to_one_request_closes_the_worker) {
    worker_open();
    (void)payload_make(1, "abc", 3);
    encode_answer(1, 3);
    PUMP_UNTIL(t.gone == 1);
}

FACT(answer_beyond_its_room_closes_the_worker_and_frees_the_room) {
    worker_open();
    const struct tw_wmsg_encode encode = encode_ask(1, 1024);
    encode_answer(1, encode.parts[0].out.bytes + 1);
    PUMP_UNTIL(t.gone == 1);
    assert_int_equal(t.host->payloads.pool.used, 0);
}

FACT(foreign_packets_close_the_worker) {
    static const uint32_t lengths[] = {1, 8, 100, 8000};
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        char junk[8000];
        memset(junk, (int)(3 + i), sizeof(junk));
        worker_open();
        assert_int_equal(send(t.fd, junk, lengths[i], 0), (ssize_t)lengths[i]);
        worker_close();
    }
    assert_int_equal(t.gone, 4);
}

FACT(daemons_own_messages_are_refused_from_a_worker) {
    worker_open();
    const struct tw_worker_msg msg = message(TW_WMSG_FINISH);
    say(&msg);
    PUMP_UNTIL(t.gone == 1);
}

/* A worker at its stop step sends no more steps. If it were not marked as finished, the
 * supervisor would end it as hanging. */
FACT(worker_at_its_stop_stays_finished_when_the_run_goes_on) {
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_FINISH;
    action.u.finish.goes_on = true;
    worker_open(); /* at step 7 */
    static const struct {
        uint64_t stop_step, step;
        bool is_finished;
    } cases[] = {{0, 7, false}, {8, 7, false}, {8, 8, true}, {8, 9, true}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        t.host->config.stop_step = cases[i].stop_step;
        struct tw_worker_msg step = message(TW_WMSG_STEP);
        step.u.step.step = cases[i].step;
        const unsigned events = t.events_count;
        say(&step);
        PUMP_UNTIL(t.events_count > events);
        tw_worker_host_act(t.host, &action);
        assert_int_equal(t.host->is_finished, cases[i].is_finished);
        assert_int_equal(hear(TW_WMSG_FINISH).u.finish.goes_on, !cases[i].is_finished);
    }
    worker_close();
    t.host->is_finished = false;
    t.host->config.stop_step = 7; /* READY reports the step too */
    worker_open();
    tw_worker_host_act(t.host, &action);
    assert_true(t.host->is_finished);
    assert_int_equal(hear(TW_WMSG_FINISH).u.finish.goes_on, 0);
}

FACT(requests_of_a_dead_worker_are_forgotten) {
    worker_open();
    (void)encode_ask(1, 1024);
    assert_true(t.host->payloads.pool.used > 0);
    worker_close();
    assert_int_equal(t.host->payloads.pool.used, 0);
    assert_int_equal(t.events_count, 1); /* WORKER_DOWN and no ENCODED */
    worker_open();
    /* The new worker has no open request, so its answer ends the link. */
    encode_answer(1, 10);
    PUMP_UNTIL(t.gone == 2);
}

FACT(second_worker_is_turned_away) {
    worker_open();
    const int second = worker_connect();
    PUMP_UNTIL(t.refused == 1);
    char byte;
    assert_int_equal(recv(second, &byte, 1, 0), 0);
    (void)close(second);
    assert_true(tw_worker_host_is_ready(t.host));
}

FACT(last_words_are_passed_on) {
    struct tw_worker_msg fatal = message(TW_WMSG_FATAL);
    (void)strcpy(fatal.u.fatal.text, "no training text");
    worker_open();
    say(&fatal);
    worker_close();
    assert_string_equal(t.sentence, "no training text");
}

/* ---- arriving payloads --------------------------------------------------------------------- */

static enum tw_sanity answered; /* the worker's answer about a result that decodes */

static struct tw_event verify(const struct tw_id *name, uint32_t size, uint64_t elements,
                              const char *bytes) {
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_EXPECT;
    action.u.payload.hash = *name;
    action.u.payload.bytes = size;
    action.u.payload.elements = elements;
    action.u.payload.content = elements > 0 ? TW_CONTENT_RESULT : TW_CONTENT_OPAQUE;
    tw_worker_host_act(t.host, &action);
    assert_int_equal(
        tw_payloads_chunk_put(&t.host->payloads, name, 0, (const uint8_t *)bytes, size), TW_OK);
    action.kind = TW_ACT_VERIFY;
    const unsigned before = t.events_count;
    tw_worker_host_act(t.host, &action);
    if (elements > 0) {
        struct tw_worker_msg checked = message(TW_WMSG_CHECKED);
        const struct tw_worker_msg check = hear(TW_WMSG_CHECK);
        assert_int_equal(check.u.check.content, TW_CONTENT_RESULT);
        checked.u.checked.tag = check.u.check.tag;
        checked.u.checked.status = bytes[0] == 'x' ? TW_CORRUPT : TW_OK;
        checked.u.checked.sanity = answered;
        say(&checked);
    }
    PUMP_UNTIL(t.events_count > before);
    assert_int_equal(t.events[before].kind, TW_EV_VERIFIED);
    return t.events[before];
}

FACT(payload_is_held_only_under_its_own_name_and_decodable) {
    worker_open();
    struct tw_id name = tw_sha256("hello", 5);
    assert_true(verify(&name, 5, 0, "hello").ok);
    name = tw_sha256("right", 5);
    assert_false(verify(&name, 5, 0, "wrong").ok);
    name = tw_sha256("float", 5);
    assert_true(verify(&name, 5, 100, "float").ok);
    name = tw_sha256("xjunk", 5);
    const struct tw_event found = verify(&name, 5, 100, "xjunk");
    assert_false(found.ok);
    assert_true(found.u.chunk.is_unfit);
    assert_int_not_equal(
        t.host->payloads.pool.rows[tw_pool_find(&t.host->payloads.pool, &name)].state,
        TW_PAYLOAD_HELD);
}

FACT(large_results_are_told_apart) {
    worker_open();
    const struct tw_id fair = tw_sha256("small", 5), large = tw_sha256("large", 5),
                       huge = tw_sha256("crazy", 5);
    assert_int_equal(verify(&fair, 5, 100, "small").u.chunk.sanity, TW_SANITY_FAIR);
    answered = TW_SANITY_OUTLIER;
    const struct tw_event found = verify(&large, 5, 100, "large");
    assert_true(found.ok);
    assert_int_equal(found.u.chunk.sanity, TW_SANITY_OUTLIER);
    answered = TW_SANITY_EXTREME;
    assert_int_equal(verify(&huge, 5, 100, "crazy").u.chunk.sanity, TW_SANITY_EXTREME);
    answered = TW_SANITY_FAIR;
}

FACT(chunk_of_the_wrong_size_or_place_is_refused) {
    struct tw_payloads *payloads = &t.host->payloads;
    static uint8_t bytes[TW_CHUNK_BYTES_MAX];
    const struct tw_id name = {{1}}, other = {{2}};
    uint32_t row, size;
    const uint8_t *out;
    assert_int_equal(tw_pool_expect(&payloads->pool, &name, TW_CHUNK_BYTES_MAX + 10, &row, NULL),
                     TW_OK);
    assert_int_equal(tw_payloads_chunk_put(payloads, &other, 0, bytes, 10), TW_AGAIN);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, 0, bytes, 10), TW_PROTO);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, 1, bytes, 11), TW_PROTO);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, 2, bytes, 10), TW_PROTO);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, UINT32_MAX, bytes, 10), TW_PROTO);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, 0, bytes, sizeof(bytes)), TW_OK);
    assert_int_equal(tw_payloads_chunk_put(payloads, &name, 1, bytes, 10), TW_OK);
    assert_int_equal(tw_payloads_chunk_get(payloads, &name, 1, &out, &size, &row), TW_AGAIN);
    tw_pool_verified(&payloads->pool, row);
    assert_int_equal(tw_payloads_chunk_get(payloads, &name, 1, &out, &size, &row), TW_OK);
    assert_int_equal(size, 10);
    assert_int_equal(tw_payloads_row_at(payloads, out), (int)row);
    assert_int_equal(tw_payloads_chunk_get(payloads, &name, 2, &out, &size, &row), TW_PROTO);
}

FACT(full_pool_answers_that_it_cannot) {
    uint32_t row;
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    worker_open();
    assert_int_equal(tw_pool_reserve(&t.host->payloads.pool, (1 << 20) - 64, &row, NULL), TW_OK);
    action.kind = TW_ACT_ENCODE;
    action.u.encode.parts_count = 1;
    action.u.encode.parts[0].count = 4096;
    tw_worker_host_act(t.host, &action);
    assert_int_equal(t.events[0].kind, TW_EV_ENCODED);
    assert_false(t.events[0].ok);
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_EXPECT;
    action.u.payload.hash.bytes[0] = 1;
    action.u.payload.bytes = 4096;
    tw_worker_host_act(t.host, &action);
    assert_int_equal(t.events[1].kind, TW_EV_VERIFIED);
    assert_false(t.events[1].ok);
    hear_nothing();
}

/* ---- changes of (phi, u) ------------------------------------------------------------------- */

static void apply_ask(const struct tw_id *name) {
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_APPLY;
    action.u.apply.parts_count = 1;
    action.u.apply.parts[0].mode = TW_APPLY_MIX;
    action.u.apply.parts[0].count = 1024;
    action.inputs[0] = *name;
    tw_worker_host_act(t.host, &action);
}

static void applied_say(uint64_t rounds) {
    struct tw_worker_msg applied = message(TW_WMSG_APPLIED);
    applied.u.applied.rounds = rounds;
    say(&applied);
}

FACT(payload_in_use_survives_its_drop) {
    worker_open();
    struct tw_action drop = {.kind = TW_ACT_DROP};
    drop.u.payload.hash = payload_make(1, "abcd", 4);
    apply_ask(&drop.u.payload.hash);
    const struct tw_wmsg_apply apply = hear(TW_WMSG_APPLY).u.apply;
    tw_worker_host_act(t.host, &drop);
    assert_memory_equal(bytes_at(apply.parts[0].in), "abcd", 4);
    assert_true(t.host->payloads.pool.used > 0);
    applied_say(2);
    PUMP_UNTIL(t.events[t.events_count - 1].kind == TW_EV_APPLIED);
    assert_int_equal(t.host->payloads.pool.used, 0);
}

/* CHECKED is sent by a thread beside the training loop, so it does not show that the loop runs. */
FACT(changes_are_signs_of_life_and_checks_are_not) {
    worker_open();
    const struct tw_id name = payload_make(1, "abcd", 4); /* ENCODED */
    assert_int_equal(t.worked, 1);
    apply_ask(&name);
    (void)hear(TW_WMSG_APPLY);
    assert_int_equal(t.worked, 1);
    applied_say(2);
    PUMP_UNTIL(t.events[t.events_count - 1].kind == TW_EV_APPLIED);
    assert_int_equal(t.worked, 2);
    const struct tw_id other = tw_sha256("hello", 5);
    assert_true(verify(&other, 5, 1024, "hello").ok); /* CHECKED */
    assert_int_equal(t.worked, 2);
}

/* The anchor phi and momentum u change as on all nodes. The parameters do not. */
FACT(held_theta_stays_while_rounds_are_applied) {
    worker_open();
    const struct tw_id name = payload_make(1, "abcd", 4);
    t.host->is_theta_held = true;
    apply_ask(&name);
    assert_int_equal(hear(TW_WMSG_APPLY).u.apply.parts[0].mode, TW_APPLY_STAY);
    applied_say(2);
    PUMP_UNTIL(t.events[t.events_count - 1].kind == TW_EV_APPLIED);
    t.host->is_theta_held = false;
    apply_ask(&name);
    assert_int_equal(hear(TW_WMSG_APPLY).u.apply.parts[0].mode, TW_APPLY_MIX);
}

/* The core must not count this step as a merge with the partner. */
FACT(held_theta_makes_a_pair_step_one_alone) {
    worker_open();
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_PAIR_APPLY;
    t.host->is_theta_held = true;
    tw_worker_host_act(t.host, &action);
    assert_int_equal(hear(TW_WMSG_PAIR_APPLY).u.pair_apply.is_alone, 1);
    applied_say(2);
    PUMP_UNTIL(t.events_count > 0 && t.events[t.events_count - 1].kind == TW_EV_APPLIED);
    assert_true(t.events[t.events_count - 1].u.applied.is_alone);
}

FACT(frozen_host_starts_no_change) {
    worker_open();
    const struct tw_id name = payload_make(1, "abcd", 4);
    apply_ask(&name);
    (void)hear(TW_WMSG_APPLY);
    assert_false(tw_worker_host_freeze(t.host)); /* one change is under way in the worker */
    apply_ask(&name);
    hear_nothing();
    (void)encode_ask(2, 1024); /* a request that changes nothing is passed on */
    applied_say(2);
    PUMP_UNTIL(t.frozen == 1);
    hear_nothing();
    tw_worker_host_thaw(t.host);
    (void)hear(TW_WMSG_APPLY);
    applied_say(3);
    PUMP_UNTIL(t.events[t.events_count - 1].kind == TW_EV_APPLIED &&
               t.events[t.events_count - 1].u.applied.rounds == 3);
    assert_true(tw_worker_host_freeze(t.host));
    tw_worker_host_thaw(t.host);
}

FACT(death_of_the_worker_completes_a_freeze) {
    worker_open();
    const struct tw_id name = payload_make(1, "abcd", 4);
    apply_ask(&name);
    assert_false(tw_worker_host_freeze(t.host));
    worker_close();
    assert_int_equal(t.frozen, 1);
    tw_worker_host_thaw(t.host);
}

FACT(next_worker_resumes_from_the_newest_snapshot) {
    struct tw_snapshot_slot slot;
    memset(&slot, 0, sizeof(slot));
    worker_open();
    for (uint32_t i = 0; i < 2; i++) {
        slot.step = 10 + i;
        tw_shm_snapshot_begin(&t.shm, i);
        tw_shm_snapshot_end(&t.shm, i, &slot);
    }
    worker_close();
    worker_hello();
    assert_int_equal(t.welcome.start, TW_START_SNAPSHOT);
    assert_int_equal(t.welcome.slot, 1);
    worker_ready();
    tw_shm_snapshot_begin(&t.shm, 1); /* the worker dies while it writes snapshot 1 */
    worker_close();
    worker_hello();
    assert_int_equal(t.welcome.slot, 0);
    worker_ready();
    worker_close();
    t.host->is_anchor_wanted = true;
    worker_hello();
    assert_int_equal(t.welcome.start, TW_START_ANCHOR);
}

/* A worker admitted too early would write into the pages that are being given back. */
FACT(worker_waits_until_memory_is_given_back) {
    struct tw_worker_msg hello = message(TW_WMSG_HELLO);
    hello.u.hello.version = TW_WORKER_VERSION;
    t.host->is_trim_running = true;
    t.fd = worker_connect();
    say(&hello);
    PUMP_UNTIL(t.host->state == TW_HOST_VERIFYING);
    assert_false(t.host->is_start_running);
    hear_nothing();
    t.host->is_trim_running = false;
    tw_worker_host_trim(t.host);
    (void)hear(TW_WMSG_WELCOME);
    (void)close(t.memfd);
    t.memfd = -1;
}

/* The byte budget reaches the worker unchanged, and the size of the contribution is reported. If
 * the payload's header is valid, the number of elements per rung is reported too. */
FACT(budget_and_size_of_a_contribution_are_reported) {
    enum { N = 1024 };
    static float x[N];
    t.run.sync.codec = TW_CODEC_AUTO; /* the host points to this run */
    worker_open();
    struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_ENCODE;
    action.u.encode.parts_count = 2;
    action.u.encode.parts[0].count = N;
    action.u.encode.parts[0].bytes_max = 777;
    for (unsigned round = 0; round < 2; round++) {
        action.u.encode.round = round;
        tw_worker_host_act(t.host, &action);
        const struct tw_wmsg_encode encode = hear(TW_WMSG_ENCODE).u.encode;
        size_t bytes;
        assert_true(encode.parts[0].bytes_max == 777 && encode.parts[1].bytes_max == 0);
        uint8_t *out = bytes_at(encode.parts[0].out);
        assert_int_equal(tw_codec_auto.encode(x, N, out, encode.parts[0].out.bytes, &bytes), TW_OK);
        if (round == 1) out[0] = 99; /* a malformed header: too many pieces */
        struct tw_worker_msg msg = message(TW_WMSG_ENCODED);
        msg.u.encoded.round = round;
        msg.u.encoded.parts_count = 2;
        msg.u.encoded.bytes[0] = (uint32_t)bytes;
        say(&msg);
        PUMP_UNTIL(t.encoded_count > round);
        assert_true(t.encoded.round == round && t.encoded.parts_count == 2);
        assert_int_equal(t.encoded.parts[0].bytes, bytes);
        assert_int_equal(t.encoded.parts[0].elements, N);
        assert_int_equal(t.encoded.parts[0].rungs[1], round == 0 ? N : 0);
        assert_int_equal(t.encoded.parts[1].elements, 0);
    }
}
