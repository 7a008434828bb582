/* The heartbeat thread of a worker whose training loop hangs. */
#include "tests/test.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "worker/loop/daemon_link.h"

/* Forks a process that hangs but has a heartbeat thread. `fd` is its end of the socket. */
static pid_t hang(int fd, uint64_t orphan_us) {
    const pid_t child = fork();
    if (child != 0) return child;
    static struct tw_shm_control control;
    static struct tw_heartbeat heartbeat;
    if (tw_heartbeat_open(&heartbeat, &control, fd, orphan_us, NULL) != TW_OK) _exit(99);
    for (;;) (void)pause();
}

TEST(worker_that_hangs_ends_when_its_daemon_is_gone) {
    int pair[2], status = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const pid_t child = hang(pair[1], 1);
    (void)close(pair[1]);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    (void)shutdown(pair[0], SHUT_RDWR); /* needed because the child, too, has a copy of this end */
    (void)close(pair[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TW_EXIT_FAILURE);
}
