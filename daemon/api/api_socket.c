#include "daemon/api/api_socket.h"

#include <errno.h>
#include <grp.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/* Removes the socket file that a dead daemon left behind. */
static enum tw_status clear_path(const struct sockaddr_un *address, struct tw_error *err) {
    struct stat info;
    if (lstat(address->sun_path, &info) != 0) {
        if (errno == ENOENT) return TW_OK;
        return tw_fail(err, TW_IO, "%s: %s", address->sun_path, strerror(errno));
    }
    if (!S_ISSOCK(info.st_mode)) {
        return tw_fail(err, TW_IO, "%s is no socket; move it away or choose another run_dir",
                       address->sun_path);
    }
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "socket: %s", strerror(errno));
    const int rc = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    const int why = errno;
    (void)close(fd);
    if (rc == 0 || why == EAGAIN) {
        return tw_fail(err, TW_IO,
                       "a daemon already answers on %s; stop it or choose another "
                       "run_dir",
                       address->sun_path);
    }
    if (unlink(address->sun_path) == 0) return TW_OK;
    return tw_fail(err, TW_IO, "%s: %s", address->sun_path, strerror(errno));
}

static enum tw_status set_access(const char *path, const char *group, struct tw_error *err) {
    if (group != NULL && group[0] != 0) {
        const struct group *const entry = getgrnam(group);
        if (entry == NULL) {
            return tw_fail(err, TW_CONFIG,
                           "api.group: there is no group `%s`; groupadd --system "
                           "makes one",
                           group);
        }
        if (chown(path, (uid_t)-1, entry->gr_gid) != 0) {
            return tw_fail(err, TW_CONFIG, "api.group: the daemon's user is not in group `%s`",
                           group);
        }
    }
    if (chmod(path, 0660) != 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    return TW_OK;
}

enum tw_status tw_api_listen_unix(const char *path, const char *group, int *fd_out,
                                  struct tw_error *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        return tw_fail(err, TW_CONFIG, "%s is too long for the name of a socket", path);
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    TW_TRY(clear_path(&address, err));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return tw_fail(err, TW_IO, "socket: %s", strerror(errno));
    /* The mode is set before listen(), so no client can connect under a wrong one. */
    enum tw_status status = TW_OK;
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        status = tw_fail(err, TW_IO, "%s: %s; does its folder exist, and is it ours?", path,
                         strerror(errno));
    } else {
        status = set_access(path, group, err);
        if (status == TW_OK && listen(fd, BACKLOG) != 0) {
            status = tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
        }
        if (status != TW_OK) (void)unlink(path);
    }
    if (status != TW_OK) {
        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return TW_OK;
}

int tw_api_accept(int listen_fd) {
    for (;;) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) return fd;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return TW_API_NOBODY;
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            return TW_API_EXHAUSTED;
        }
        if (errno != EINTR && errno != ECONNABORTED) return TW_API_NOBODY;
    }
}

bool tw_api_is_loopback(const char *host) {
    const size_t size = strcspn(host, host[0] == '[' ? "]" : ":");
    if (host[0] == '[') return size == 4 && memcmp(host, "[::1", 4) == 0;
    if (size == 9 && memcmp(host, "localhost", 9) == 0) return true;
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == size;
}

enum tw_status tw_api_listen_tcp(const char *key, const char *address, int *fd_out,
                                 struct tw_error *err) {
    char host[72];
    const char *const colon = strrchr(address, ':');
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host) ||
        !tw_api_is_loopback(address)) {
        return tw_fail(err, TW_CONFIG, "%s: `%s` is no loopback host:port", key, address);
    }
    const bool is_v6 = address[0] == '[';
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - 2 * is_v6, address + is_v6);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    const bool is_name = strcmp(host, "localhost") == 0;
    const int rc = getaddrinfo(is_name ? "127.0.0.1" : host, colon + 1, &hints, &found);
    if (rc != 0) return tw_fail(err, TW_CONFIG, "%s: `%s`: %s", key, address, gai_strerror(rc));
    const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    const bool is_bound =
        fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
    const int why = errno;
    freeaddrinfo(found);
    if (!is_bound) {
        if (fd >= 0) (void)close(fd);
        return tw_fail(err, TW_IO, "%s: %s: %s; choose another port", key, address, strerror(why));
    }
    *fd_out = fd;
    return TW_OK;
}

bool tw_api_may_act(int fd) {
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == 0 || peer.uid == geteuid();
}
