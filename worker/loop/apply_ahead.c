#include "worker/loop/apply_ahead.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

static void lock(struct tw_apply_ahead *early) {
    TW_ASSERT(pthread_mutex_lock(&early->mutex) == 0);
}

static void unlock(struct tw_apply_ahead *early) {
    TW_ASSERT(pthread_mutex_unlock(&early->mutex) == 0);
}

/* `work` belongs to this thread while is_working is set, else to the loop's thread. */
static void *serve(void *argument) {
    struct tw_apply_ahead *early = argument;
    lock(early);
    while (!early->must_stop) {
        if (!early->is_working) {
            TW_ASSERT(pthread_cond_wait(&early->changed, &early->mutex) == 0);
            continue;
        }
        unlock(early);
        struct tw_error err = {.status = TW_OK};
        const enum tw_status status = tw_anchor_work(early->merger, &early->work, &err);
        lock(early);
        early->status = status;
        early->err = err;
        early->is_working = false;
        TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    }
    unlock(early);
    return NULL;
}

static int start(struct tw_apply_ahead *early) {
    sigset_t all, before; /* this thread blocks all signals, because they must reach the loop and
                             end its wait */
    (void)sigfillset(&all);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    const int failed = pthread_create(&early->thread, NULL, serve, early);
    TW_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return failed;
}

enum tw_status tw_apply_ahead_init(struct tw_apply_ahead *early, struct tw_merger *merger,
                                   bool is_host_idle, struct tw_error *err) {
    const size_t elements = (size_t)merger->shm->geometry.spare_elements;
    memset(early, 0, sizeof(*early));
    early->merger = merger;
    if (!is_host_idle) return TW_OK;
    const struct tw_vectors *vectors = merger->vectors;
    float *merged = NULL;
    TW_TRY(vectors->host_alloc(vectors->self, &merged, elements, "merges beside steps", err));
    TW_ASSERT(pthread_mutex_init(&early->mutex, NULL) == 0);
    TW_ASSERT(pthread_cond_init(&early->changed, NULL) == 0);
    const int failed = start(early);
    if (failed == 0) {
        early->work.merged = merged;
        return TW_OK;
    }
    (void)pthread_cond_destroy(&early->changed);
    (void)pthread_mutex_destroy(&early->mutex);
    vectors->host_free(vectors->self, merged);
    return tw_fail(err, TW_NOMEM, "start the thread for merges: %s", strerror(failed));
}

void tw_apply_ahead_deinit(struct tw_apply_ahead *early) {
    if (early->work.merged == NULL) return;
    lock(early);
    early->must_stop = true;
    TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    unlock(early);
    TW_ASSERT(pthread_join(early->thread, NULL) == 0);
    (void)pthread_cond_destroy(&early->changed);
    (void)pthread_mutex_destroy(&early->mutex);
    early->merger->vectors->host_free(early->merger->vectors->self, early->work.merged);
    memset(early, 0, sizeof(*early));
}

/* Returns whether the current work is for this request. Another request of the same round may have
 * other modes. */
static bool is_of(const struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    return early->is_begun && memcmp(&early->work.request, request, sizeof(*request)) == 0;
}

static bool is_working(struct tw_apply_ahead *early) {
    lock(early);
    const bool is_working = early->is_working;
    unlock(early);
    return is_working;
}

static void wait_for(struct tw_apply_ahead *early) {
    lock(early);
    while (early->is_working) TW_ASSERT(pthread_cond_wait(&early->changed, &early->mutex) == 0);
    unlock(early);
}

/* Starts the work. Returns false if the request is refused or needs no work. */
static bool begin(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    const struct tw_merger *merger = early->merger;
    if (request->fragment >= merger->shm->fragments_count ||
        tw_anchor_publish_is_applied(merger, request->fragment, request->round) ||
        tw_anchor_begin(early->merger, request, &early->work, NULL) != TW_OK)
        return false;
    early->is_begun = true;
    lock(early);
    early->is_working = true;
    TW_ASSERT(pthread_cond_broadcast(&early->changed) == 0);
    unlock(early);
    return true;
}

bool tw_apply_ahead_is_ready(struct tw_apply_ahead *early, const struct tw_wmsg_apply *request) {
    if (early->work.merged == NULL) return true;
    if (early->is_begun) return is_of(early, request) && !is_working(early);
    return !begin(early, request);
}

void tw_apply_ahead_give_up(struct tw_apply_ahead *early) {
    if (!early->is_begun) return;
    wait_for(early);
    early->is_begun = false;
}

enum tw_status tw_apply_ahead_begin(struct tw_apply_ahead *early,
                                    const struct tw_wmsg_apply *request,
                                    struct tw_wmsg_applied *reply, struct tw_error *err) {
    const bool is_begun = is_of(early, request);
    tw_apply_ahead_give_up(early);
    if (!is_begun) return tw_anchor_apply(early->merger, request, reply, err);
    if (early->status == TW_OK) {
        tw_anchor_land(early->merger, &early->work);
    } else {
        (void)tw_fail(err, early->status, "%s", early->err.message);
    }
    tw_anchor_publish_reply(early->merger, request->fragment, early->status, reply);
    return early->status;
}
