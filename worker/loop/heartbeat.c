#include "worker/loop/heartbeat.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/exit_codes.h"
#include "base/log.h"

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
