/* slow_machine.c - preloaded library that makes the machine slow for a daemon, but not for its
 * worker:
 *
 *     TW_CLOCK_RATE=N     time passes N times as fast, so that minutes last seconds
 *     TW_CLOCK_FILE=PATH  only while this file is there, because the daemon's limits for a worker
 *                         become as short
 *     TW_DISK_US=N        each read and write lasts N us (microseconds) and moves at most 16 KiB
 *     TW_HELD_THREADS=N   N of the threads in libuv's pool are busy for ever
 *     TW_PROC_STAT=PATH   file read in place of /proc/stat, with the CPU time used by others */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum { PIECE_BYTES = 16 * 1024, HELD_MAX = 8 };

static int64_t rate = 1, seen_ns, shown_ns; /* the machine's clock at the last call, and ours */
static pthread_mutex_t clock_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *clock_path;
static uint64_t disk_us, held;
static const char *proc_stat;

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void settings_take(void) {
    rate = (int64_t)number("TW_CLOCK_RATE", 1);
    clock_path = getenv("TW_CLOCK_FILE");
    disk_us = number("TW_DISK_US", 0);
    held = number("TW_HELD_THREADS", 0);
    proc_stat = getenv("TW_PROC_STAT");
    (void)unsetenv("LD_PRELOAD");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    const int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (code != 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)) return code;
    const int64_t second = 1000000000, ns = now->tv_sec * second + now->tv_nsec;
    (void)pthread_mutex_lock(&clock_lock);
    const bool is_fast =
        clock_path == NULL || syscall(SYS_faccessat, AT_FDCWD, clock_path, F_OK) == 0;
    if (seen_ns == 0) seen_ns = shown_ns = ns;
    if (ns > seen_ns) {
        shown_ns += (ns - seen_ns) * (is_fast ? rate : 1);
        seen_ns = ns;
    }
    now->tv_sec = (time_t)(shown_ns / second);
    now->tv_nsec = (long)(shown_ns % second);
    (void)pthread_mutex_unlock(&clock_lock);
    return 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (proc_stat != NULL && strcmp(path, "/proc/stat") == 0) path = proc_stat;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static size_t slowly(size_t size) {
    if (disk_us == 0) return size;
    const struct timespec wanted = {.tv_sec = (time_t)(disk_us / 1000000),
                                    .tv_nsec = (long)(disk_us % 1000000 * 1000)};
    (void)nanosleep(&wanted, NULL);
    return size < PIECE_BYTES ? size : PIECE_BYTES;
}

ssize_t pread(int file, void *bytes, size_t size, off_t offset) {
    return syscall(SYS_pread64, file, bytes, slowly(size), offset);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    return syscall(SYS_pwrite64, file, bytes, slowly(size), offset);
}

static void hold(uv_work_t *work) {
    (void)work;
    for (;;) (void)pause();
}

int uv_run(uv_loop_t *loop, uv_run_mode mode) {
    static uv_work_t works[HELD_MAX];
    int (*real)(uv_loop_t *, uv_run_mode);
    for (; held > 0 && held <= HELD_MAX; held--)
        (void)uv_queue_work(loop, &works[held - 1], hold, NULL);
    *(void **)(&real) = dlsym(RTLD_NEXT, "uv_run");
    return real(loop, mode);
}
