/* thinwire leave - asks the daemon to end, and returns when it has: what comes next may be its
 * start.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/cli/cli.h"

/* The first word after this long, and then as often. */
enum { WORD_MS = 2000 };

/* The process that listens on the socket, as a descriptor that becomes readable when it has ended;
 * -1 where that cannot be known (a daemon in another PID namespace, a kernel before 5.3). */
static int daemon_open(const char *socket_path) {
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

/* As long as it takes: the daemon itself ends when nothing moves any more, and who does not want to
 * wait interrupts this, which changes nothing there. */
static void say_waiting(unsigned waited_s) {
    static bool is_shown;
    if (isatty(STDERR_FILENO) != 1) return;
    if (waited_s >= WORD_MS / 1000) {
        (void)fprintf(stderr, "\r\033[Kstill leaving, for %u s (Ctrl-C stops waiting only)",
                      waited_s);
        is_shown = true;
    } else if (waited_s == 0 && is_shown) {
        (void)fputs("\r\033[K", stderr);
        is_shown = false;
    }
}

static void wait_for(int process) {
    struct pollfd ended = {.fd = process, .events = POLLIN};
    unsigned waited_s = 0;
    for (int count = 0; count <= 0;) {
        count = poll(&ended, 1, WORD_MS);
        if (count < 0 && errno != EINTR) break;
        if (count != 0) continue;
        waited_s += WORD_MS / 1000;
        say_waiting(waited_s);
    }
    say_waiting(0);
}

enum tw_exit cli_leave(struct cli *cli) {
    static const char *const OPTIONS[] = {"--json", "--config", "--socket", "--color", NULL};
    char socket_path[TW_PATH_BYTES];
    enum tw_exit rc = cli_done(cli, "leave", OPTIONS);
    if (rc == TW_EXIT_OK) rc = cli_socket(cli, socket_path);
    if (rc != TW_EXIT_OK) return rc;
    const int process = daemon_open(socket_path);
    cli->waiting = say_waiting;
    rc = cli_ask(cli, "leave", "leave");
    if (rc == TW_EXIT_OK && process >= 0) {
        (void)fflush(stdout);
        wait_for(process);
        if (!cli->json) (void)puts("it has ended; `thinwire start` goes on");
    }
    if (process >= 0) (void)close(process);
    return rc;
}
