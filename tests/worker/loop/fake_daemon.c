#include "tests/worker/loop/fake_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/test.h"

enum { POOL_BYTES = 4 << 20 };

void fake_run(struct tw_run *run) {
    struct tw_error err;
    tw_run_defaults(run);
    run->model.layers = 2;
    run->model.width = 16;
    run->model.heads = 2;
    run->model.context = 16;
    run->train.batch = 2;
    run->train.tokens = 1 << 20;
    run->train.warmup_tokens = 0;
    run->sync.fragments = 3;
    run->sync.period = 12;
    run->sync.overlap = 1;
    run->sync.sent = TW_SENT_MIX;
    run->sync.mix_millionths = 500000;
    run->sync.outer_lr_millionths = 1000000;
    run->sync.outer_momentum_millionths = 0;
    run->sync.outer_ramp = 0;
    run->sync.codec = TW_CODEC_BF16;
    run->sync.result = TW_CODEC_BF16;
    if (tw_run_check(run, &err) != TW_OK) fail_msg("%s", err.message);
}

void fake_daemon_reconnect(struct fake_daemon *daemon) {
    int pair[2];
    if (daemon->fd >= 0) (void)close(daemon->fd);
    assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), errno);
    daemon->fd = pair[0];
    daemon->worker_fd = pair[1];
}

void fake_daemon_open(struct fake_daemon *daemon, const struct tw_run *run,
                      enum tw_snapshot_mode mode) {
    struct tw_error err;
    struct tw_shm_geometry geometry;
    memset(daemon, 0, sizeof(*daemon));
    daemon->fd = -1;
    daemon->run = *run;
    if (tw_layout_init(&daemon->layout, run, &err) != TW_OK) fail_msg("%s", err.message);
    /* Only address space is reserved: a page costs memory once it is written. */
    const uint64_t pool_bytes = POOL_BYTES + daemon->layout.elements * sizeof(float);
    assert_int_equal(tw_shm_geometry_init(&geometry, &daemon->layout, mode, pool_bytes, &err),
                     TW_OK);

    daemon->memfd = memfd_create("thinwire-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_return_code(daemon->memfd, errno);
    assert_return_code(ftruncate(daemon->memfd, (off_t)geometry.bytes), errno);
    assert_return_code(fcntl(daemon->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), errno);
    void *base =
        mmap(NULL, (size_t)geometry.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, daemon->memfd, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    tw_shm_bind(&daemon->shm, base, &geometry, &daemon->layout);
    tw_shm_format(&daemon->shm);

    daemon->welcome.version = TW_WORKER_VERSION;
    daemon->welcome.start = TW_START_FRESH;
    daemon->welcome.snapshot_mode = (uint32_t)mode;
    daemon->welcome.snapshot_steps = 4;
    daemon->welcome.threads = 1;
    daemon->welcome.data_seed = 1;
    daemon->welcome.geometry = geometry;
    daemon->welcome.run = *run;
    fake_daemon_reconnect(daemon);
}

void fake_daemon_close(struct fake_daemon *daemon) {
    (void)munmap(daemon->shm.base, (size_t)daemon->shm.geometry.bytes);
    (void)close(daemon->memfd);
    (void)close(daemon->fd);
}

void fake_daemon_welcome(struct fake_daemon *daemon) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_WELCOME;
    msg.bytes = tw_worker_msg_bytes(msg.kind);
    msg.u.welcome = daemon->welcome;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    memset(&ancillary, 0, sizeof(ancillary));
    struct iovec body = {.iov_base = &msg, .iov_len = msg.bytes};
    struct msghdr header = {.msg_iov = &body,
                            .msg_iovlen = 1,
                            .msg_control = ancillary.bytes,
                            .msg_controllen = sizeof(ancillary.bytes)};
    ancillary.head.cmsg_level = SOL_SOCKET;
    ancillary.head.cmsg_type = SCM_RIGHTS;
    ancillary.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&ancillary.head), &daemon->memfd, sizeof(int));
    assert_int_equal(sendmsg(daemon->fd, &header, MSG_NOSIGNAL), msg.bytes);
}

void fake_daemon_send(struct fake_daemon *daemon, struct tw_worker_msg *msg) {
    msg->bytes = tw_worker_msg_bytes(msg->kind);
    assert_int_equal(send(daemon->fd, msg, msg->bytes, MSG_NOSIGNAL | MSG_DONTWAIT), msg->bytes);
}

bool fake_daemon_recv(struct fake_daemon *daemon, uint32_t kind, struct tw_worker_msg *msg) {
    for (;;) {
        const ssize_t got = recv(daemon->fd, msg, sizeof(*msg), MSG_DONTWAIT);
        if (got <= 0) return false;
        assert_int_equal(got, msg->bytes);
        assert_int_equal(got, tw_worker_msg_bytes(msg->kind));
        if (msg->kind == TW_WMSG_STEP) {
            daemon->steps_seen++;
            daemon->last_step = msg->u.step;
        }
        if (msg->kind == kind) return true;
        if (msg->kind != TW_WMSG_STEP && msg->kind != TW_WMSG_SNAPSHOT_DONE &&
            msg->kind != TW_WMSG_EVALUATED && msg->kind != TW_WMSG_SAMPLE &&
            msg->kind != TW_WMSG_HELLO) {
            fail_msg("packet of kind %u while waiting for %u", msg->kind, kind);
        }
    }
}

struct tw_span fake_daemon_room(struct fake_daemon *daemon, uint32_t bytes) {
    const struct tw_span span = {.offset = daemon->shm.geometry.pool + daemon->pool_used,
                                 .bytes = bytes};
    daemon->pool_used += (bytes + 63u) / 64 * 64;
    assert_true(daemon->pool_used <= daemon->shm.geometry.pool_bytes);
    return span;
}
