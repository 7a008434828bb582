#include "daemon/process/notify.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void tw_notify(const char *fmt, ...) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@')) return;
    const size_t length = strlen(path);
    if (length >= sizeof(address.sun_path)) return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* "@" stands for a name in the abstract namespace */

    char text[512];
    va_list args;
    va_start(args, fmt);
    const int size = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (size <= 0) return;
    const size_t bytes = (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    const socklen_t address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    (void)sendto(fd, text, bytes, MSG_NOSIGNAL, (const struct sockaddr *)&address, address_bytes);
    (void)close(fd);
}

uint64_t tw_notify_watchdog_us(void) {
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    if (usec == NULL) return 0;
    if (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()) return 0;
    return strtoull(usec, NULL, 10) / 2;
}
