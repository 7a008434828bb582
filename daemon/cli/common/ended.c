#include "daemon/cli/common/ended.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* delay before the first message, and interval between messages */
enum { WORD_MS = 2000 };

int ended_open(const char *socket_path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred who = {0};
    socklen_t size = sizeof(who);
    if (strlen(socket_path) >= sizeof(address.sun_path)) return -1;
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    const bool is_known = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
                          getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid > 0;
    (void)close(fd);
    return is_known ? pidfd_open(who.pid, 0) : -1;
}

void ended_say(unsigned waited_s) {
    static bool is_shown;
    if (isatty(STDERR_FILENO) != 1) return;
    if (waited_s >= WORD_MS / 1000) {
        (void)fprintf(stderr, "\r\033[Kstill leaving after %u s (Ctrl-C only stops the waiting)",
                      waited_s);
        is_shown = true;
    } else if (waited_s == 0 && is_shown) {
        (void)fputs("\r\033[K", stderr);
        is_shown = false;
    }
}

void ended_wait(int process) {
    struct pollfd ended = {.fd = process, .events = POLLIN};
    unsigned waited_s = 0;
    for (int count = 0; count <= 0;) {
        count = poll(&ended, 1, WORD_MS);
        if (count < 0 && errno != EINTR) break;
        if (count != 0) continue;
        waited_s += WORD_MS / 1000;
        ended_say(waited_s);
    }
    ended_say(0);
}
