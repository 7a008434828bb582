#include "daemon/workerlink/worker_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"

/* ---- the worker's connection --------------------------------------------------------------- */

static void poll_closed(uv_handle_t *handle) {
    struct tw_worker_link *link = handle->data;
    (void)close(link->fd);
    link->fd = -1;
    link->is_poll_open = false;
    link->is_closing = false;
    link->queue_count = 0;
    const bool was_greeted = link->is_greeted;
    link->is_greeted = false;
    if (link->listen_fd < 0) return; /* the whole link is closing, so `closed` is not called */
    if (was_greeted) {
        link->config.events.closed(link->config.user, link->sentence);
    } else if (link->config.events.refused != NULL) {
        link->config.events.refused(link->config.user, link->sentence);
    }
}

void tw_worker_link_drop(struct tw_worker_link *link, const char *sentence) {
    if (!link->is_poll_open || link->is_closing) return;
    link->is_closing = true;
    (void)snprintf(link->sentence, sizeof(link->sentence), "%s", sentence);
    (void)uv_timer_stop(&link->greeting);
    uv_close((uv_handle_t *)&link->poll, poll_closed);
}

bool tw_worker_link_is_open(const struct tw_worker_link *link) {
    return link->is_poll_open && link->is_greeted && !link->is_closing;
}

static void packet_receive(struct tw_worker_link *link, const struct tw_worker_msg *msg,
                           ssize_t size) {
    const bool is_whole = size >= 8 && msg->bytes == (uint64_t)size &&
                          msg->kind < TW_WMSG_WELCOME &&
                          tw_worker_msg_bytes(msg->kind) == (uint64_t)size;
    char sentence[160];
    if (!is_whole) {
        (void)snprintf(sentence, sizeof(sentence),
                       "the worker sent a packet of %zd bytes that is no message (is it of another "
                       "release?)",
                       size);
        tw_worker_link_drop(link, sentence);
        return;
    }
    const bool is_hello = msg->kind == TW_WMSG_HELLO;
    if (is_hello == link->is_greeted) {
        tw_worker_link_drop(link, is_hello ? "the worker said HELLO twice"
                                           : "the worker spoke before it said HELLO");
        return;
    }
    if (!is_hello) {
        link->config.events.message(link->config.user, msg);
        return;
    }
    if (msg->u.hello.version != TW_WORKER_VERSION) {
        (void)snprintf(sentence, sizeof(sentence),
                       "the worker speaks version %u of the worker link, this daemon %u: install "
                       "both from one release",
                       msg->u.hello.version, (unsigned)TW_WORKER_VERSION);
        tw_worker_link_drop(link, sentence);
        return;
    }
    link->is_greeted = true;
    (void)uv_timer_stop(&link->greeting);
    link->config.events.hello(link->config.user, &msg->u.hello, link->pid);
}

static void packets_read(struct tw_worker_link *link) {
    enum { PACKETS_PER_TURN = 32 };
    for (unsigned i = 0; i < PACKETS_PER_TURN && !link->is_closing; i++) {
        struct tw_worker_msg msg;
        memset(&msg, 0, sizeof(msg));
        const ssize_t size = recv(link->fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (size <= 0) {
            tw_worker_link_drop(link, size == 0 ? "the worker closed its socket"
                                                : "the worker's socket failed");
            return;
        }
        packet_receive(link, &msg, size);
    }
}

/* Returns true if the kernel accepted the packet, false if the socket is full. */
static bool packet_send(struct tw_worker_link *link, const void *bytes, uint32_t size, int fd) {
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    union {
        char raw[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof(control));
        header.msg_control = control.raw;
        header.msg_controllen = sizeof(control.raw);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(link->fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return true;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return false;
    tw_worker_link_drop(link, "the worker's socket failed");
    return true;
}

static void on_poll(uv_poll_t *handle, int status, int events);

static void poll_wanted(struct tw_worker_link *link) {
    const int wanted = UV_READABLE | (link->queue_count > 0 ? UV_WRITABLE : 0);
    TW_ASSERT(uv_poll_start(&link->poll, wanted, on_poll) == 0);
}

static void on_poll(uv_poll_t *handle, int status, int events) {
    struct tw_worker_link *link = handle->data;
    if (status < 0) {
        tw_worker_link_drop(link, "the worker's socket failed");
        return;
    }
    while ((events & UV_WRITABLE) != 0 && link->queue_count > 0 && !link->is_closing) {
        const struct tw_worker_packet *packet = &link->queue[link->queue_first];
        if (!packet_send(link, packet->u.raw, packet->bytes, packet->fd)) break;
        link->queue_first = (link->queue_first + 1) % TW_WORKER_QUEUE;
        link->queue_count--;
    }
    if (!link->is_closing && (events & UV_READABLE) != 0) packets_read(link);
    if (!link->is_closing) poll_wanted(link);
}

void tw_worker_link_send(struct tw_worker_link *link, struct tw_worker_msg *msg, int fd) {
    if (!tw_worker_link_is_open(link)) return;
    msg->bytes = tw_worker_msg_bytes(msg->kind);
    TW_ASSERT(msg->bytes > 0);
    if (link->queue_count == 0 && packet_send(link, msg, msg->bytes, fd)) return;
    if (link->queue_count == TW_WORKER_QUEUE) {
        tw_worker_link_drop(link, "the worker does not read its messages");
        return;
    }
    const uint32_t last = (link->queue_first + link->queue_count) % TW_WORKER_QUEUE;
    struct tw_worker_packet *packet = &link->queue[last];
    packet->bytes = msg->bytes;
    packet->fd = fd;
    memcpy(packet->u.raw, msg, msg->bytes);
    link->queue_count++;
    poll_wanted(link);
}

/* ---- the listener -------------------------------------------------------------------------- */

static void on_greeting_late(uv_timer_t *timer) {
    tw_worker_link_drop(timer->data, "a process on the worker socket did not say HELLO in time");
}

static bool user_may(const struct tw_worker_link *link, int fd, pid_t *pid) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    *pid = peer.pid;
    return peer.uid == 0 || peer.uid == getuid() || peer.uid == link->config.worker_uid;
}

static void on_connection(uv_poll_t *handle, int status, int events) {
    struct tw_worker_link *link = handle->data;
    (void)status;
    (void)events;
    const int fd = accept4(link->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    pid_t pid = 0;
    const char *refusal = NULL;
    if (link->is_poll_open) {
        refusal = "a second worker connected: one is enough, it was turned away";
    } else if (!user_may(link, fd, &pid)) {
        refusal = "a process of another user connected to the worker socket and was turned away";
    } else if (uv_poll_init(link->config.loop, &link->poll, fd) != 0) {
        refusal = "the worker's socket could not be watched";
    }
    if (refusal != NULL) {
        (void)close(fd);
        if (link->config.events.refused != NULL) {
            link->config.events.refused(link->config.user, refusal);
        }
        return;
    }
    link->fd = fd;
    link->pid = pid;
    link->poll.data = link;
    link->is_poll_open = true;
    link->queue_first = 0;
    link->queue_count = 0;
    poll_wanted(link);
    TW_ASSERT(uv_timer_start(&link->greeting, on_greeting_late, TW_WORKER_GREETING_US / 1000, 0) ==
              0);
}

/* Returns true if a process accepts connections at that address. */
static bool is_answered(const struct sockaddr_un *address) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return true;
    const int rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    const bool answered = rc == 0 || errno == EAGAIN;
    (void)close(fd);
    return answered;
}

static enum tw_status listen_at(struct tw_worker_link *link, struct tw_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat info;
    memcpy(address.sun_path, link->socket_path, sizeof(address.sun_path));
    if (lstat(link->socket_path, &info) == 0) {
        if (!S_ISSOCK(info.st_mode)) {
            return tw_fail(err, TW_IO, "%s exists and is no socket: move it away",
                           link->socket_path);
        }
        if (is_answered(&address)) {
            return tw_fail(err, TW_IO,
                           "another daemon answers on %s: stop it, or give this one its own "
                           "node.run_dir",
                           link->socket_path);
        }
        (void)unlink(link->socket_path);
    }
    /* With mode 0660 the whole group can connect; user_may refuses its other members. */
    const mode_t mode = link->config.worker_uid != 0 ? 0660 : 0600;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "worker socket: %s", strerror(errno));
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        chmod(link->socket_path, mode) != 0 || listen(fd, 4) != 0) {
        const int reason = errno;
        (void)close(fd);
        return tw_fail(err, TW_IO, "listen on %s: %s", link->socket_path, strerror(reason));
    }
    link->listen_fd = fd;
    return TW_OK;
}

enum tw_status tw_worker_link_open(struct tw_worker_link *link,
                                   const struct tw_worker_link_config *config,
                                   struct tw_error *err) {
    *link = (struct tw_worker_link){.config = *config, .listen_fd = -1, .fd = -1};
    if (strlen(config->socket_path) >= sizeof(link->socket_path)) {
        return tw_fail(err, TW_CONFIG,
                       "%s is too long for a socket (%zu characters at most): choose a shorter "
                       "node.run_dir",
                       config->socket_path, sizeof(link->socket_path) - 1);
    }
    (void)snprintf(link->socket_path, sizeof(link->socket_path), "%s", config->socket_path);
    TW_TRY(listen_at(link, err));
    link->queue = calloc(TW_WORKER_QUEUE, sizeof(*link->queue));
    TW_ASSERT(link->queue != NULL);
    TW_ASSERT(uv_timer_init(config->loop, &link->greeting) == 0);
    TW_ASSERT(uv_poll_init(config->loop, &link->listener, link->listen_fd) == 0);
    link->greeting.data = link;
    link->listener.data = link;
    TW_ASSERT(uv_poll_start(&link->listener, UV_READABLE, on_connection) == 0);
    return TW_OK;
}

void tw_worker_link_close(struct tw_worker_link *link) {
    if (link->listen_fd < 0) return;
    tw_worker_link_drop(link, "the daemon is stopping");
    (void)uv_poll_stop(&link->listener);
    uv_close((uv_handle_t *)&link->listener, NULL);
    uv_close((uv_handle_t *)&link->greeting, NULL);
    (void)close(link->listen_fd);
    (void)unlink(link->socket_path);
    link->listen_fd = -1;
    free(link->queue);
    link->queue = NULL;
}
