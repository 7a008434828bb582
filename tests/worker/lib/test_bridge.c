/* libthinwire as a trainer uses it. The trainer runs in its own thread, against a fake daemon. */
#include "tests/test.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <thinwire/worker.h>

#include "tests/worker/loop/fake_daemon.h"
#include "worker/lib/handover.h"

enum { PATIENCE_MS = 60000, STEP_US = 2000 };

static struct fake_daemon dae;
static char folder[32], socket_path[64];
static int listener = -1;

/* The trainer has separate tensors, as most trainers do. A step adds 1 to every parameter. */
static struct {
    pthread_t thread;
    float *tensors[64];
    atomic_int status;  /* enum thinwire_status of the last call */
    atomic_ulong steps; /* steps taken, except those that a restored state undid */
    atomic_bool must_stop, must_fail, is_done;
    atomic_int restored; /* number of restores */
    struct thinwire_error error;
    char long_text[2000];
    enum thinwire_status refused, taken; /* status of an invalid and of a valid text sample */
} own;

static int read_tensor(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                       uint64_t count, float *to) {
    if (atomic_load(&own.must_fail)) return 1;
    if (array == THINWIRE_PARAMETERS) {
        memcpy(to, own.tensors[tensor] + begin, (size_t)count * sizeof(float));
    } else {
        memset(to, 0, (size_t)count * sizeof(float));
    }
    return 0;
}

static int write_tensor(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                        uint64_t count, const float *from) {
    if (array == THINWIRE_PARAMETERS)
        memcpy(own.tensors[tensor] + begin, from, (size_t)count * sizeof(float));
    return 0;
}

static int heldout(void *self, double *loss) {
    *loss = own.tensors[0][0];
    return 0;
}

static void pause_us(long us) {
    const struct timespec wanted = {.tv_nsec = us * 1000};
    (void)nanosleep(&wanted, NULL);
}

static void step_take(const struct thinwire_run *run) {
    pause_us(STEP_US);
    for (uint32_t t = 0; t < run->tensors_count; t++) {
        for (uint64_t i = 0; i < run->tensors[t].elements; i++) own.tensors[t][i] += 1.0f;
    }
}

static void *train(void *argument) {
    const struct thinwire_config config = {.socket = socket_path, .device = "test"};
    const struct thinwire_trainer trainer = {
        .read = read_tensor, .write = write_tensor, .heldout = heldout, .engine = "own"};
    struct thinwire_worker *worker;
    struct thinwire_next next = {.step = 0};
    const struct thinwire_step done = {.loss = 1.5f};
    enum thinwire_status status = thinwire_worker_open(&worker, &config, PATIENCE_MS, &own.error);
    if (status == THINWIRE_OK) {
        const struct thinwire_run *run = thinwire_worker_run(worker);
        for (uint32_t t = 0; t < run->tensors_count; t++)
            own.tensors[t] = calloc((size_t)run->tensors[t].elements, sizeof(float));
        own.refused = thinwire_worker_sample(worker, "", "\xff", &own.error);
        memset(own.long_text, 'a', sizeof(own.long_text) - 1);
        memcpy(own.long_text + 1022, "\xc3\xa4", 2); /* a 2-byte character across the limit */
        own.taken = thinwire_worker_sample(worker, "In the", own.long_text, &own.error);
        status = thinwire_worker_start(worker, &trainer, &own.error);
        bool has_step = false;
        while (status >= THINWIRE_OK && !atomic_load(&own.must_stop)) {
            status = thinwire_worker_step(worker, has_step ? &done : NULL, 20, &next, &own.error);
            atomic_store(&own.status, status);
            has_step = status == THINWIRE_OK;
            if (has_step && next.is_restored) atomic_fetch_add(&own.restored, 1);
            if (!has_step) continue;
            step_take(run);
            atomic_store(&own.steps, next.step + 1);
        }
        thinwire_worker_close(worker);
    }
    atomic_store(&own.status, status);
    atomic_store(&own.is_done, true);
    return NULL;
}

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    dae.welcome.snapshot_steps = 1000000;
    (void)close(dae.worker_fd);
    (void)snprintf(folder, sizeof(folder), "/tmp/thinwire-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(socket_path, sizeof(socket_path), "%s/worker.sock", folder);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_return_code(bind(listener, (const struct sockaddr *)&address, sizeof(address)), errno);
    assert_return_code(listen(listener, 4), errno);
    memset(&own, 0, sizeof(own));
    assert_int_equal(pthread_create(&own.thread, NULL, train, NULL), 0);
    return 0;
}

static int close_all(void **state) {
    atomic_store(&own.must_stop, true);
    assert_int_equal(pthread_join(own.thread, NULL), 0);
    for (uint32_t t = 0; t < 64; t++) free(own.tensors[t]);
    (void)close(listener);
    (void)unlink(socket_path);
    (void)rmdir(folder);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

static void welcome_worker(void) {
    struct pollfd wanted = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&wanted, 1, PATIENCE_MS), 1);
    if (dae.fd >= 0) (void)close(dae.fd);
    dae.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_return_code(dae.fd, errno);
    fake_daemon_welcome(&dae);
}

static void *welcome_other(void *argument) {
    dae.welcome.start = TW_START_ANCHOR;
    welcome_worker();
    return NULL;
}

static void *nothing(void *argument) {
    return argument;
}

static void await(uint32_t kind, struct tw_worker_msg *msg) {
    while (!fake_daemon_recv(&dae, kind, msg)) {
        struct pollfd wanted = {.fd = dae.fd, .events = POLLIN};
        if (poll(&wanted, 1, PATIENCE_MS) != 1) fail_msg("no packet of kind %u came", kind);
    }
}

static void await_status(int wanted) {
    for (int i = 0; i < PATIENCE_MS && atomic_load(&own.status) != wanted; i++) pause_us(1000);
    assert_int_equal(atomic_load(&own.status), wanted);
}

static void await_steps(unsigned long count) {
    for (int i = 0; i < PATIENCE_MS && atomic_load(&own.steps) < count; i++) pause_us(1000);
    assert_true(atomic_load(&own.steps) >= count);
}

static void send_kind(uint32_t kind) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = kind;
    fake_daemon_send(&dae, &msg);
}

static struct tw_worker_msg encode_of(uint32_t fragment) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_ENCODE;
    msg.u.encode.fragment = fragment;
    msg.u.encode.parts_count = 1;
    msg.u.encode.parts[0].count = tw_shm_fragment_elements(&dae.shm, fragment);
    msg.u.encode.parts[0].out = fake_daemon_room(&dae, (uint32_t)msg.u.encode.parts[0].count * 2);
    return msg;
}

static float from_bf16(const uint8_t *bytes) {
    const uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

FACT(work_is_encoded_as_it_was_trained) {
    struct tw_worker_msg msg;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    assert_string_equal(msg.u.ready.about.engine, "own");
    await_steps(3);
    struct tw_worker_msg encode = encode_of(1);
    fake_daemon_send(&dae, &encode);
    await(TW_WMSG_ENCODED, &msg);
    assert_int_equal(msg.u.encoded.status, TW_OK);
    assert_int_equal(msg.u.encoded.tokens, msg.u.encoded.step * 32);
    const uint8_t *bytes = tw_shm_pool(&dae.shm, encode.u.encode.parts[0].out.offset, 2);
    assert_non_null(bytes);
    /* Delta = phi - theta, which is -1 per step */
    assert_float_equal(from_bf16(bytes), -(float)msg.u.encoded.step,
                       0.01f * (float)msg.u.encoded.step);
    assert_int_equal(dae.last_step.loss, 1);
}

/* SOLO sets the anchor to the trained parameters. An APPLY with a result of 8 then moves anchor and
 * theta by -8, and the trainer loses none of its steps. */
FACT(merges_are_added_to_steps_taken_meanwhile) {
    struct tw_worker_msg msg;
    struct tw_shm_view view;
    const uint32_t fragment = 1;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await_steps(2);
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_SOLO;
    msg.u.solo.fragment = fragment;
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_APPLIED, &msg);
    assert_int_equal(msg.u.applied.status, TW_OK);
    const uint64_t elements = tw_shm_fragment_elements(&dae.shm, fragment);
    const struct tw_span span = fake_daemon_room(&dae, (uint32_t)elements * 2);
    uint8_t *bytes = tw_shm_pool(&dae.shm, span.offset, span.bytes);
    for (uint64_t i = 0; i < elements; i++) {
        bytes[2 * i] = 0x00; /* 8.0 in bf16 */
        bytes[2 * i + 1] = 0x41;
    }
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_APPLY;
    msg.u.apply.round = 1;
    msg.u.apply.fragment = fragment;
    msg.u.apply.parts_count = 1;
    msg.u.apply.parts[0].count = elements;
    msg.u.apply.parts[0].mode = TW_APPLY_SHIFT;
    msg.u.apply.parts[0].contributors = 1;
    msg.u.apply.parts[0].in = span;
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_APPLIED, &msg);
    assert_int_equal(msg.u.applied.status, TW_OK);
    tw_shm_view(&dae.shm, fragment, &view);

    /* The merge changes a tensor of its fragment, but not a tensor of another fragment. */
    await_steps(atomic_load(&own.steps) + 3);
    send_kind(TW_WMSG_PAUSE);
    await_status(THINWIRE_WAIT);
    uint32_t inside = 0, outside = 0;
    for (uint32_t t = 0; t < dae.layout.tensors_count; t++) {
        const struct tw_tensor *tensor = &dae.layout.tensors[t];
        if (tensor->shape.rank != 1 || strstr(tensor->name, ".bias") == NULL) continue;
        if (tensor->fragment == fragment) inside = t;
        if (tensor->fragment != fragment) outside = t;
    }
    assert_float_equal(own.tensors[outside][0], (float)atomic_load(&own.steps), 0.01);
    assert_float_equal(own.tensors[inside][0], (float)atomic_load(&own.steps) - 8.0f, 0.01);
}

FACT(pause_holds_the_trainer) {
    struct tw_worker_msg msg;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await_steps(2);
    send_kind(TW_WMSG_PAUSE);
    await_status(THINWIRE_WAIT);
    const unsigned long held = atomic_load(&own.steps);
    pause_us(20000);
    assert_int_equal(atomic_load(&own.steps), held);
    send_kind(TW_WMSG_RESUME);
    await_steps(held + 2);
}

FACT(end_is_told_when_the_last_merge_is_in) {
    struct tw_worker_msg msg;
    struct tw_shm_view view;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await_steps(2);
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FINISH;
    fake_daemon_send(&dae, &msg);
    msg.kind = TW_WMSG_APPLY;
    msg.u.apply.is_final = 1;
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_APPLIED, &msg);
    await_status(THINWIRE_WAIT); /* further merges may follow */
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_FINISH;
    msg.u.finish.is_settled = 1;
    /* settled: parameters that still differ from phi are set to phi */
    fake_daemon_send(&dae, &msg);
    await_status(THINWIRE_FINISHED);
    for (uint32_t t = 0; t < dae.layout.tensors_count; t++) {
        const struct tw_tensor *tensor = &dae.layout.tensors[t];
        const uint64_t begin = dae.layout.fragment_begin[tensor->fragment];
        tw_shm_view(&dae.shm, tensor->fragment, &view);
        assert_memory_equal(own.tensors[t], view.phi + (tensor->offset - begin),
                            (size_t)tensor->rows * tensor->cols * sizeof(float));
    }
}

/* Waits until a step was taken, then ends the link and lets the worker attach again. */
static void daemon_replace(bool is_planned, uint64_t history) {
    struct tw_worker_msg msg;
    send_kind(TW_WMSG_SNAPSHOT);
    while (!fake_daemon_recv(&dae, TW_WMSG_SNAPSHOT_DONE, &msg) || msg.u.snapshot_done.step == 0)
        pause_us(1000);
    await_steps(msg.u.snapshot_done.step + 5);
    dae.welcome.start = TW_START_SNAPSHOT;
    dae.welcome.slot = msg.u.snapshot_done.slot;
    dae.welcome.history = history;
    if (is_planned) {
        send_kind(TW_WMSG_EXIT);
        await_status(THINWIRE_WAIT);
    }
    (void)close(dae.fd);
    dae.fd = -1;
}

FACT(trainer_goes_on_with_the_next_daemon) {
    struct tw_worker_msg msg;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    assert_int_equal(msg.u.ready.is_patient, 1);
    await_steps(3);
    for (int i = 0; i < 4; i++) {
        daemon_replace(i % 2 == 1, 0);
        struct pollfd wanted = {.fd = listener, .events = POLLIN};
        if (i >= 2) { /* a daemon that is still ending turns it away */
            assert_int_equal(poll(&wanted, 1, PATIENCE_MS), 1);
            (void)close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
        }
        const unsigned long steps = atomic_load(&own.steps);
        welcome_worker();
        await(TW_WMSG_READY, &msg);
        assert_int_equal(msg.u.ready.start, TW_START_KEPT);
        assert_true(msg.u.ready.step + TW_REPORTS_MAX >= steps);
        await_steps(steps + 3);
    }
    assert_int_equal(atomic_load(&own.restored), 1); /* only at the first start */
    send_kind(TW_WMSG_PAUSE);
    await_status(THINWIRE_WAIT);
    const unsigned long steps = atomic_load(&own.steps);
    const struct tw_tensor *bias = tw_layout_find(&dae.layout, "ln_f.bias");
    assert_float_equal(own.tensors[bias - dae.layout.tensors][0], (float)steps, 0.01);
}

FACT(daemon_that_went_back_restores_the_snapshot) {
    struct tw_worker_msg msg;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await_steps(3);
    daemon_replace(false, 1);
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    assert_int_equal(msg.u.ready.start, TW_START_SNAPSHOT);
    const uint64_t step = msg.u.ready.step;
    for (int i = 0; i < PATIENCE_MS && atomic_load(&own.restored) < 2; i++) pause_us(1000);
    assert_int_equal(atomic_load(&own.restored), 2);
    await_steps(step + 2);
    send_kind(TW_WMSG_PAUSE);
    await_status(THINWIRE_WAIT);
    const unsigned long steps = atomic_load(&own.steps);
    const struct tw_tensor *bias = tw_layout_find(&dae.layout, "ln_f.bias");
    assert_float_equal(own.tensors[bias - dae.layout.tensors][0], (float)steps, 0.01);
}

FACT(trainer_that_fails_is_told_of) {
    struct tw_worker_msg msg;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await_steps(1);
    atomic_store(&own.must_fail, true);
    msg = encode_of(0);
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_FATAL, &msg);
    assert_non_null(strstr(msg.u.fatal.text, "the trainer could not give parameters of tensor"));
    await_status(THINWIRE_TRAINER);
    assert_string_equal(own.error.message, msg.u.fatal.text);
}

FACT(text_of_the_trainer_is_sent_once) {
    struct tw_worker_msg msg;
    dae.welcome.eval_steps = 2;
    dae.welcome.sample_bytes = 100;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    await(TW_WMSG_SAMPLE, &msg);
    assert_int_equal(own.refused, THINWIRE_INVALID);
    assert_int_equal(own.taken, THINWIRE_OK);
    assert_string_equal(msg.u.sample.prompt, "In the");
    assert_int_equal(strlen(msg.u.sample.text), 1022);
    const uint64_t step = msg.u.sample.step;
    do await(TW_WMSG_EVALUATED, &msg); /* fails if another packet arrives */
    while (msg.u.evaluated.step < step + 4);
}

FACT(loss_of_the_anchor_is_measured_in_place) {
    struct tw_worker_msg msg;
    dae.welcome.eval_steps = 4;
    welcome_worker();
    await(TW_WMSG_READY, &msg);
    while (!fake_daemon_recv(&dae, TW_WMSG_EVALUATED, &msg)) pause_us(1000);
    while (msg.u.evaluated.step == 0) await(TW_WMSG_EVALUATED, &msg);
    /* The live parameters have all steps since the start, the anchor has none of them. */
    const float apart = msg.u.evaluated.loss_live - msg.u.evaluated.loss_anchor;
    assert_float_equal(apart, (float)msg.u.evaluated.step, 0.01);
    assert_true(msg.u.evaluated.distance > 1);
    send_kind(TW_WMSG_PAUSE);
    await_status(THINWIRE_WAIT);
    const struct tw_tensor *bias = tw_layout_find(&dae.layout, "ln_f.bias");
    assert_float_equal(own.tensors[bias - dae.layout.tensors][0], (float)atomic_load(&own.steps),
                       0.01);
}

FACT(calls_out_of_order_are_refused) {
    struct thinwire_worker *worker;
    struct thinwire_error error;
    struct thinwire_next next;
    const struct thinwire_config config = {.socket = socket_path};
    const struct thinwire_trainer empty = {.self = NULL};
    const struct thinwire_step done = {.loss = 0};
    uint32_t tokens[64];
    welcome_worker();
    atomic_store(&own.must_stop, true); /* ends the trainer that open_all() started */
    assert_int_equal(pthread_join(own.thread, NULL), 0);

    pthread_t welcomer;
    assert_int_equal(pthread_create(&welcomer, NULL, welcome_other, NULL), 0);
    assert_int_equal(thinwire_worker_open(&worker, &config, PATIENCE_MS, &error), THINWIRE_OK);
    assert_int_equal(pthread_join(welcomer, NULL), 0);
    assert_int_equal(thinwire_worker_step(worker, NULL, 0, &next, &error), THINWIRE_INVALID);
    assert_int_equal(thinwire_worker_draw(worker, tokens, &error), THINWIRE_INVALID);
    assert_int_equal(thinwire_worker_start(worker, &empty, &error), THINWIRE_INVALID);
    assert_string_equal(thinwire_worker_setting(worker, "train.batch"), "2");
    assert_null(thinwire_worker_setting(worker, "train"));
    const struct thinwire_trainer trainer = {.read = read_tensor, .write = write_tensor};
    assert_int_equal(thinwire_worker_start(worker, &trainer, &error), THINWIRE_OK);
    assert_int_equal(thinwire_worker_start(worker, &trainer, &error), THINWIRE_INVALID);
    assert_int_equal(thinwire_worker_step(worker, &done, 0, &next, &error), THINWIRE_INVALID);
    assert_int_equal(thinwire_worker_step(worker, NULL, -1, &next, &error), THINWIRE_OK);
    assert_int_equal(thinwire_worker_step(worker, NULL, 0, &next, &error), THINWIRE_INVALID);
    thinwire_worker_close(worker);
    thinwire_worker_close(NULL);
    assert_int_equal(pthread_create(&own.thread, NULL, nothing, NULL), 0); /* for close_all */
}

FACT(daemon_that_is_not_there_is_waited_for) {
    struct thinwire_worker *worker;
    struct thinwire_error error;
    const struct thinwire_config nobody = {.socket = "/nonexistent/worker.sock"};
    const struct thinwire_config silent = {.socket = socket_path};
    welcome_worker(); /* the trainer that open_all() started */
    assert_int_equal(thinwire_worker_open(&worker, &nobody, 10, &error), THINWIRE_WAIT);
    assert_null(worker);
    assert_non_null(strstr(error.message, "no daemon at /nonexistent/worker.sock"));
    assert_int_equal(thinwire_worker_open(&worker, &silent, 10, &error), THINWIRE_WAIT);
    assert_null(worker);
}
