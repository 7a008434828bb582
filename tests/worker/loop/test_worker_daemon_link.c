/* Tests of worker/loop/daemon_link.c. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/worker/loop/fake_daemon.h"
#include "worker/loop/daemon_link.h"

static struct fake_daemon dae;
static struct tw_daemon_link link_;
static struct tw_wmsg_welcome welcome;
static struct tw_error err;

static int open_all(void **state) {
    struct tw_run run;
    fake_run(&run);
    fake_daemon_open(&dae, &run, TW_SNAPSHOT_FULL);
    link_.fd = dae.worker_fd;
    err.status = TW_OK;
    return 0;
}

static int close_all(void **state) {
    tw_daemon_link_close(&link_);
    fake_daemon_close(&dae);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

static enum tw_status attach(int *memfd) {
    const enum tw_status greeted = tw_daemon_link_greet(&link_, "cpu, 2 cores", &err);
    if (greeted != TW_OK) return greeted;
    return tw_daemon_link_attach(&link_, 1000, &welcome, memfd, &err);
}

FACT(worker_attaches_and_maps) {
    int memfd;
    struct tw_shm shm;
    struct tw_worker_msg msg;
    fake_daemon_welcome(&dae);
    assert_int_equal(attach(&memfd), TW_OK);
    assert_true(fake_daemon_recv(&dae, TW_WMSG_HELLO, &msg));
    assert_int_equal(msg.u.hello.version, TW_WORKER_VERSION);
    assert_int_equal(msg.u.hello.pid, getpid());
    assert_string_equal(msg.u.hello.device, "cpu, 2 cores");
    assert_string_equal(welcome.run.name, dae.run.name);

    assert_int_equal(tw_daemon_link_map(memfd, &welcome, &dae.layout, &shm, &err), TW_OK);
    atomic_store(&tw_shm_control(&shm)->step, 77);
    assert_int_equal(atomic_load(&tw_shm_control(&dae.shm)->step), 77);
    tw_daemon_link_unmap(&shm);
}

FACT(refusal_carries_its_reason) {
    int memfd;
    struct tw_worker_msg msg = {.kind = TW_WMSG_FATAL};
    (void)snprintf(msg.u.fatal.text, sizeof(msg.u.fatal.text), "another worker is attached");
    fake_daemon_send(&dae, &msg);
    assert_int_equal(attach(&memfd), TW_DENIED);
    assert_non_null(strstr(err.message, "another worker is attached"));
}

FACT(closed_link_is_a_refusal) {
    int memfd;
    assert_return_code(shutdown(dae.fd, SHUT_WR), errno);
    assert_int_equal(attach(&memfd), TW_DENIED);
}

FACT(link_closed_before_hello_is_a_refusal) {
    int memfd;
    assert_return_code(shutdown(dae.fd, SHUT_RDWR), errno);
    assert_int_equal(attach(&memfd), TW_DENIED);
    assert_non_null(strstr(err.message, "turned this worker away"));
}

FACT(silent_daemon_is_tried_again) {
    int memfd;
    assert_int_equal(tw_daemon_link_greet(&link_, "cpu", &err), TW_OK);
    assert_int_equal(tw_daemon_link_attach(&link_, 1, &welcome, &memfd, &err), TW_AGAIN);
}

FACT(absent_daemon_is_tried_again) {
    struct tw_daemon_link other;
    assert_int_equal(tw_daemon_link_open(&other, "/nonexistent/worker.sock", &err), TW_AGAIN);
    assert_non_null(strstr(err.message, "/nonexistent/worker.sock"));
    char long_path[300];
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(tw_daemon_link_open(&other, long_path, &err), TW_LIMIT);
}

FACT(bad_welcomes_are_refused) {
    const struct tw_wmsg_welcome good = dae.welcome;
    struct {
        enum tw_status status;
        struct tw_wmsg_welcome welcome;
    } bad[8];
    for (int i = 0; i < 8; i++) {
        bad[i].welcome = good;
        bad[i].status = TW_PROTO;
    }
    bad[0].welcome.version++;
    bad[0].status = TW_VERSION;
    bad[1].welcome.start = 3;
    bad[2].welcome.start = TW_START_SNAPSHOT;
    bad[2].welcome.slot = TW_SNAPSHOT_SLOTS;
    bad[3].welcome.snapshot_mode = 3;
    memset(bad[4].welcome.data_path, 'x', sizeof(bad[4].welcome.data_path));
    bad[5].welcome.run.model.heads = 3; /* 3 does not divide the width */
    bad[5].status = TW_CONFIG;
    bad[6].welcome.device = 3;
    bad[7].welcome.device = TW_DEVICE_CUDA;
    bad[7].welcome.ordinal = TW_DEVICE_ORDINAL_MAX + 1;
    for (int i = 0; i < 8; i++) {
        int memfd = -1;
        dae.welcome = bad[i].welcome;
        fake_daemon_welcome(&dae);
        assert_int_equal(attach(&memfd), bad[i].status);
        assert_int_equal(memfd, -1);
    }
}

FACT(memory_without_seals_is_refused) {
    struct tw_shm shm;
    const int memfd = memfd_create("thinwire-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_return_code(ftruncate(memfd, (off_t)dae.shm.geometry.bytes), errno);
    const int copy = dup(memfd);
    assert_int_equal(tw_daemon_link_map(memfd, &dae.welcome, &dae.layout, &shm, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "sealed"));
    assert_int_equal(fcntl(memfd, F_GETFD), -1); /* closed by the map */
    assert_return_code(fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), errno);
    assert_int_equal(tw_daemon_link_map(copy, &dae.welcome, &dae.layout, &shm, &err), TW_CORRUPT);
}

/* A file cannot be sealed, but once it has no name, nobody else can shrink it. */
FACT(memory_in_a_file_has_no_name) {
    struct tw_shm shm;
    char path[] = "anchors.XXXXXX";
    const int named = mkstemp(path);
    assert_return_code(named, errno);
    assert_return_code(ftruncate(named, (off_t)dae.shm.geometry.bytes), errno);
    const int copy = dup(named);
    assert_int_equal(tw_daemon_link_map(named, &dae.welcome, &dae.layout, &shm, &err), TW_PROTO);
    assert_non_null(strstr(err.message, "sealed"));
    assert_return_code(unlink(path), errno);
    const ssize_t size = (ssize_t)sizeof(struct tw_shm_control);
    assert_int_equal(pwrite(copy, dae.shm.base, (size_t)size, 0), size);
    assert_int_equal(tw_daemon_link_map(copy, &dae.welcome, &dae.layout, &shm, &err), TW_OK);
    tw_daemon_link_unmap(&shm);
}

FACT(memory_of_another_size_is_refused) {
    struct tw_shm shm;
    const int memfd = memfd_create("thinwire-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_return_code(ftruncate(memfd, (off_t)dae.shm.geometry.bytes - 4096), errno);
    assert_return_code(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), errno);
    assert_int_equal(tw_daemon_link_map(memfd, &dae.welcome, &dae.layout, &shm, &err), TW_PROTO);
}

FACT(malformed_packets_are_refused) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_AGAIN);

    msg.kind = TW_WMSG_PAUSE;
    msg.bytes = tw_worker_msg_bytes(TW_WMSG_PAUSE) + 1; /* longer than a packet of its kind */
    assert_int_equal(send(dae.fd, &msg, msg.bytes, 0), msg.bytes);
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_PROTO);
    msg.kind = 1000;
    msg.bytes = 12;
    assert_int_equal(send(dae.fd, &msg, 12, 0), 12);
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_PROTO);
    assert_int_equal(send(dae.fd, &msg, 3, 0), 3); /* shorter than a packet's header */
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_PROTO);
    char large[TW_WORKER_MSG_BYTES_MAX + 100] = {0};
    assert_int_equal(send(dae.fd, large, sizeof(large), 0), sizeof(large));
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_PROTO);

    msg.kind = TW_WMSG_RESUME; /* the link is still usable */
    fake_daemon_send(&dae, &msg);
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_OK);
    assert_int_equal(msg.kind, TW_WMSG_RESUME);
}

FACT(full_socket_does_not_hold_a_step) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_STEP};
    enum tw_status status = TW_OK;
    int sent = 0;
    while (status == TW_OK && sent < 100000) {
        status = tw_daemon_link_try_send(&link_, &msg, &err);
        sent++;
    }
    assert_int_equal(status, TW_AGAIN);
    while (recv(dae.fd, &msg, sizeof(msg), MSG_DONTWAIT) > 0) {
    }
    assert_int_equal(tw_daemon_link_try_send(&link_, &msg, &err), TW_OK);
}

FACT(gone_daemon_is_noticed) {
    struct tw_worker_msg msg = {.kind = TW_WMSG_STEP};
    assert_return_code(shutdown(dae.fd, SHUT_RDWR), errno);
    assert_int_equal(tw_daemon_link_recv(&link_, &msg, &err), TW_IO);
    msg.kind = TW_WMSG_STEP;
    assert_int_equal(tw_daemon_link_send(&link_, &msg, &err), TW_IO);
}

FACT(every_kind_has_its_size) {
#define X(name, value, member)                                                                     \
    assert_true(tw_worker_msg_bytes(value) > 8);                                                   \
    assert_true(tw_worker_msg_bytes(value) <= TW_WORKER_MSG_BYTES_MAX);
    TW_WORKER_MSG_LIST(X)
#undef X
    assert_int_equal(tw_worker_msg_bytes(0), 0);
    assert_int_equal(tw_worker_msg_bytes(UINT32_MAX), 0);
}
