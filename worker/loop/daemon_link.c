#include "worker/loop/daemon_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/log.h"

/* ---- heartbeat ------------------------------------------------------------------------------- */

/* Ends the process if its daemon has been gone for too long. Only a hung process gets this far: a
 * healthy loop notices earlier and ends. */
static void look_at_daemon(struct tw_heartbeat *heartbeat, uint64_t now_us) {
    struct pollfd daemon = {.fd = heartbeat->daemon_fd};
    if (poll(&daemon, 1, 0) != 1 || (daemon.revents & (POLLHUP | POLLERR)) == 0) return;
    if (heartbeat->gone_us == 0) heartbeat->gone_us = now_us;
    if (now_us - heartbeat->gone_us < heartbeat->orphan_us) return;
    tw_log(TW_LOG_ERROR, "orphan", "text=\"the daemon is gone, and this worker hangs: it ends\"");
    _exit(TW_EXIT_FAILURE);
}

static void *beat(void *argument) {
    struct tw_heartbeat *heartbeat = argument;
    TW_ASSERT(pthread_mutex_lock(&heartbeat->mutex) == 0);
    while (!heartbeat->must_stop) {
        struct timespec next;
        (void)clock_gettime(CLOCK_MONOTONIC, &next);
        const uint64_t now_us = (uint64_t)next.tv_sec * 1000000 + (uint64_t)next.tv_nsec / 1000;
        atomic_store_explicit(&heartbeat->control->heartbeat_us, now_us, memory_order_relaxed);
        look_at_daemon(heartbeat, now_us);
        next.tv_nsec += TW_WORKER_HEARTBEAT_MS * 1000000L;
        next.tv_sec += next.tv_nsec / 1000000000L;
        next.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&heartbeat->stop, &heartbeat->mutex, &next);
    }
    TW_ASSERT(pthread_mutex_unlock(&heartbeat->mutex) == 0);
    return NULL;
}

enum tw_status tw_heartbeat_open(struct tw_heartbeat *heartbeat, struct tw_shm_control *control,
                                 int daemon_fd, uint64_t orphan_us, struct tw_error *err) {
    memset(heartbeat, 0, sizeof(*heartbeat));
    heartbeat->control = control;
    heartbeat->daemon_fd = daemon_fd;
    heartbeat->orphan_us = orphan_us;
    pthread_condattr_t attributes;
    TW_ASSERT(pthread_condattr_init(&attributes) == 0);
    TW_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    TW_ASSERT(pthread_cond_init(&heartbeat->stop, &attributes) == 0);
    TW_ASSERT(pthread_condattr_destroy(&attributes) == 0);
    TW_ASSERT(pthread_mutex_init(&heartbeat->mutex, NULL) == 0);

    /* This thread blocks all signals: they must reach the loop and end its wait. */
    sigset_t all, before;
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&heartbeat->thread, NULL, beat, heartbeat);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failed == 0) return TW_OK;
    (void)pthread_cond_destroy(&heartbeat->stop);
    (void)pthread_mutex_destroy(&heartbeat->mutex);
    return tw_fail(err, TW_NOMEM, "start the heartbeat thread: %s", strerror(failed));
}

void tw_heartbeat_close(struct tw_heartbeat *heartbeat) {
    TW_ASSERT(pthread_mutex_lock(&heartbeat->mutex) == 0);
    heartbeat->must_stop = true;
    TW_ASSERT(pthread_cond_signal(&heartbeat->stop) == 0);
    TW_ASSERT(pthread_mutex_unlock(&heartbeat->mutex) == 0);
    TW_ASSERT(pthread_join(heartbeat->thread, NULL) == 0);
    (void)pthread_cond_destroy(&heartbeat->stop);
    (void)pthread_mutex_destroy(&heartbeat->mutex);
}

/* ---- the link -------------------------------------------------------------------------------- */

enum tw_status tw_daemon_link_open(struct tw_daemon_link *link, const char *path,
                                   struct tw_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(path);
    *link = (struct tw_daemon_link){.fd = -1};
    if (length == 0 || length >= sizeof(address.sun_path)) {
        return tw_fail(err, TW_LIMIT, "socket path '%s' must have 1 to %zu characters", path,
                       sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, path, length + 1);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "open a socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
        link->fd = fd;
        return TW_OK;
    }
    const int reason = errno;
    (void)close(fd);
    if (reason == ENOENT || reason == ECONNREFUSED || reason == EAGAIN || reason == EINTR) {
        return tw_fail(err, TW_AGAIN, "no daemon at %s yet: %s", path, strerror(reason));
    }
    return tw_fail(err, TW_IO, "connect to the daemon at %s: %s%s", path, strerror(reason),
                   reason == EACCES ? "; run the worker as the daemon's user" : "");
}

void tw_daemon_link_close(struct tw_daemon_link *link) {
    if (link->fd >= 0) (void)close(link->fd);
    link->fd = -1;
}

/* ---- packets --------------------------------------------------------------------------------- */

enum tw_status tw_daemon_link_try_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                       struct tw_error *err) {
    msg->bytes = tw_worker_msg_bytes(msg->kind);
    for (;;) {
        const ssize_t sent = send(link->fd, msg, msg->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == (ssize_t)msg->bytes) return TW_OK;
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
            return tw_fail(err, TW_AGAIN, "the daemon's socket is full");
        }
        return tw_fail(err, TW_IO, "the daemon closed the link: %s", strerror(errno));
    }
}

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

enum tw_status tw_daemon_link_send(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err) {
    enum tw_status status = tw_daemon_link_try_send(link, msg, err);
    if (status != TW_AGAIN) return status;
    const uint64_t begin_us = now_us();
    while (status == TW_AGAIN) {
        struct pollfd room = {.fd = link->fd, .events = POLLOUT};
        (void)poll(&room, 1, -1);
        status = tw_daemon_link_try_send(link, msg, err);
    }
    link->blocked_us += now_us() - begin_us;
    return status;
}

/* Returns the file descriptor passed with the packet, or -1. Further descriptors are closed. */
static int descriptor_take(struct msghdr *header) {
    int taken = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (taken < 0) {
                taken = fd;
            } else {
                (void)close(fd);
            }
        }
    }
    return taken;
}

static enum tw_status packet_recv(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                  int *fd_out, struct tw_error *err) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } ancillary;
    struct iovec body = {.iov_base = msg, .iov_len = sizeof(*msg)};
    struct msghdr header = {
        .msg_iov = &body,
        .msg_iovlen = 1,
        .msg_control = ancillary.bytes,
        .msg_controllen = sizeof(ancillary.bytes),
    };
    ssize_t received;
    do {
        received = recvmsg(link->fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0 && errno == EAGAIN) return tw_fail(err, TW_AGAIN, "no packet waits");
    if (received < 0) return tw_fail(err, TW_IO, "the daemon closed the link: %s", strerror(errno));
    if (received == 0) return tw_fail(err, TW_IO, "the daemon closed the link");

    const int fd = descriptor_take(&header);
    const size_t head_bytes = offsetof(struct tw_worker_msg, u);
    if ((header.msg_flags & MSG_TRUNC) != 0 || (size_t)received < head_bytes ||
        (size_t)received != tw_worker_msg_bytes(msg->kind) || msg->bytes != (uint32_t)received) {
        if (fd >= 0) (void)close(fd);
        return tw_fail(err, TW_PROTO,
                       "the daemon sent a packet of %zd bytes that no message of version %d has",
                       received, TW_WORKER_VERSION);
    }
    *fd_out = fd;
    return TW_OK;
}

enum tw_status tw_daemon_link_recv(struct tw_daemon_link *link, struct tw_worker_msg *msg,
                                   struct tw_error *err) {
    int fd = -1;
    TW_TRY(packet_recv(link, msg, &fd, err));
    if (fd >= 0) (void)close(fd);
    return TW_OK;
}

enum tw_status tw_daemon_link_wait(struct tw_daemon_link *link, int timeout_ms,
                                   struct tw_error *err) {
    struct pollfd wanted = {.fd = link->fd, .events = POLLIN};
    const int ready = poll(&wanted, 1, timeout_ms);
    if (ready > 0) return TW_OK;
    if (ready == 0 || errno == EINTR) return tw_fail(err, TW_AGAIN, "the daemon is silent");
    return tw_fail(err, TW_IO, "wait for the daemon: %s", strerror(errno));
}

/* ---- attaching ------------------------------------------------------------------------------- */

static enum tw_status welcome_check(const struct tw_wmsg_welcome *welcome, struct tw_error *err) {
    if (welcome->version != TW_WORKER_VERSION) {
        return tw_fail(err, TW_VERSION,
                       "the daemon speaks version %u of the worker protocol, this worker %d: "
                       "install both from one release",
                       welcome->version, TW_WORKER_VERSION);
    }
    const struct tw_device_choice device = {.kind = (enum tw_device_kind)welcome->device,
                                            .ordinal = welcome->ordinal};
    if (welcome->start > TW_START_ANCHOR || !tw_device_is_valid(&device) ||
        welcome->snapshot_mode > TW_SNAPSHOT_OFF ||
        (welcome->start == TW_START_SNAPSHOT && welcome->slot >= TW_SNAPSHOT_SLOTS) ||
        memchr(welcome->data_path, '\0', sizeof(welcome->data_path)) == NULL) {
        return tw_fail(err, TW_PROTO, "the daemon's WELCOME has a field out of range");
    }
    return tw_run_check(&welcome->run, err);
}

/* Fails with the text of a refusal, which may lack a NUL. */
static enum tw_status refusal(const struct tw_wmsg_fatal *fatal, struct tw_error *err) {
    return tw_fail(err, TW_DENIED, "the daemon refuses this worker: %.*s",
                   (int)sizeof(fatal->text) - 1, fatal->text);
}

static enum tw_status turned_away(struct tw_error *err) {
    return tw_fail(err, TW_DENIED,
                   "the daemon turned this worker away (another one is attached, or it runs as "
                   "another user): the daemon's log says which");
}

enum tw_status tw_daemon_link_greet(struct tw_daemon_link *link, const char *device,
                                    struct tw_error *err) {
    struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.kind = TW_WMSG_HELLO;
    msg.u.hello.version = TW_WORKER_VERSION;
    msg.u.hello.pid = (uint32_t)getpid();
    memcpy(msg.u.hello.device, device, strnlen(device, sizeof(msg.u.hello.device) - 1));
    const enum tw_status greeted = tw_daemon_link_send(link, &msg, err);
    return greeted == TW_IO ? turned_away(err) : greeted; /* the daemon closed the socket before our
                                                             HELLO: it refused this worker */
}

enum tw_status tw_daemon_link_attach(struct tw_daemon_link *link, int timeout_ms,
                                     struct tw_wmsg_welcome *welcome, int *memfd_out,
                                     struct tw_error *err) {
    struct tw_worker_msg msg;
    if (tw_daemon_link_wait(link, timeout_ms, err) != TW_OK) {
        return tw_fail(err, TW_AGAIN, "the daemon did not answer within %d ms", timeout_ms);
    }
    int fd = -1;
    const enum tw_status status = packet_recv(link, &msg, &fd, err);
    if (status == TW_IO) return turned_away(err);
    TW_TRY(status);
    enum tw_status checked = TW_OK;
    if (msg.kind == TW_WMSG_FATAL) {
        checked = refusal(&msg.u.fatal, err);
    } else if (msg.kind != TW_WMSG_WELCOME || fd < 0) {
        checked = tw_fail(err, TW_PROTO, "the daemon's first packet is not a WELCOME with memory");
    } else {
        checked = welcome_check(&msg.u.welcome, err);
    }
    if (checked != TW_OK) {
        if (fd >= 0) (void)close(fd);
        return checked;
    }
    *welcome = msg.u.welcome;
    *memfd_out = fd;
    return TW_OK;
}

/* Returns whether no other process can shrink the memory: a shrink would kill this process by
 * SIGBUS. A memfd is protected by seals. A file has none, but without a name only a process with
 * the descriptor can shrink it: the daemon, and this process. */
static bool is_size_fixed(int memfd, const struct stat *info) {
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    const int seals = fcntl(memfd, F_GET_SEALS);
    if (seals >= 0) return (seals & wanted) == wanted;
    return S_ISREG(info->st_mode) && info->st_nlink == 0;
}

static enum tw_status memory_map(int memfd, const struct tw_wmsg_welcome *welcome,
                                 const struct tw_layout *layout, struct tw_shm *shm,
                                 struct tw_error *err) {
    struct stat info;
    if (fstat(memfd, &info) != 0) {
        return tw_fail(err, TW_PROTO, "stat of the shared memory: %s", strerror(errno));
    }
    if (!is_size_fixed(memfd, &info)) {
        return tw_fail(err, TW_PROTO, "the daemon's shared memory is not sealed");
    }
    TW_TRY(tw_shm_geometry_check(&welcome->geometry, layout,
                                 (enum tw_snapshot_mode)welcome->snapshot_mode,
                                 (uint64_t)info.st_size, err));
    void *base = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    if (base == MAP_FAILED) {
        return tw_fail(err, TW_NOMEM, "map %lld bytes of shared memory: %s",
                       (long long)info.st_size, strerror(errno));
    }
    tw_shm_bind(shm, base, &welcome->geometry, layout);
    const enum tw_status status = tw_shm_check_magic(shm, err);
    if (status != TW_OK) tw_daemon_link_unmap(shm);
    return status;
}

enum tw_status tw_daemon_link_map(int memfd, const struct tw_wmsg_welcome *welcome,
                                  const struct tw_layout *layout, struct tw_shm *shm,
                                  struct tw_error *err) {
    const enum tw_status status = memory_map(memfd, welcome, layout, shm, err);
    (void)close(memfd);
    return status;
}

void tw_daemon_link_unmap(struct tw_shm *shm) {
    if (shm->base != NULL) (void)munmap(shm->base, (size_t)shm->geometry.bytes);
    shm->base = NULL;
}
