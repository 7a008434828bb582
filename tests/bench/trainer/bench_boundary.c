/* bench_boundary.c - the time that libthinwire costs a trainer's thread at a step boundary.
 *
 *     thinwire-boundary-bench [STEPS] [STEP_MS] [PARAMETERS]
 *
 * One trainer takes steps of STEP_MS (mostly asleep). Stretches without rounds alternate with
 * stretches in which, every ROUND steps, a fake daemon requests an ENCODE and an APPLY of the next
 * fragment. For both kinds, prints the median and the worst time of a call of thinwire_worker_step,
 * and the mean per step as a fraction of 250 ms. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <thinwire/worker.h>

#include "tests/test.h"
#include "tests/worker/loop/fake_daemon.h"

enum { STEPS_MAX = 4096, STRETCH = 32, ROUND = 8, PATIENCE_MS = 60000, FRAGMENTS = 4 };

static struct fake_daemon dae;
static char folder[32], socket_path[64];
static float *numbers; /* (numbers_count) */
static size_t numbers_count;
static long step_ms = 50;
static int steps = 8 * STRETCH;
static atomic_int taken; /* steps taken */
static double calls_ms[2][STEPS_MAX];
static int calls_count[2];

static double now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int read_all(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                    uint64_t count, float *to) {
    (void)self, (void)array, (void)tensor;
    memcpy(to, numbers + begin, (size_t)count * sizeof(float));
    return 0;
}

static int write_all(void *self, enum thinwire_array array, uint32_t tensor, uint64_t begin,
                     uint64_t count, const float *from) {
    (void)self, (void)array, (void)tensor;
    memcpy(numbers + begin, from, (size_t)count * sizeof(float));
    return 0;
}

/* Returns true if the fake daemon requests rounds after this step. */
static bool has_rounds(int step) {
    return step / STRETCH % 2 == 1;
}

static void *train(void *argument) {
    struct thinwire_worker *worker;
    struct thinwire_error error;
    struct thinwire_next next;
    const struct thinwire_config config = {.socket = socket_path};
    const struct thinwire_trainer trainer = {.read = read_all, .write = write_all};
    const struct thinwire_step done = {.loss = 1};
    if (thinwire_worker_open(&worker, &config, PATIENCE_MS, &error) != THINWIRE_OK ||
        thinwire_worker_start(worker, &trainer, &error) != THINWIRE_OK ||
        thinwire_worker_step(worker, NULL, -1, &next, &error) != THINWIRE_OK) {
        (void)fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    for (int i = 0; i < steps; i++) {
        const struct timespec wanted = {.tv_sec = step_ms / 1000,
                                        .tv_nsec = step_ms % 1000 * 1000000};
        (void)nanosleep(&wanted, NULL);
        for (size_t k = 0; k < numbers_count; k++)
            numbers[k] += 1e-3f * (float)((k * 7 + (size_t)i) % 13);
        const double begin_ms = now_ms();
        const enum thinwire_status status = thinwire_worker_step(worker, &done, -1, &next, &error);
        const int kind = has_rounds(i);
        calls_ms[kind][calls_count[kind]++] = now_ms() - begin_ms;
        atomic_store(&taken, i + 1);
        if (status != THINWIRE_OK) exit(1);
    }
    thinwire_worker_close(worker);
    return NULL;
}

static void await(uint32_t kind, struct tw_worker_msg *msg) {
    while (!fake_daemon_recv(&dae, kind, msg)) {
        struct pollfd wanted = {.fd = dae.fd, .events = POLLIN};
        if (poll(&wanted, 1, PATIENCE_MS) != 1) fail_msg("no packet of kind %u came", kind);
    }
}

/* Runs one round of a fragment, whose result is the node's own payload. */
static void round_run(uint64_t round) {
    struct tw_worker_msg msg;
    const uint32_t fragment = (uint32_t)(round % FRAGMENTS);
    const uint64_t elements = tw_shm_fragment_elements(&dae.shm, fragment);
    dae.pool_used = 0;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_ENCODE;
    msg.u.encode.round = round;
    msg.u.encode.fragment = fragment;
    msg.u.encode.parts_count = 1;
    msg.u.encode.parts[0].count = elements;
    msg.u.encode.parts[0].out = fake_daemon_room(&dae, (uint32_t)elements);
    struct tw_span span = msg.u.encode.parts[0].out;
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_ENCODED, &msg);
    assert_int_equal(msg.u.encoded.status, TW_OK);
    span.bytes = msg.u.encoded.bytes[0];
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_APPLY;
    msg.u.apply.round = round;
    msg.u.apply.fragment = fragment;
    msg.u.apply.parts_count = 1;
    msg.u.apply.parts[0] = (struct tw_apply_part){
        .count = elements, .mode = TW_APPLY_MIX, .contributors = 1, .in = span};
    fake_daemon_send(&dae, &msg);
    await(TW_WMSG_APPLIED, &msg);
    assert_int_equal(msg.u.applied.status, TW_OK);
}

static void drain(void) {
    struct tw_worker_msg msg;
    while (fake_daemon_recv(&dae, TW_WMSG_STEP, &msg)) continue;
}

static void daemon_run(void) {
    struct pollfd wanted = {.events = POLLIN};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_return_code(bind(listener, (const struct sockaddr *)&address, sizeof(address)), errno);
    assert_return_code(listen(listener, 4), errno);
    pthread_t trainer;
    assert_int_equal(pthread_create(&trainer, NULL, train, NULL), 0);
    (void)close(dae.fd);
    dae.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    fake_daemon_welcome(&dae);
    struct tw_worker_msg msg;
    await(TW_WMSG_READY, &msg);
    uint64_t round = 0;
    for (int step = 0, next = ROUND; step < steps - ROUND; step = atomic_load(&taken)) {
        if (step >= next && has_rounds(step)) {
            round_run(round++);
            next = step + ROUND;
            continue;
        }
        wanted.fd = dae.fd;
        (void)poll(&wanted, 1, 100);
        drain();
    }
    while (atomic_load(&taken) < steps) drain();
    assert_int_equal(pthread_join(trainer, NULL), 0);
    (void)close(listener);
    (void)unlink(socket_path);
    (void)printf("%u rounds of a fragment of %.1fM parameters\n", (unsigned)round,
                 (double)tw_shm_fragment_elements(&dae.shm, 0) / 1e6);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show(const char *name, double *ms, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += ms[i];
    qsort(ms, (size_t)n, sizeof(*ms), compare);
    (void)printf("%-15s median %.3f ms, worst %.1f ms, mean %.3f ms: %.3f %% of 250 ms\n", name,
                 ms[n / 2], ms[n - 1], sum / n, sum / n / 2.5);
}

int main(int argc, char **argv) {
    struct tw_run run;
    struct tw_error err;
    char list[64];
    size_t rows = 15000;
    if (argc > 1) steps = atoi(argv[1]);
    if (argc > 2) step_ms = atol(argv[2]);
    if (argc > 3) rows = strtoul(argv[3], NULL, 10) / 1000;
    numbers_count = rows * 1000;
    if (steps < 4 * STRETCH || steps > STEPS_MAX) return 2;
    (void)snprintf(list, sizeof(list), "w:%zux1000", rows);
    tw_run_defaults(&run);
    if (tw_run_apply_tensors(&run, list, &err) != TW_OK) fail_msg("%s", err.message);
    run.train.tokens = 1u << 30;
    run.sync.fragments = FRAGMENTS;
    tw_run_refit(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_OFF);
    (void)close(dae.worker_fd);
    numbers = calloc(numbers_count, sizeof(float));
    assert_non_null(numbers);
    (void)snprintf(folder, sizeof(folder), "/tmp/thinwire-bench-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(socket_path, sizeof(socket_path), "%s/worker.sock", folder);
    daemon_run();
    (void)rmdir(folder);
    show("without rounds", calls_ms[0], calls_count[0]);
    show("with rounds", calls_ms[1], calls_count[1]);
    free(numbers);
    fake_daemon_close(&dae);
    return 0;
}
