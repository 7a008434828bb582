#include "daemon/process/service.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/log.h"

/* ==== reports to systemd ====================================================================== */

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

/* ==== the loop ================================================================================ */

enum { LONG_US = 5000 };

/* Runs before each sleep: the time since the last call, minus the sleep, is one iteration's work.
 */
static void on_prepare(uv_prepare_t *prepare) {
    struct tw_loop_lag *lag = prepare->data;
    const uint64_t now_ns = uv_hrtime(), idle_ns = uv_metrics_idle_time(prepare->loop);
    const uint64_t wall_ns = now_ns - lag->last_ns, slept_ns = idle_ns - lag->last_idle_ns;
    const uint64_t busy_us = wall_ns > slept_ns ? (wall_ns - slept_ns) / 1000 : 0;
    lag->last_ns = now_ns;
    lag->last_idle_ns = idle_ns;
    lag->turns++;
    if (busy_us > LONG_US) lag->turns_long++;
    if (now_ns / 1000 - lag->bucket_us >= TW_LAG_BUCKET_US) {
        memmove(&lag->longest_us[1], &lag->longest_us[0],
                (TW_LAG_BUCKETS - 1) * sizeof(lag->longest_us[0]));
        lag->longest_us[0] = 0;
        lag->bucket_us = now_ns / 1000;
    }
    if (busy_us > lag->longest_us[0]) lag->longest_us[0] = busy_us;
}

void tw_loop_lag_open(struct tw_loop_lag *lag, uv_loop_t *loop) {
    memset(lag, 0, sizeof(*lag));
    TW_ASSERT(uv_loop_configure(loop, UV_METRICS_IDLE_TIME) == 0);
    TW_ASSERT(uv_prepare_init(loop, &lag->prepare) == 0);
    lag->prepare.data = lag;
    lag->last_ns = uv_hrtime();
    lag->bucket_us = lag->last_ns / 1000;
    TW_ASSERT(uv_prepare_start(&lag->prepare, on_prepare) == 0);
    uv_unref((uv_handle_t *)&lag->prepare);
}

void tw_loop_lag_close(struct tw_loop_lag *lag) {
    uv_close((uv_handle_t *)&lag->prepare, NULL);
}

uint64_t tw_loop_lag_us(const struct tw_loop_lag *lag) {
    uint64_t longest = 0;
    for (unsigned i = 0; i < TW_LAG_BUCKETS; i++) {
        if (lag->longest_us[i] > longest) longest = lag->longest_us[i];
    }
    return longest;
}

/* ==== keeping the daemon running ============================================================== */

/* Time between two looks for the starter's end. */
#define LOOK_US UINT64_C(1000000)

/* True if the daemon would end in the same way each time. */
static bool is_for_a_person(int status) {
    return status == TW_EXIT_USAGE || status == TW_EXIT_MANIFEST || status == TW_EXIT_DATA ||
           status == TW_EXIT_STATE_DIR || status == TW_EXIT_IDENTITY || status == TW_EXIT_CORRUPT;
}

bool tw_keep_restarts(struct tw_keep *keep, int status, int signal, uint64_t lived_us,
                      uint64_t *pause_us) {
    const bool is_first = !keep->has_been_up && keep->deaths == 0;
    if (lived_us >= TW_KEEP_UP_US) keep->has_been_up = true;
    if (lived_us >= TW_KEEP_SOUND_US) keep->deaths = 0;
    if (signal == 0 && (status == TW_EXIT_OK || is_for_a_person(status))) return false;
    /* `thinwire start` still waits for a daemon that has just been started, and shows its error. */
    if (signal == 0 && is_first && lived_us < TW_KEEP_UP_US) return false;
    if (++keep->deaths > TW_KEEP_DEATHS_MAX) return false;
    *pause_us = TW_KEEP_PAUSE_MAX_US;
    if (keep->deaths <= 6) *pause_us = TW_KEEP_PAUSE_US << (keep->deaths - 1);
    return true;
}

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void take_signals(sigset_t *set) {
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGCHLD);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, set, NULL);
}

/* Starts a daemon. Returns 0 in it, or its process id. */
static pid_t start(const sigset_t *set) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(TW_EXIT_FAILURE); /* the parent died meanwhile */
    (void)sigprocmask(SIG_UNBLOCK, set, NULL);
    return 0;
}

/* Waits for a signal, LOOK_US at most. Returns it, or SIGTERM if `starter` is no longer the parent
 * of this process, or 0. A starter of 0 is none. */
static int next_signal(const sigset_t *set, pid_t starter, uint64_t wait_us) {
    if (wait_us > LOOK_US) wait_us = LOOK_US;
    const struct timespec wait = {.tv_sec = (time_t)(wait_us / 1000000),
                                  .tv_nsec = (long)(wait_us % 1000000 * 1000)};
    const int signal = sigtimedwait(set, NULL, &wait);
    if (signal > 0) return signal;
    return starter != 0 && getppid() != starter ? SIGTERM : 0;
}

/* Waits for the end of the daemon and passes signals on to it. Sets *is_ending if it was told to
 * end. Returns its wait status. */
static int await(pid_t pid, const sigset_t *set, pid_t starter, bool *is_ending) {
    int how = 0;
    while (waitpid(pid, &how, WNOHANG) != pid) {
        /* a second SIGTERM would cut the daemon's save short, so the starter's end counts once */
        const int signal = next_signal(set, *is_ending ? 0 : starter, LOOK_US);
        if (signal == 0 || signal == SIGCHLD) continue;
        *is_ending |= signal != SIGHUP;
        (void)kill(pid, signal);
    }
    return how;
}

/* Returns false if a signal to end arrives in the pause, or the starter ends. */
static bool pause_for(uint64_t pause_us, const sigset_t *set, pid_t starter) {
    const uint64_t end_us = now_us() + pause_us;
    for (uint64_t at_us = now_us(); at_us < end_us; at_us = now_us()) {
        const int signal = next_signal(set, starter, end_us - at_us);
        if (signal == SIGTERM || signal == SIGINT) return false;
    }
    return true;
}

int tw_keep_running(pid_t starter) {
    struct tw_keep keep = {.deaths = 0};
    sigset_t set;
    bool is_ending = false;
    take_signals(&set);
    for (;;) {
        const uint64_t begin_us = now_us();
        const pid_t pid = start(&set);
        uint64_t pause_us;
        if (pid == 0) return -1;
        if (pid < 0) {
            tw_log(TW_LOG_ERROR, "not_started", "text=\"fork: %s\"", strerror(errno));
            return TW_EXIT_FAILURE;
        }
        const int how = await(pid, &set, starter, &is_ending);
        const int signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
        const int status = signal != 0 ? 128 + signal : WEXITSTATUS(how);
        if (is_ending || !tw_keep_restarts(&keep, status, signal, now_us() - begin_us, &pause_us)) {
            if (keep.deaths > TW_KEEP_DEATHS_MAX)
                tw_log(TW_LOG_ERROR, "given_up",
                       "deaths=%u text=\"the daemon dies again and again: remove the cause, then "
                       "`thinwire start`\"",
                       keep.deaths);
            return status;
        }
        tw_log(TW_LOG_WARN, "daemon_died",
               "exit=%d signal=%d deaths=%u restart_in_us=%llu text=\"it goes on from its newest "
               "checkpoint\"",
               signal != 0 ? -1 : status, signal, keep.deaths, (unsigned long long)pause_us);
        if (!pause_for(pause_us, &set, starter)) return status;
    }
}
