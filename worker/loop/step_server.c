#include "worker/loop/step_server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

static uint64_t cost_us(const struct tw_step_server *side) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000 + side->link->blocked_us;
}

static uint64_t now_us(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool tw_step_server_answer(struct tw_daemon_link *link, struct tw_merger *merger,
                           const struct tw_worker_msg *request, enum tw_status *status,
                           struct tw_error *err) {
    struct tw_worker_msg reply;
    struct tw_error reason = {.status = TW_OK};
    enum tw_status done;
    memset(&reply, 0, sizeof(reply));
    if (request->kind == TW_WMSG_REDUCE) {
        reply.kind = TW_WMSG_REDUCED;
        done = tw_merger_reduce(merger, &request->u.reduce, &reply.u.reduced, &reason);
    } else if (request->kind == TW_WMSG_CHECK) {
        reply.kind = TW_WMSG_CHECKED;
        done = tw_merger_check(merger, &request->u.check, &reply.u.checked, &reason);
    } else {
        return false;
    }
    reason.status = done;
    if (done != TW_OK) tw_refusal_log_note(&link->refused, request->kind, &reason, now_us());
    *status = tw_daemon_link_send(link, &reply, err);
    return true;
}

/* Reads one packet. The caller holds the mutex. */
static void read_one(struct tw_step_server *side) {
    struct tw_worker_msg *msg = &side->kept[side->kept_count];
    const uint64_t begin_us = cost_us(side);
    side->status = tw_daemon_link_recv(side->link, msg, &side->failure);
    if (side->status == TW_OK &&
        !tw_step_server_answer(side->link, side->merger, msg, &side->status, &side->failure)) {
        const bool must_stop = msg->kind == TW_WMSG_PAUSE || msg->kind == TW_WMSG_EXIT;
        if (must_stop && side->may_cut) atomic_store(&side->is_cut, true);
        side->kept_count++;
    }
    side->cost_us += cost_us(side) - begin_us;
    if (side->status == TW_AGAIN) side->status = TW_OK;
    if (side->status != TW_OK || side->kept_count == TW_STEP_SERVER_KEPT_MAX) side->is_open = false;
}

static void *serve(void *argument) {
    struct tw_step_server *side = argument;
    TW_ASSERT(pthread_mutex_lock(&side->mutex) == 0);
    while (!side->must_stop) {
        if (!side->is_open) {
            side->is_waiting = true;
            TW_ASSERT(pthread_cond_wait(&side->opened, &side->mutex) == 0);
            side->is_waiting = false;
            continue;
        }
        struct pollfd fds[] = {{.fd = side->link->fd, .events = POLLIN},
                               {.fd = side->wake_fd, .events = POLLIN}};
        TW_ASSERT(pthread_mutex_unlock(&side->mutex) == 0);
        (void)poll(fds, 2, -1);
        TW_ASSERT(pthread_mutex_lock(&side->mutex) == 0);
        if (side->is_open && fds[0].revents != 0) read_one(side);
    }
    TW_ASSERT(pthread_mutex_unlock(&side->mutex) == 0);
    return NULL;
}

static int start(struct tw_step_server *side) {
    sigset_t all,
        before; /* this thread blocks all signals: they must reach the loop and end its wait */
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&side->thread, NULL, serve, side);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return failed;
}

enum tw_status tw_step_server_init(struct tw_step_server *side, struct tw_daemon_link *link,
                                   struct tw_merger *merger, struct tw_error *err) {
    memset(side, 0, sizeof(*side));
    struct tw_worker_msg *kept = calloc(TW_STEP_SERVER_KEPT_MAX + 1, sizeof(*kept));
    if (kept == NULL) return tw_fail(err, TW_NOMEM, "no memory for kept requests");
    const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        free(kept);
        return tw_fail(err, TW_IO, "an eventfd: %s", strerror(errno));
    }
    side->link = link;
    side->merger = merger;
    side->kept = kept;
    side->wake_fd = wake_fd;
    TW_ASSERT(pthread_mutex_init(&side->mutex, NULL) == 0);
    TW_ASSERT(pthread_cond_init(&side->opened, NULL) == 0);
    const int failed = start(side);
    if (failed == 0) return TW_OK;
    (void)pthread_cond_destroy(&side->opened);
    (void)pthread_mutex_destroy(&side->mutex);
    (void)close(wake_fd);
    free(kept);
    side->kept = NULL;
    return tw_fail(err, TW_NOMEM, "start the side thread: %s", strerror(failed));
}

void tw_step_server_deinit(struct tw_step_server *side) {
    if (side->kept == NULL) return;
    TW_ASSERT(pthread_mutex_lock(&side->mutex) == 0);
    side->must_stop = true;
    side->is_open = false;
    TW_ASSERT(pthread_cond_signal(&side->opened) == 0);
    TW_ASSERT(pthread_mutex_unlock(&side->mutex) == 0);
    TW_ASSERT(write(side->wake_fd, &(uint64_t){1}, sizeof(uint64_t)) == sizeof(uint64_t));
    TW_ASSERT(pthread_join(side->thread, NULL) == 0);
    (void)pthread_cond_destroy(&side->opened);
    (void)pthread_mutex_destroy(&side->mutex);
    (void)close(side->wake_fd);
    free(side->kept);
    memset(side, 0, sizeof(*side));
}

void tw_step_server_open(struct tw_step_server *side, bool may_cut) {
    TW_ASSERT(pthread_mutex_lock(&side->mutex) == 0);
    side->may_cut = may_cut;
    side->is_open = side->status == TW_OK && side->kept_count < TW_STEP_SERVER_KEPT_MAX;
    /* A thread that waits for packets in poll needs no signal. */
    if (side->is_waiting) TW_ASSERT(pthread_cond_signal(&side->opened) == 0);
    TW_ASSERT(pthread_mutex_unlock(&side->mutex) == 0);
}

uint64_t tw_step_server_close(struct tw_step_server *side) {
    TW_ASSERT(pthread_mutex_lock(&side->mutex) == 0);
    const uint64_t took_us = side->cost_us;
    side->is_open = false;
    side->cost_us = 0;
    TW_ASSERT(pthread_mutex_unlock(&side->mutex) == 0);
    return took_us;
}

bool tw_step_server_has_kept(const struct tw_step_server *side) {
    return side->kept_begin < side->kept_count;
}

enum tw_status tw_step_server_recv(struct tw_step_server *side, struct tw_worker_msg *msg,
                                   struct tw_error *err) {
    if (tw_step_server_has_kept(side)) {
        *msg = side->kept[side->kept_begin++];
        return TW_OK;
    }
    side->kept_begin = side->kept_count = 0;
    if (side->status != TW_OK) return tw_fail(err, side->status, "%s", side->failure.message);
    return tw_daemon_link_recv(side->link, msg, err);
}
